"""Drift: found where it was put in, not found in noise, and said apart where it does not cancel."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from harness.records import journal
from harness.records.drift import machine_drift
from harness.records.ratios import time_frame
from harness.stats.drift import Trend, block_trend, session_trend, shown
from reports.core.sentences import drift_sentences
from reports.pages.scaling.page import Scaling
from suites.harness.records.test_ratios import BASE, MINE, case_id, record, rows_of


def session(
    machine: float = 1.0, inside: float = 1.0, ratio: float = 1.0, blocks: int = 9, seed: int = 0
) -> list[dict[str, Any]]:
    """Baseline, control and one more at two lengths.

    Parameters
    ----------
    machine, ratio : float
        By what the machine, and the ratio of the one more, slow down from first to last block.
    inside : float
        By what the machine slows down from the first to the last place in a block.
    """
    draw = np.random.default_rng(seed)
    cases = [
        (case_id(name, n, extra=extra), moves)
        for n in (64, 256)
        for name, extra, moves in ((BASE, "", 1.0), (BASE, "+control", 1.0), (MINE, "", ratio))
    ]
    records = []
    for block in range(blocks):
        along = block / (blocks - 1)
        for order, index in enumerate(draw.permutation(len(cases))):
            case, moves = cases[index]
            seconds = (machine * moves) ** along * inside ** (order / (len(cases) - 1))
            seconds *= math.exp(draw.normal(0, 0.01))
            records.append(record(case, block, seconds, order=order))
    return records


def lines(records: list[dict[str, Any]]) -> list[str]:
    return drift_sentences(machine_drift(time_frame(records), BASE), rows_of(records), BASE)


def test_a_machine_that_slows_down_is_said_so_and_cancels_in_the_ratio() -> None:
    records = session(machine=1.3)
    found = machine_drift(time_frame(records), BASE)
    assert {(d.over, d.problem["length"]) for d in found} == {("session", 64), ("session", 256)}
    # Last third over first third is three quarters of the way.
    assert found[0].trend.change == pytest.approx(1.3**0.75, rel=0.03)
    said = lines(records)
    assert len(said) == 1
    assert "The machine drifted: multi_head.sdpa (forward, batch 64, N = " in said[0]
    assert "x longer in the last third of the session than in the first" in said[0]
    assert all(r.drift == 1 for r in rows_of(records) if r.columns["name"] == MINE)


def test_the_report_says_it_too(tmp_path: Path) -> None:
    for machine, said in ((1.3, 1), (1.0, 0)):
        folder = tmp_path / str(machine)
        writer = journal.Writer(folder, {"fingerprint": {"device": "cpu"}, "environment": {}})
        for one in session(machine=machine):
            writer.append(one)
        writer.close()
        page = Scaling.begin(journal=str(folder), device="", out="", page="scaling").machine()
        assert page.html.count("The machine drifted: multi_head.sdpa") == said


def test_a_machine_that_speeds_up_is_said_the_other_way_round() -> None:
    assert "x shorter in the last third" in lines(session(machine=1 / 1.3))[0]


def test_slowing_down_inside_blocks_is_told_from_slowing_down_over_them() -> None:
    records = session(inside=1.3)
    found = machine_drift(time_frame(records), BASE)
    assert [d.over for d in found] == ["block"]
    assert found[0].trend.change == pytest.approx(1.3, rel=0.05)
    assert "inside a block: a case measured last takes 1." in lines(records)[0]


def test_a_ratio_that_drifts_is_warned_of_because_it_does_not_cancel() -> None:
    records = session(ratio=1.5)
    rows = {r.case: r for r in rows_of(records)}
    assert rows[case_id(MINE)].drift == pytest.approx(1.5**0.75, rel=0.04)
    said = lines(records)
    assert [s.startswith("WARNING: the ratio of mtsa.algorithm1") for s in said] == [True, True]
    assert "relative to multi_head.sdpa" in said[0]


def test_a_ratio_is_not_tested_with_few_blocks_or_without_its_control() -> None:
    few = session(ratio=1.5, blocks=3)
    alone = [r for r in session(ratio=1.5) if "+control" not in r["case"]]
    for records in (few, alone):
        assert all(math.isnan(r.drift) for r in rows_of(records))


def test_a_ratio_that_drifts_less_than_the_noise_floor_is_not_warned_of() -> None:
    records = session(ratio=1.2)
    noisy = np.random.default_rng(1)
    for r in records:
        if "+control" in r["case"]:
            r["median"] *= math.exp(noisy.normal(0, 0.4))
    assert all(r.drift == 1 for r in rows_of(records) if r.columns["name"] == MINE)


@pytest.mark.parametrize("blocks", [4, 15])
def test_false_alarms_over_a_session_are_as_frequent_as_the_test_says(blocks: int) -> None:
    draw = np.random.default_rng(blocks)
    runs, alarms = 800, 0
    for _ in range(runs):
        trend = session_trend(dict(enumerate(np.exp(draw.normal(0, 0.3, blocks)).tolist())))
        assert trend is not None
        alarms += trend.p < 0.05
    low, high = binom.interval(0.999, runs, 0.05)
    assert low <= alarms <= high


@pytest.mark.parametrize("blocks", [4, 9])
def test_false_alarms_inside_blocks_are_as_frequent_as_the_test_says(blocks: int) -> None:
    """Also where single blocks do move, this way and that: the blocks are what is independent."""
    draw = np.random.default_rng(blocks)
    runs, alarms, cases = 300, 0, 4
    for _ in range(runs):
        readings = []
        for block in range(blocks):
            moves, level = draw.normal(0, 0.2), draw.normal(0, 1)
            for order, case in enumerate(draw.permutation(cases)):
                place = order / (cases - 1)
                log = case + level + moves * place + draw.normal(0, 0.1)
                readings.append((f"case{case}", block, place, math.exp(log)))
        trend = block_trend(readings)
        assert trend is not None
        alarms += trend.p < 0.05
    low, high = binom.interval(0.999, runs, 0.05)
    assert low <= alarms <= high


def test_what_is_shown_is_certain_after_holm_and_large_enough() -> None:
    certain, small, unlikely = Trend(1.3, 0.01, 7), Trend(1.02, 0.001, 7), Trend(1.3, 0.2, 7)
    assert shown([certain, small, unlikely, None]) == [True, False, False, False]
    # The same reading among many that show nothing is what chance brings.
    assert shown([certain, *[unlikely] * 9])[0] is False
    assert shown([certain], [1.4]) == [False]
    assert shown([Trend(1 / 1.3, 0.01, 7)]) == [True]
    assert shown([]) == []


def test_a_constant_reading_does_not_drift() -> None:
    trend = session_trend(dict.fromkeys(range(7), 2.0))
    assert trend is not None
    assert (trend.change, trend.p) == (1.0, 1.0)
    assert session_trend(dict.fromkeys(range(3), 2.0)) is None
