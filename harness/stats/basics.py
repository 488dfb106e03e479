"""What tests are made of: moments, Student's t, Welch, Holm, spread; exact ones by enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

ALPHA = 0.05
CONFIDENCE = 0.95
LEAST_FOR_CORRELATION = 4
"""Fisher's interval divides by the root of n - 3."""
MOST_SIGN_FLIPS = 20
"""2^20 sign flips are enumerated; above that the exact test is left out."""
MOST_SPLITS = 200_000
ROUNDING = 1e-9
"""Equal sums must count as equal although they were added in another order."""


def mean(values: Sequence[float]) -> float:
    """Of one value or more."""
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float:
    """Sample deviation (n - 1); nan of one value."""
    if len(values) < 2:
        return math.nan
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def half_width(error: float, freedom: float, confidence: float = CONFIDENCE) -> float:
    """Half the length of the t-interval around a number with this standard error."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2)) * error


def two_sided(difference: float, error: float, freedom: float) -> float:
    """The p of a t-test that a difference with this standard error is zero.

    Without any spread it is 1 for a difference of zero and 0 otherwise.
    """
    from scipy.special import stdtr

    if error == 0:
        return 0.0 if difference else 1.0
    return float(2 * stdtr(freedom, -abs(difference) / error))


def welch_error(deviations: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """Standard error of the difference of two means, and its degrees of freedom.

    Those of Welch and Satterthwaite, of both sample deviations and numbers of values; without any
    variance there is nothing to divide, and the freedom is that of equal variances.
    """
    squares = [sd**2 / count for sd, count in zip(deviations, counts, strict=True)]
    total = math.fsum(squares)
    if not total > 0:
        return math.sqrt(total), float(sum(counts) - 2)
    below = math.fsum(s**2 / (count - 1) for s, count in zip(squares, counts, strict=True) if s)
    return math.sqrt(total), total**2 / below


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number by Holm's method, in the order given.

    Of m, the i-th smallest times m - i + 1, no smaller than the one before, and at most 1 (Holm
    1979). Done here because statsmodels collects Python's garbage at each call, 0.05 s and more.

    Raises
    ------
    ValueError
        If one is not between 0 and 1.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"given p-values {list(p_values)}; expected numbers from 0 to 1")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * float(p_values[place])))
        adjusted[place] = largest
    return adjusted


class MeanInterval(NamedTuple):
    """A mean with its 95 % t-interval, whose ends are nan where it has none."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """The mean of values, at least one, with its t-interval."""
    return t_interval(mean(values), deviation(values), len(values))


def t_interval(mean: float, sd: float, count: int) -> MeanInterval:
    """The interval of a mean of so many values with this sample deviation."""
    if count < 2:
        return MeanInterval(mean, math.nan, math.nan)
    half = half_width(sd / math.sqrt(count), count - 1)
    return MeanInterval(mean, mean - half, mean + half)


@dataclass(frozen=True)
class SpreadEstimate:
    """A number with its 95 % interval; the interval is nan where there are too few values."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedSpread:
    """What paired values say of the spread that a plan needs."""

    count: int  # pairs
    sd_first: float  # sd_first, sd_second: of each side
    sd_second: float
    # Of the differences; interval from the chi-squared distribution of normal values.
    sd: SpreadEstimate
    # Pearson's, interval by Fisher's transformation; nan where a side has no spread.
    correlation: SpreadEstimate


def paired_spread(first: Sequence[float], second: Sequence[float]) -> PairedSpread:
    """Spread of pairs.

    Raises
    ------
    ValueError
        With fewer than two pairs, or without as many on either side.
    """
    from scipy.stats import chi2

    if len(first) != len(second):
        raise ValueError(f"given {len(first)} and {len(second)} values; expected as many")
    if len(first) < 2:
        raise ValueError(f"given {len(first)} values; expected two or more")
    sd, freedom = deviation([a - b for a, b in zip(first, second, strict=True)]), len(first) - 1
    ends = (float(chi2.ppf((1 + side * CONFIDENCE) / 2, freedom)) for side in (1, -1))
    low, high = (sd * math.sqrt(freedom / end) for end in ends)
    sides = deviation(first), deviation(second)
    r = _correlation(first, second) if min(sides) > 0 else SpreadEstimate(*[math.nan] * 3)
    return PairedSpread(len(first), *sides, SpreadEstimate(sd, low, high), r)


