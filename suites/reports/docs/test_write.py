"""``attnbench report --docs``: pages and the README's table are those of the published records."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from harness import cli
from harness.errors import UsageError
from reports.core.page import says, together
from reports.core.source import Source, find
from reports.core.sweeps import LengthSweep
from reports.docs import speed, training, write
from reports.docs.plain import PlainOutput, text_of
from suites.harness.records.test_ratios import rows_of, sweep_records
from suites.support.command_line import ROOT
from suites.support.made_up_records import case, timed
from suites.support.report_records import write as write_records
from suites.support.report_records import write_everything


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a clone, and a journal in it; the declared tables are left out."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "README.md").write_text(f"# before\n{write.BEGIN}\noutdated\n{write.END}\nafter\n")
    write_everything(tmp_path / "journal")
    monkeypatch.setattr(speed, "ratio_tables", lambda: [("Layers", "| a |")])
    monkeypatch.setattr(speed, "growth_tables", lambda: [])
    return tmp_path


def run(root: Path, check: bool = False) -> set[str]:
    return {str(p) for p in write.write(root, find(str(root / "journal")), check)}


EVERY = {
    "README.md",
    *(f"docs/results/{name}.md" for name in ("speed", "training", "training-all")),
    *(f"docs/results/{name}.md" for name in ("claims", "calibration")),
    *(f"docs/results/figures/{name}.svg" for name in ("glance", "length", "printed")),
}


def test_the_sweep_that_is_drawn_has_most_ratios_and_the_longest() -> None:
    sizes = dict.fromkeys((16, 64, 256), 0.5)
    rows = [row for row in rows_of(sweep_records(sizes)) if not row.columns["control"]]
    sweep = LengthSweep(64, 300, "f32", "eager", tuple(rows))
    assert speed.compared(sweep) == (1, 256)
    untimed = tuple(r for r in rows if r.time is None)
    assert untimed
    assert speed.compared(replace(sweep, rows=untimed)) == (0, 0)


def test_the_readmes_table_has_a_row_for_each_number_of_heads(tmp_path: Path) -> None:
    """Of several implementations that of the fastest training step."""
    times = {
        case("mtsa.fused", 64, heads=2): 3.0,
        case("mtsa.algorithm1", 64, heads=2): 4.0,
        case("mtsa.algorithm1", 64): 1.0,
        case("mtsa.fused", 64): 2.0,
        case("multi_head.sdpa", 64): 1.5,
    }
    write_records(tmp_path, "Fast", list(timed(times)))
    (found,) = speed.timed(find(str(tmp_path)))
    rows = [line.split(" | ")[0] for line in speed.small_table(found).splitlines()[2:]]
    assert sorted(rows) == ["| mtsa.algorithm1 8h", "| mtsa.fused 2h"]


def test_what_was_written_is_current_and_anything_else_is_stale(clone: Path) -> None:
    assert run(clone, check=True) == EVERY
    assert not (clone / "docs").exists()
    assert run(clone) == EVERY
    assert run(clone, check=True) == set()
    readme, results = clone / "README.md", clone / "docs" / "results"
    text = readme.read_text()
    assert text.startswith("# before")
    assert text.endswith("after\n")
    assert "outdated" not in text
    assert "What became of the papers' claims" in text
    assert text.count("![") == 1
    assert "| mtsa.algorithm1 8h | " in text
    speed_page = (results / "speed.md").read_text()
    assert "## Layers\n\n| a |" in speed_page
    training = (results / "training-all.md").read_text()
    assert "| mtsa | +1.9" in training
    assert "], better |" in training
    claims = (results / "claims.md").read_text()
    assert "854s / 180s = 4.74" in claims
    assert "## MTSA: Tensorized Self-Attention" in claims
    for figure in (results / "figures").glob("*.svg"):
        drawn = figure.read_text()
        assert "commit 0123456789" in drawn
        assert "prefers-color-scheme" in drawn
    # A number that is not the records' is found, and so is a picture of other data.
    (results / "training-all.md").write_text(training.replace("], better |", "], worse |"))
    readme.write_text(text.replace("the papers' claims", "claims"))
    (results / "figures" / "glance.svg").write_text("<svg></svg>")
    (results / "figures" / "gone.svg").write_text("<svg></svg>")
    stale = {"README.md", "docs/results/training-all.md"}
    stale |= {f"docs/results/figures/{name}.svg" for name in ("glance", "gone")}
    assert run(clone, check=True) == stale
    assert run(clone) == stale
    assert run(clone, check=True) == set()
    assert not (results / "figures" / "gone.svg").exists()


def test_a_picture_with_other_words_is_stale(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same data: what a title or a legend says of them was mended."""
    run(clone)
    figures = training.figures

    def reworded(source: Source) -> dict[str, tuple[Figure, str]]:
        found = figures(source)
        for figure, _ in found.values():
            figure.suptitle("mended")
        return found

    monkeypatch.setattr(training, "figures", reworded)
    (stale,) = run(clone, check=True)
    assert stale == "docs/results/figures/printed.svg"
    assert run(clone) == {stale}
    assert "mended" in (clone / stale).read_text()


