"""Rows of one implementation that give other widths are told apart wherever they stand together."""

from __future__ import annotations

import io

from rich.console import Console

from harness.cli.display import ratio_table
from harness.records.ratios import Row, summarise
from reports.core.sweeps import sweeps
from suites.support.made_up_records import case, timed

BASE, CNN = case("multi_head.sdpa", 64), case("multi_cnn.conv", 64, heads=0)
NARROW = CNN.replace("x600", "")


def rows(*cases: str) -> list[Row]:
    seconds = dict(zip((BASE, *cases), (1.0, 2.0, 0.5), strict=False))
    return summarise(list(timed(seconds)), "multi_head.sdpa")


def table(some: list[Row]) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(ratio_table(some, "title"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_two_widths_are_two_lines() -> None:
    (sweep,) = sweeps(rows(CNN, NARROW), least=1)
    lines = sweep.lines("training")
    assert {label: [r.case for r in some] for label, some in lines.items()} == {
        "multi_head.sdpa 8h": [BASE],
        "multi_cnn.conv to 600": [CNN],
        "multi_cnn.conv to 300": [NARROW],
    }
    said = table(rows(CNN, NARROW))
    assert "multi_cnn.conv to 300" in said
    assert "multi_cnn.conv to 600" in said


def test_one_width_is_not_told() -> None:
    (sweep,) = sweeps(rows(CNN), least=1)
    assert set(sweep.lines("training")) == {"multi_head.sdpa 8h", "multi_cnn.conv"}
    assert " to " not in table(rows(NARROW))
