"""``attnbench explain`` and the table of mechanisms in docs/verify.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli.explain import SECTIONS, about, sections
from harness.cli.list_ import BEGIN, END, markdown
from harness.registry import builtins
from harness.train.task import tasks
from suites.support.command_line import environment, here

PAGE = Path(__file__).parents[3] / "docs" / "verify.md"


def test_signs_that_a_terminal_lacks_lose_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness", "explain", "mtsa"],
        cwd=tmp_path,
        env=environment(PYTHONIOENCODING="ascii"),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    whole = here("explain mtsa", cwd=tmp_path).stdout
    assert not whole.isascii()
    assert len(done.stdout.splitlines()) == len(whole.splitlines())


def test_ones_own_mechanism_with_a_name_that_is_taken_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\nclass disa(torch.nn.Linear):\n"
        "    def forward(self, x, mask): return super().forward(x)\nclass other(disa): pass\n"
    )
    told = here("explain disa --with mine:disa --with mine:other", cwd=tmp_path).stderr
    assert told == "attnbench: disa is what --with gives, not attnbench's own\n"
    assert here("explain disa", cwd=tmp_path).stderr == ""


def test_every_task_is_listed_with_its_metrics(tmp_path: Path) -> None:
    done = here("list --json out.json", cwd=tmp_path)
    told = {one["name"]: one for one in json.loads((tmp_path / "out.json").read_text())["tasks"]}
    assert list(told) == list(tasks())
    assert told["wnut17"]["metrics"][0] == {
        "name": "span_f1",
        "unit": "%",
        "higher_is_better": True,
    }
    assert told["mirrored_summation"]["metrics"][0]["higher_is_better"] is False
    assert told["trec"]["recipe"] == tasks()["trec"].recipe.as_dict()
    assert "(judged by span_f1, tag_accuracy, tag_accuracy_unseen; needs" in " ".join(
        done.stdout.split()
    )


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
    done = here("explain mtsa mtsa_released --json out.json", cwd=tmp_path, code=0)
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
    done = here("explain Mean --with mine:Mean", cwd=tmp_path, code=0)
    assert "Nothing is written about it" in done.stdout
    assert "Mean.module" in done.stdout
    assert "can't be told" in done.stdout
    assert "takes 2 positional arguments but 3 were given" in " ".join(done.stdout.split())


def test_a_class_within_another_has_its_own_name_alone(tmp_path: Path) -> None:
    inside = "import torch\nclass Place:\n    class Mean(torch.nn.Identity): ...\n"
    (tmp_path / "place.py").write_text(inside)
    given = "--with place:Place.Mean"
    said = here(f"explain Mean {given}", cwd=tmp_path, code=0).stdout
    assert "Mean.module" in said
    assert f"attnbench verify Mean {given}    checks all of it" in said
    cases = here(f"bench --dry-run --lengths 8 {given} --device cpu", cwd=tmp_path, code=0)
    assert "\nMean.module-B64-N8-" in cases.stdout


SUMS = """
import torch

class Sums(torch.nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.map = torch.nn.Linear(d_in, d_out, bias=False)
    def forward(self, x, mask):
        x = self.map(x.masked_fill(~mask[..., None], 0))
        return x.cumsum(1).masked_fill(~mask[..., None], 0)
"""


def test_what_a_mechanism_of_ones_own_computes_is_told(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(SUMS)
    done = here("explain Sums --with sums:Sums --json out.json", cwd=tmp_path, code=0)
    (row,) = json.loads((tmp_path / "out.json").read_text())
    facts = dict(row["facts"])
    assert facts["a row does not depend on later tokens"] == "yes"
    assert facts["a row does not depend on earlier tokens"].startswith("no: off by")
    assert facts["tokens in another order: the same rows, in that order"].startswith("no: off by")
    assert facts["x times a is the output times a power of a"] == "yes: power 1"
    assert facts["affine in x: a matrix and a bias"] == "yes"
    assert facts["tokens that the first and the last row depend on, of 7"] == "1 alone and 1 to 7"
    assert "1 alone and 1 to 7" in done.stdout


def test_the_readmes_table_is_the_generated_one() -> None:
    assert f"{BEGIN}\n{markdown()}\n{END}" in PAGE.read_text(encoding="utf-8"), (
        "run: attnbench list --markdown, and put it into docs/verify.md"
    )