def test_a_readme_without_a_place_is_told_so(tmp_path: Path) -> None:
    begin, end = write.BEGIN, write.END
    for text in ("# nothing\n", f"{end}{begin}", f"{begin}{begin}{end}"):
        with pytest.raises(UsageError, match="no place for what is generated"):
            write.marked(text, "x")
    with pytest.raises(UsageError, match="is no clone of attnbench"):
        write.write(tmp_path)


def test_a_page_names_machines_by_numbers_that_it_lists() -> None:
    """The same number on every page; of a name that is longer than a known one nothing is cut."""
    titles = ["EPYC, 2 threads", "EPYC, 2 threads, OMP=1", "Xeon, 2 threads"]
    text = f"{write.MACHINES}\n\n## {titles[1]}: N = 64\n\n{titles[0]}:\n\nby {titles[1]} (3)"
    assert write.numbered(text, titles) == (
        "- machine 1: EPYC, 2 threads\n- machine 2: EPYC, 2 threads, OMP=1\n\n"
        "## Machine 2: N = 64\n\nMachine 1:\n\nby machine 2 (3)"
    )
    for other in ("EPYC, 2 threads, MKL=x", "EPYC, 2 threads [ab12cd]"):
        assert write.numbered(f"on {other}", titles) == f"on {other}"
    assert write.numbered("on an EPYC", []) == "on an EPYC"


def test_only_with_docs_there_is_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report", "--check"]) == 2
    assert "expected attnbench report --docs --check" in capsys.readouterr().err


def test_sentences_and_tables_of_a_page_are_paragraphs_of_markdown() -> None:
    table = PlainOutput().table("x", [], [{"a": "1 < 2", "b": "x|y"}])
    assert text_of(together(says(["One.", "Two < three."]), table, says(["Four."]))) == (
        "One.\n\nTwo &lt; three.\n\n| a | b |\n| --- | ---: |\n| 1 &lt; 2 | x\\|y |\n\nFour."
    )


def test_a_ratio_that_is_not_verified_or_failed_has_no_number() -> None:
    names = base, mine = "core_dot.sdpa", "core_mtsa.fused"
    ((times, verified),) = speed.frames(("cpu/cores",), names, {}).values()
    at = times[(times["length"] == 2048) & (times["dtype"] == "f32")]
    at = at[at["phase"] == "forward"]
    assert speed.ratio_cell(at, mine, base, verified) == "0.64x [0.48, 0.86]"
    assert speed.ratio_cell(at, mine, base, frozenset()) == "not verified"
    assert speed.ratio_cell(at.assign(status="oom"), mine, base, verified) == "oom"
    assert speed.ratio_cell(at, "core_mtsa.tiled", base, verified) == ""
    wide = at[at["name"] == base].assign(case="another", d_out=9, seconds=9.9, ratio=math.nan)
    both = pd.concat([wide, at])
    assert speed.ratio_cell(both, mine, base, verified) == "0.64x [0.48, 0.86]", "of its own widths"
    few = at[at["name"] == base].iloc[:1].assign(case="fewer", heads=1)
    assert speed.ratio_cell(pd.concat([few, at]), mine, base, verified) == "0.64x [0.48, 0.86]"
    alone = pd.concat([wide, at[at["name"] == mine].assign(beside=None)])
    assert speed.ratio_cell(alone, mine, base, verified).endswith(f"] (to {at['d_out'].iloc[0]})")


def test_the_docs_are_those_of_the_published_records() -> None:
    assert write.write(ROOT, check=True) == [], "attnbench report --docs writes them anew"
    for page in (ROOT / "docs" / "results").glob("*.md"):
        text = page.read_text()
        assert not re.search(r"\bnan\b|\de[+]\d", text), page
        headings = re.findall("^## .*", text, re.MULTILINE)
        assert len(headings) == len(set(headings)), page
