"""The statistics of timing, against scipy and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from harness.stats import (
    Interval,
    block_time,
    noise_floor,
    ratio_interval,
    ratio_text,
    verdict,
)


def test_a_blocks_time_is_the_lower_quartile_of_its_samples() -> None:
    samples = [3.0, 1.0, 2.0, 9.0, 5.0, 4.0]
    assert block_time(samples) == pytest.approx(np.quantile(samples, 0.25))
    assert block_time([2.0]) == 2.0
    # One stray sample, to either side, moves it little; a third of them disturbed not at all.
    calm = [1.0] * 20
    assert block_time([0.1, *calm]) == block_time([*calm, *[3.0] * 10]) == 1.0
    with pytest.raises(ValueError):
        block_time([])


def test_interval_is_scipys_t_interval_on_logs() -> None:
    ratios = [1.1, 1.25, 0.98, 1.4, 1.17]
    logs = np.log(ratios)
    low, high = scipy_stats.t.interval(0.95, 4, logs.mean(), scipy_stats.sem(logs))
    interval = ratio_interval(ratios)
    assert interval.ratio == pytest.approx(math.exp(logs.mean()), rel=1e-12)
    assert (interval.low, interval.high) == pytest.approx(
        (math.exp(low), math.exp(high)), rel=1e-12
    )


def test_one_block_has_no_interval() -> None:
    interval = ratio_interval([1.5])
    assert not interval.known
    assert "one block" in str(interval)
    assert verdict(interval, 1.0) == "undecided"


@pytest.mark.parametrize("ratios", [[], [0.0, 1.0], [math.nan], [math.inf, 1.0], [-1.0]])
def test_impossible_ratios_are_refused(ratios: list[float]) -> None:
    with pytest.raises(ValueError):
        ratio_interval(ratios)


def test_noise_floor_is_how_far_the_control_reaches() -> None:
    assert noise_floor(Interval(1.0, 0.9, 1.05, 5)) == pytest.approx(1 / 0.9)
    assert noise_floor(Interval(1.0, 0.98, 1.2, 5)) == pytest.approx(1.2)
    assert math.isinf(noise_floor(ratio_interval([1.0])))


@pytest.mark.parametrize(
    ("interval", "floor", "says"),
    [
        (Interval(1.2, 1.1, 1.3, 7), 1.02, "slower"),
        (Interval(0.8, 0.7, 0.9, 7), 1.02, "faster"),
        (Interval(1.01, 0.99, 1.03, 7), 1.02, "same"),
        (Interval(1.1, 0.9, 1.3, 7), 1.02, "undecided"),
        (Interval(1.08, 1.06, 1.10, 7), 1.12, "undecided"),
        (Interval(1.01, 0.99, 1.03, 7), 1.12, "undecided"),
        (Interval(1.2, 1.1, 1.3, 7), 1.25, "undecided"),
        (Interval(1.2, 1.1, 1.3, 7), math.inf, "undecided"),
    ],
)
def test_verdict_never_claims_below_the_noise_floor(
    interval: Interval, floor: float, says: str
) -> None:
    assert verdict(interval, floor) == says


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.126, "1.13x"), (0.85, "0.85x"), (0.0034, "0.0034x"), (0.0351, "0.035x"),
        (0.0994, "0.099x"), (0.0996, "0.10x"), (9.994, "9.99x"), (9.996, "10.0x"),
        (12.34, "12.3x"), (99.96, "100x"), (2345.6, "2346x"), (1e-7, "1.0e-07x"),
    ],
)  # fmt: skip
def test_a_ratio_keeps_its_significant_digits(ratio: float, text: str) -> None:
    assert ratio_text(ratio) == text


def test_so_do_the_ends_of_its_interval() -> None:
    assert str(Interval(0.0034, 0.0031, 0.0037, 3)) == "0.0034x [0.0031, 0.0037]"
    assert str(Interval(10.2, 9.8, 10.6, 3)) == "10.2x [9.80, 10.6]"
    assert str(Interval(0.002, math.nan, math.nan, 1)) == "0.0020x [one block]"
