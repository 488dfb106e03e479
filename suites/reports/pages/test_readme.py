"""The README's figures and score line show the published records of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from reports import readme
from reports.core.source import find
from suites.support.report_records import MINE, write_everything


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    text = tmp_path / "README.md"
    marks = [f"{begin}\noutdated\n{readme.END}" for begin in (readme.BEGIN, readme.MODELS)]
    text.write_text("\n\n".join(["# before", *marks, "after\n"]))
    return tmp_path / "figures", text


def test_what_was_written_is_current_and_anything_else_is_stale(
    tmp_path: Path, places: tuple[Path, Path]
) -> None:
    folder, text = places
    write_everything(tmp_path / "journal")
    source = find(str(tmp_path / "journal"))
    assert "README.md" in readme.stale(source, folder, text)
    written = readme.write(source, folder, text)
    assert {p.name for p in written} == {
        f"{name}.{kind}" for name in ("glance", "length", "accuracy") for kind in ("svg", "csv")
    } | {"README.md"}
    assert readme.stale(source, folder, text) == []
    body = text.read_text()
    assert body.startswith("# before")
    assert body.endswith("after\n")
    assert "outdated" not in body
    assert "published claims" in body
    assert body.count("![") == 3
    models = body.partition(readme.MODELS)[2].partition(readme.END)[0]
    assert "| mtsa | +1.9" in models
    assert "], better |" in models
    text.write_text(body.replace("], better |", "], worse |"))
    assert readme.stale(source, folder, text) == ["README.md"]
    (folder / "glance.csv").write_text("x\n1\n")
    (folder / "gone.svg").write_text("<svg></svg>")
    text.write_text(body.replace("published claims", "claims"))
    assert readme.stale(source, folder, text) == ["glance.csv", "gone.svg", "README.md"]


def test_other_records_make_it_stale(tmp_path: Path, places: tuple[Path, Path]) -> None:
    folder, text = places
    write_everything(tmp_path / "a")
    readme.write(find(str(tmp_path / "a")), folder, text)
    from harness.records import journal
    from suites.support.report_records import run, session

    writer = journal.Writer(tmp_path / "a", session("Made up"))
    for seed in range(6, 9):
        writer.append(run(MINE, "trec", seed, {"accuracy": 0.5}))
        writer.append(run("multi_head.sdpa", "trec", seed, {"accuracy": 0.9}))
    writer.close()
    assert "accuracy.csv" in readme.stale(find(str(tmp_path / "a")), folder, text)


def test_a_readme_without_a_place_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no place for what is generated"):
        readme.marked("# nothing\n", "x")
    with pytest.raises(UsageError, match="no place for what is generated"):
        readme.marked(f"{readme.END}{readme.BEGIN}", "x")
    with pytest.raises(UsageError, match="no place for what is generated"):
        readme.marked(f"{readme.BEGIN}{readme.BEGIN}{readme.END}", "x")


def test_figures_say_device_and_commit(tmp_path: Path, places: tuple[Path, Path]) -> None:
    folder, text = places
    write_everything(tmp_path / "journal")
    readme.write(find(str(tmp_path / "journal")), folder, text)
    for name in ("glance", "length", "accuracy"):
        drawn = (folder / f"{name}.svg").read_text()
        assert "commit 0123456789" in drawn
        assert "torch 2.13.0" in drawn


def test_the_readme_is_current() -> None:
    if readme.BEGIN not in readme.README.read_text(encoding="utf-8"):
        pytest.skip(f"README.md has no {readme.BEGIN} yet")
    found = readme.stale(find(""))
    assert found == [], "python -m reports.readme makes them anew"
