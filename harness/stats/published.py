"""Statistics of printed means and deviations: what a paper's table allows to conclude."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.stats.basics import half_width, two_sided, welch_error


@dataclass(frozen=True)
class Summary:
    """A printed mean (sd) and the number of replicates behind it."""

    mean: float
    sd: float
    count: int


@dataclass(frozen=True)
class WelchResult:
    """Welch's t-test from summaries; first minus second, with its 95 % interval."""

    difference: float
    t: float
    freedom: float
    p: float
    low: float
    high: float


def welch(first: Summary, second: Summary) -> WelchResult:
    """Welch's t-test of two printed means.

    Raises
    ------
    ValueError
        With fewer than two replicates, a negative deviation, or no spread at all.
    """
    sds, counts = (first.sd, second.sd), (first.count, second.count)
    if min(counts) < 2:
        raise ValueError(f"given {first.count} and {second.count} replicates; expected two or more")
    if min(sds) < 0:
        raise ValueError(f"given deviations {first.sd} and {second.sd}; expected none below 0")
    if not max(sds) > 0:
        raise ValueError(f"given deviations {first.sd} and {second.sd}; expected a positive one")
    error, freedom = welch_error(sds, counts)
    difference, half = first.mean - second.mean, half_width(error, freedom)
    p = two_sided(difference, error, freedom)
    return WelchResult(
        difference, difference / error, freedom, p, difference - half, difference + half
    )


def two_proportions(first: float, count_first: int, second: float, count_second: int) -> float:
    """Two-sided p of a z-test of two shares, with the pooled variance.

    Two shares that are both 0 or both 1 have p 1.

    Raises
    ------
    ValueError
        If a share is not between 0 and 1 (a percentage, say), or a count not positive.
    """
    from statsmodels.stats.proportion import proportions_ztest

    if not (0 <= first <= 1 and 0 <= second <= 1 and min(count_first, count_second) > 0):
        raise ValueError(
            f"given {first} of {count_first}, {second} of {count_second}; expected shares from 0 "
            "to 1 (not percentages) of positive counts"
        )
    if first == second in (0, 1):
        return 1.0
    hits = [first * count_first, second * count_second]
    return float(proportions_ztest(hits, [count_first, count_second])[1])


def implied_interval(
    difference: float, p: float, count: int, *, paired: bool
) -> tuple[float, float]:
    """The 95 % interval that a printed difference and p of a t-test imply.

    Parameters
    ----------
    p : float
        Two-sided, between 0 and 1.
    count : int
        Replicates per side.
    paired : bool
        n - 1 degrees of freedom, or 2 n - 2.

    Raises
    ------
    ValueError
        If p or count can't be, or the difference is 0 (which any spread would print as p 1).
    """
    from scipy.stats import t

    if not 0 < p < 1 or count < 2:
        raise ValueError(f"given p {p}, {count} replicates; expected 0 < p < 1 and two or more")
    if not math.isfinite(difference) or difference == 0:
        raise ValueError(f"given difference {difference}; expected a finite one other than 0")
    freedom = count - 1 if paired else 2 * count - 2
    error = abs(difference) / float(t.isf(p / 2, freedom))
    half = half_width(error, freedom)
    return difference - half, difference + half
