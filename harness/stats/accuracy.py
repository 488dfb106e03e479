"""Statistics of accuracies over replicates (seeds): differences of means and what they allow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.stats.power import ALPHA, detectable_difference

CONFIDENCE = 0.95
LEAST_REPLICATES = 5
"""With fewer per side nothing is concluded, only described."""
MOST_SIGN_FLIPS = 20
"""2^20 sign flips are enumerated; above that the exact test is left out."""
MOST_SPLITS = 200_000
ROUNDING = 1e-12
"""Differences and deviations below this share of the largest value are those of binary fractions
(0.1 + 0.2 is not 0.3), not of replicates: they count as zero."""

AccuracyVerdict = Literal["better", "worse", "practically equal", "undecided", "descriptive only"]


@dataclass(frozen=True)
class MeanDifference:
    """Mean of the first side minus mean of the second.

    Attributes
    ----------
    test : {"paired t", "Welch"}
    paired : bool
    count_first, count_second : int
        Replicates.
    mean_first, sd_first, mean_second, sd_second : float
        Sample deviations (n - 1); nan for one value.
    difference, low, high : float
        With its 95 % t-interval; nan where there is none.
    p : float
        Two-sided.
    hedges_g : float
        Difference over the root mean square of both deviations, times Hedges' correction
        1 - 3 / (4 df - 1) (Cumming 2012: d_av for pairs; the usual g for groups of one size).
        nan for a difference between two sides that have no spread.
    detectable : float
        The true difference that this test finds with 80 % power at this spread and these counts;
        unpaired, with Welch's standard error and degrees of freedom. 0 without spread.
    sign_flip_p : float
        Exact two-sided p over all sign flips of the differences (paired) or all ways to split the
        values (unpaired): no assumption of normality. nan where there are too many.
    differences : tuple of float
        By pair; empty if unpaired.
    """

    test: str
    paired: bool
    count_first: int
    count_second: int
    mean_first: float
    sd_first: float
    mean_second: float
    sd_second: float
    difference: float
    low: float
    high: float
    p: float
    hedges_g: float
    detectable: float
    sign_flip_p: float
    differences: tuple[float, ...]


def _checked(first: Sequence[float], second: Sequence[float], paired: bool) -> None:
    if not first or not second:
        raise ValueError(f"given {len(first)} and {len(second)} values; expected some of each")
    if paired and len(first) != len(second):
        raise ValueError(f"given {len(first)} and {len(second)} paired values; expected as many")
    if not all(math.isfinite(v) for v in (*first, *second)):
        raise ValueError("given values that are not finite; leave such replicates out, and say so")


def _floor(first: Sequence[float], second: Sequence[float]) -> float:
    return ROUNDING * max(map(abs, (*first, *second)))


def _deviation(values: Sequence[float], floor: float) -> float:
    if len(values) < 2:
        return math.nan
    mean = _mean(values)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return deviation if deviation > floor else 0.0


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _differences(first: Sequence[float], second: Sequence[float]) -> tuple[float, ...]:
    floor = _floor(first, second)
    differences = (a - b for a, b in zip(first, second, strict=True))
    return tuple(d if abs(d) > floor else 0.0 for d in differences)


def _spread(
    first: Sequence[float], second: Sequence[float], paired: bool
) -> tuple[float, float, float]:
    """Difference of the means, its standard error, and the degrees of freedom."""
    floor = _floor(first, second)
    if paired:
        differences = _differences(first, second)
        return (
            _mean(differences),
            _deviation(differences, floor) / math.sqrt(len(differences)),
            len(differences) - 1.0,
        )
    a, b = (_deviation(v, floor) ** 2 / len(v) for v in (first, second))
    error = math.sqrt(a + b) if min(len(first), len(second)) > 1 else math.nan
    difference = _mean(first) - _mean(second)
    if abs(difference) <= floor:
        difference = 0.0
    if not error > 0:
        return difference, error, float(len(first) + len(second) - 2)
    freedom = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    return difference, error, freedom


def compare_means(
    first: Sequence[float], second: Sequence[float], *, paired: bool
) -> MeanDifference:
    """Compare two sets of replicates: paired t, or Welch's t.

    Without any spread (all differences equal, but for `ROUNDING`) the interval is the value itself;
    p is 1 for a difference of zero and 0 otherwise, and the sign-flip p beside it shows how little
    that is.

    Raises
    ------
    ValueError
        Without values, with unequal numbers of paired ones, or with one that is not finite.
    """
    from scipy.stats import t

    _checked(first, second, paired)
    difference, error, freedom = _spread(first, second, paired)
    sd_first, sd_second = (_deviation(v, _floor(first, second)) for v in (first, second))
    differences = _differences(first, second) if paired else ()
    low = high = p = g = detectable = math.nan
    if not math.isnan(error):
        half = float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
        low, high = difference - half, difference + half
        if error > 0:
            p = float(2 * t.sf(abs(difference) / error, freedom))
        else:
            p = 0.0 if difference else 1.0
        spread = math.sqrt((sd_first**2 + sd_second**2) / 2)
        plain = len(first) - 1 if paired else len(first) + len(second) - 2
        if spread > 0:
            g = difference / spread * (1 - 3 / (4 * plain - 1))
        elif not difference:
            g = 0.0
        detectable = detectable_difference(error, freedom)
    return MeanDifference(
        test="paired t" if paired else "Welch",
        paired=paired,
        count_first=len(first),
        count_second=len(second),
        mean_first=_mean(first),
        sd_first=sd_first,
        mean_second=_mean(second),
        sd_second=sd_second,
        difference=difference,
        low=low,
        high=high,
        p=p,
        hedges_g=g,
        detectable=detectable,
        sign_flip_p=_sign_flip(differences) if paired else _permutation(first, second),
        differences=differences,
    )


def _sign_flip(paired_differences: Sequence[float]) -> float:
    """Share of sign patterns whose mean is at least as far from zero as the one observed."""
    import numpy as np

    differences = np.array(paired_differences)
    if len(differences) > MOST_SIGN_FLIPS:
        return math.nan
    totals = np.zeros(1)
    for value in differences:
        totals = np.concatenate([totals + value, totals - value])
    # Equal sums must count as equal although they were added in another order.
    tolerance = 1e-9 * np.abs(differences).sum()
    return float(np.mean(np.abs(totals) >= abs(differences.sum()) - tolerance))


def _permutation(first: Sequence[float], second: Sequence[float]) -> float:
    """Share of splits whose difference of means is at least as large as the one observed."""
    values, count = [*first, *second], len(first)
    if math.comb(len(values), count) > MOST_SPLITS:
        return math.nan
    total = math.fsum(values)
    observed = abs(_mean(first) - _mean(second))
    tolerance = 1e-9 * max(map(abs, values))
    hits = splits = 0
    for chosen in itertools.combinations(values, count):
        part = math.fsum(chosen)
        difference = part / count - (total - part) / (len(values) - count)
        hits += abs(difference) >= observed - tolerance
        splits += 1
    return hits / splits


def equivalence(
    first: Sequence[float], second: Sequence[float], margin: float, *, paired: bool
) -> float:
    """Two one-sided t-tests (TOST) against a margin: a small p means practically equal.

    Raises
    ------
    ValueError
        If the margin is not positive, or there is a single value on a side.
    """
    from scipy.stats import t

    _checked(first, second, paired)
    if not margin > 0:
        raise ValueError(f"given margin {margin}; expected a positive difference that is too small")
    difference, error, freedom = _spread(first, second, paired)
    if math.isnan(error):
        raise ValueError(f"given {len(first)} and {len(second)} values; expected two or more")
    if error == 0:
        return 0.0 if abs(difference) < margin else 1.0
    return float(t.sf((margin - abs(difference)) / error, freedom))


def accuracy_verdict(
    difference: MeanDifference, higher_is_better: bool, equivalence_p: float | None
) -> AccuracyVerdict:
    """What may be said of the first side.

    Fewer than five replicates are described only. *Practically equal* needs a declared margin and
    its test; it holds even where the interval excludes zero, the difference being real but smaller
    than what was declared to matter. A large p is *undecided*, never equal. Replicates that all
    differ by the same have no spread for a t-test: then the sign-flip test decides.
    """
    if min(difference.count_first, difference.count_second) < LEAST_REPLICATES:
        return "descriptive only"
    if equivalence_p is not None and equivalence_p < ALPHA:
        return "practically equal"
    without_spread = difference.low == difference.high
    if without_spread and not difference.sign_flip_p < ALPHA:
        return "undecided"
    if difference.low > 0 or difference.high < 0:
        return "better" if (difference.difference > 0) == higher_is_better else "worse"
    return "undecided"


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number by Holm's method, in the order given.

    Raises
    ------
    ValueError
        If one is not between 0 and 1.
    """
    from statsmodels.stats.multitest import multipletests

    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"given p-values {list(p_values)}; expected numbers from 0 to 1")
    return [float(p) for p in multipletests(list(p_values), method="holm")[1]] if p_values else []