def _correlation(first: Sequence[float], second: Sequence[float]) -> SpreadEstimate:
    from scipy.stats import pearsonr

    found = pearsonr(first, second)
    r, low, high = float(found.statistic), math.nan, math.nan
    if len(first) >= LEAST_FOR_CORRELATION and abs(r) < 1:
        low, high = map(float, found.confidence_interval(CONFIDENCE))
    return SpreadEstimate(r, low, high)


def sign_flip(differences: Sequence[float]) -> float:
    """Share of sign patterns whose mean is at least as far from zero as the one observed.

    Two-sided p of independent differences that are symmetric around zero. nan for more than
    `MOST_SIGN_FLIPS`, unless all have one sign: then only that pattern and its opposite count.
    """
    import numpy as np

    values = np.array(differences, dtype=float)
    if (values > 0).all() or (values < 0).all():
        return float(2.0 ** (1 - len(values)))
    if len(values) > MOST_SIGN_FLIPS:
        return math.nan
    totals = np.zeros(1)
    for value in values:
        totals = np.concatenate([totals + value, totals - value])
    tolerance = ROUNDING * np.abs(values).sum()
    return float(np.mean(np.abs(totals) >= abs(values.sum()) - tolerance))


def signed_ranks(differences: Sequence[float]) -> float:
    """Two-sided p of Wilcoxon's signed-rank test: exact, with ties too.

    The null distribution of the sum of the ranks that have a plus is built up rank by rank.
    Differences of zero are left out (Wilcoxon 1945); without any other p is 1. It asks for
    differences that are independent and symmetric around zero; no p is below 2^(1 - n).
    """
    import numpy as np
    from scipy.stats import rankdata

    values = np.array([d for d in differences if d], dtype=float)
    ranks = np.rint(2 * rankdata(np.abs(values))).astype(int)  # ties have half ranks
    share = np.zeros(ranks.sum() + 1)  # of all signs, by the sum of the doubled ranks with a plus
    share[0] = 1.0
    for rank in ranks:
        share /= 2
        share[rank:] += share[:-rank].copy()
    from_middle = np.abs(2 * np.arange(len(share)) - ranks.sum())
    return float(share[from_middle >= abs(2 * ranks[values > 0].sum() - ranks.sum())].sum())


def permutation(first: Sequence[float], second: Sequence[float]) -> float:
    """Share of splits whose difference of means is at least as large as the one observed.

    Two-sided p of two independent groups; nan where there are more than `MOST_SPLITS`.
    """
    values, count = [*first, *second], len(first)
    if math.comb(len(values), count) > MOST_SPLITS:
        return math.nan
    total = math.fsum(values)
    observed = abs(math.fsum(first) / len(first) - math.fsum(second) / len(second))
    tolerance = ROUNDING * max(map(abs, values))
    hits = splits = 0
    for chosen in itertools.combinations(values, count):
        part = math.fsum(chosen)
        difference = part / count - (total - part) / (len(values) - count)
        hits += abs(difference) >= observed - tolerance
        splits += 1
    return hits / splits


def sign_test(differences: Sequence[float] | np.ndarray) -> float:
    """Two-sided p of as many positive among the differences that are not zero; 1 without any.

    It looks at signs alone, so that differences in different units may stand together.
    """
    from scipy.stats import binomtest

    positive = sum(d > 0 for d in differences)
    apart = positive + sum(d < 0 for d in differences)
    return float(binomtest(positive, apart).pvalue) if apart else 1.0
