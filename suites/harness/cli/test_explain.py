"""``attnbench explain`` and the table of mechanisms in docs/verify.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli.explain import SECTIONS, about, sections
from harness.cli.list_ import BEGIN, END, markdown
from harness.registry import builtins
from suites.support.command_line import here

PAGE = Path(__file__).parents[3] / "docs" / "verify.md"


@pytest.mark.parametrize("name", builtins())
def test_every_mechanism_is_explained(name: str) -> None:
    text = about(builtins()[name])
    found = sections(text)
    assert tuple(found) == SECTIONS
    assert name in text.splitlines()[0]
    assert "```" in found["Equations"]
    for heading in SECTIONS[1:]:
        assert found[heading].startswith("- "), heading


def test_explain_prints_equations_configurations_and_differences(tmp_path: Path) -> None:
    done = here("explain mtsa mtsa_released --json out.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in (
        "NAACL 2019",
        "eq. 10-11",
        "Where papers and released code differ",
        "Known to be odd",
        "log_sigmoid_both",
        "scale_s='log_sigmoid'",
        "mtsa.fused (default)",
        "weights 991,200",
        "accelerate=False",
    ):
        assert text in done.stdout, text
    # Two forms of one package share one page.
    assert done.stdout.count("Known to be odd") == 1
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [row["name"] for row in rows] == ["mtsa", "mtsa_released"]
    assert set(rows[0]["sections"]) == set(SECTIONS)


def test_a_mechanism_of_ones_own_is_explained_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import torch\nMean = torch.nn.Identity\n")
    done = here("explain Mean --with mine:Mean", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Nothing is written about it" in done.stdout
    assert "Mean.module" in done.stdout


def test_the_readmes_table_is_the_generated_one() -> None:
    assert f"{BEGIN}\n{markdown()}\n{END}" in PAGE.read_text(encoding="utf-8"), (
        "run: attnbench list --markdown, and put it into docs/verify.md"
    )


def test_the_table_names_every_mechanism_and_its_goldens() -> None:
    rows = markdown().splitlines()[2:]
    assert [row.split("|")[1].strip(" `") for row in rows] == list(builtins())
    released = next(row for row in rows if row.startswith("| `mtsa_released`"))
    assert "8 authors'" in released  # one of them of a whole model around it
    assert "`algorithm1`" in released
