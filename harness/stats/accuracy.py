"""Statistics of accuracies over replicates (seeds): differences of means and what they allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.stats.exact import permutation, sign_flip
from harness.stats.power import ALPHA, detectable_difference

CONFIDENCE = 0.95
ROUNDING = 1e-12
"""Differences and deviations below this share of the largest value are those of binary fractions
(0.1 + 0.2 is not 0.3), not of replicates: they count as zero."""


@dataclass(frozen=True)
class MeanDifference:
    """Mean of the first side minus mean of the second.

    Attributes
    ----------
    test : {"paired t", "Welch", "corrected resampled t"}
        The last one for folds of one corpus (Nadeau and Bengio 2003).
    paired : bool
    count_first, count_second : int
        Replicates.
    mean_first, sd_first, mean_second, sd_second : float
        Sample deviations (n - 1); nan for one value.
    difference, low, high : float
        With its 95 % t-interval; nan where there is none.
    error, freedom : float
        Standard error of the difference (nan for one value), and its degrees of freedom.
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
        values (unpaired): no assumption of normality. nan where there are too many, or it was not
        asked for, and for folds: they share training examples, and flips want independence.
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
    error: float
    freedom: float
    p: float
    hedges_g: float
    detectable: float
    sign_flip_p: float
    differences: tuple[float, ...]

    def detectable_among(self, count: int) -> float:
        """`detectable` as one of ``count`` judged together, at the level of Holm's first step."""
        if math.isnan(self.error):
            return math.nan
        return detectable_difference(self.error, self.freedom, alpha=ALPHA / count)


def _checked(first: Sequence[float], second: Sequence[float], paired: bool, overlap: float) -> None:
    if not first or not second:
        raise ValueError(f"given {len(first)} and {len(second)} values; expected some of each")
    if paired and len(first) != len(second):
        raise ValueError(f"given {len(first)} and {len(second)} paired values; expected as many")
    if not all(math.isfinite(v) for v in (*first, *second)):
        raise ValueError("given values that are not finite; leave such replicates out, and say so")
    if not 0 <= overlap < math.inf or (overlap and not paired):
        raise ValueError(f"given overlap {overlap}; expected 0 or more, and only for paired values")


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
    first: Sequence[float], second: Sequence[float], paired: bool, overlap: float
) -> tuple[float, float, float]:
    """Difference of the means, its standard error, and the degrees of freedom."""
    floor = _floor(first, second)
    if paired:
        differences = _differences(first, second)
        share = 1 / len(differences) + overlap
        return (
            _mean(differences),
            _deviation(differences, floor) * math.sqrt(share),
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
    first: Sequence[float],
    second: Sequence[float],
    *,
    paired: bool,
    overlap: float = 0.0,
    exact: bool = True,
) -> MeanDifference:
    """Compare two sets of replicates: paired t, or Welch's t.

    Without any spread (all differences equal, but for `ROUNDING`) the interval is the value itself;
    p is 1 for a difference of zero and 0 otherwise, and the sign-flip p beside it shows how little
    that is.

    Parameters
    ----------
    overlap : float
        0 for independent pairs; for pairs that are folds of one corpus the number of tested over
        the number of trained-on examples, by which the variance of their mean is corrected
        (Nadeau and Bengio 2003, section 5.2): 1/n + overlap instead of 1/n.
    exact : bool
        Whether the exact test is done too, which takes up to a second; without it its p is nan.

    Raises
    ------
    ValueError
        Without values, with unequal numbers of paired ones, with one that is not finite, or with an
        overlap of values that are not paired.
    """
    from scipy.special import stdtr, stdtrit

    _checked(first, second, paired, overlap)
    difference, error, freedom = _spread(first, second, paired, overlap)
    sd_first, sd_second = (_deviation(v, _floor(first, second)) for v in (first, second))
    differences = _differences(first, second) if paired else ()
    low = high = p = g = detectable = math.nan
    if not math.isnan(error):
        half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
        low, high = difference - half, difference + half
        if error > 0:
            p = float(2 * stdtr(freedom, -abs(difference) / error))
        else:
            p = 0.0 if difference else 1.0
        spread = math.sqrt((sd_first**2 + sd_second**2) / 2)
        plain = len(first) - 1 if paired else len(first) + len(second) - 2
        if spread > 0:
            g = difference / spread * (1 - 3 / (4 * plain - 1))
        elif not difference:
            g = 0.0
        detectable = detectable_difference(error, freedom)
    enumerated = math.nan
    if exact and not overlap:
        enumerated = sign_flip(differences) if paired else permutation(first, second)
    return MeanDifference(
        test="corrected resampled t" if overlap else "paired t" if paired else "Welch",
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
        error=error,
        freedom=freedom,
        p=p,
        hedges_g=g,
        detectable=detectable,
        sign_flip_p=enumerated,
        differences=differences,
    )


def equivalence(
    first: Sequence[float],
    second: Sequence[float],
    margin: float,
    *,
    paired: bool,
    overlap: float = 0.0,
) -> float:
    """Two one-sided t-tests (TOST) against a margin: a small p means practically equal.

    Values without any spread leave a t-test nothing to go by: then the one-sided exact test with
    as many of them decides, signs flipped where they are paired and sides drawn where not, and no
    p-value is smaller than one over the number of its outcomes.

    Parameters
    ----------
    overlap : float
        As for `compare_means`.

    Raises
    ------
    ValueError
        If the margin is not positive, or there is a single value on a side.
    """
    from scipy.special import stdtr

    _checked(first, second, paired, overlap)
    if not margin > 0:
        raise ValueError(f"given margin {margin}; expected a positive difference that is too small")
    difference, error, freedom = _spread(first, second, paired, overlap)
    if math.isnan(error):
        raise ValueError(f"given {len(first)} and {len(second)} values; expected two or more")
    if error == 0:
        count, both = len(first), len(first) + len(second)
        outcomes = 2**count if paired else math.comb(both, count)
        return 1 / outcomes if abs(difference) < margin else 1.0
    return float(stdtr(freedom, (abs(difference) - margin) / error))
