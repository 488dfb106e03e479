"""Sweeps over length: rows of other widths are told apart, and how fast costs grow is fitted."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from harness.cli.display import ratio_table
from harness.records.ratios import Row, summarise
from reports.core.sweeps import by_block, fit_slope, longest, sweeps
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


def test_two_widths_are_two_lines_and_one_is_not_told() -> None:
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
    (sweep,) = sweeps(rows(CNN), least=1)
    assert set(sweep.lines("training")) == {"multi_head.sdpa 8h", "multi_cnn.conv"}
    assert " to " not in table(rows(NARROW))


def test_the_slope_of_a_power_law_is_found() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        blocks = [
            {n: 3e-6 * n**1.7 * drift * rng.lognormal(0, 0.05) for n in (16, 64, 256, 1024)}
            for drift in rng.lognormal(0, 1, 7)
        ]
        fit = fit_slope(blocks)
        assert fit.slope == pytest.approx(1.7, abs=0.06)
        assert (fit.blocks, fit.lengths) == (7, (16, 64, 256, 1024))
        covered += fit.low <= 1.7 <= fit.high
    assert 0.90 <= covered / 200 <= 0.99  # a 95 % interval


def test_overhead_bends_the_whole_and_not_the_longest() -> None:
    blocks: list[Mapping[int, float]] = [
        {n: 1e-2 + 1e-6 * n**2 for n in (16, 64, 256, 1024, 4096)} for _ in range(3)
    ]
    whole, end = fit_slope(blocks), fit_slope(longest(blocks))
    assert end.lengths == (1024, 4096)
    assert whole.slope < 1.5 < 1.99 < end.slope
    assert set(longest([{512: 1.0, 1024: 2.0, 2048: 4.0, 256: 1.0}])[0]) == {512, 1024, 2048}


def test_the_longest_lengths_are_those_that_show_growth_and_if_they_can_its_interval() -> None:
    short = {n: float(n) for n in (256, 1024, 4096)}
    alone = {16384: 1.0}
    assert longest([alone, short]) == [{}, {1024: 1024.0, 4096: 4096.0}], "one length shows nothing"
    once = {8192: 1.0, 16384: 4.0}
    assert longest([once, short]) == [once, {4096: 4096.0}], "the longest, if none has an interval"
    again = fit_slope(longest([once, short, dict(short)]))
    assert (again.blocks, again.lengths) == (2, (1024, 4096))
    far = {2 * n: v for n, v in once.items()}
    assert longest([far, short, dict(short)])[0] == far, "two that end far before say too little"
    assert longest([alone]) == []


def test_slopes_without_enough_are_none_or_without_interval() -> None:
    assert fit_slope([]) is None
    assert fit_slope([{16: 1.0}]) is None
    one = fit_slope([{16: 1.0, 32: 2.0}])
    assert one.slope == pytest.approx(1.0)
    assert math.isnan(one.low)
    assert str(one) == "1.00 [one reading]"
    lacking = fit_slope([{16: 1.0, 32: 2.0}, {16: 1.0}])
    assert lacking.blocks == 1


def test_times_of_two_sessions_never_meet_in_a_block() -> None:
    """A slower day must not pass for growth: up to 64 all ran ten times slower than the rest."""
    rows = [
        {"session": session, "block": block, "length": n, "seconds": factor * n, "bytes": n}
        for session, factor, lengths in (("a", 10.0, (16, 32, 64)), ("b", 1.0, (64, 128, 256, 512)))
        for block in (0, 1)
        for n in lengths
    ]
    frame = pd.DataFrame(rows)
    timed = fit_slope(by_block(frame, "seconds", timed=True))
    assert timed.slope == pytest.approx(1.0)
    assert (timed.lengths, timed.blocks) == ((64, 128, 256, 512), 2)
    held = fit_slope(by_block(frame, "bytes", timed=False))
    assert (held.lengths, held.blocks) == ((16, 32, 64, 128, 256, 512), 2)
