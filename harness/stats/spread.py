"""How well a mean, a deviation and a correlation are known from a few values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.stats.basics import CONFIDENCE, deviation, half_width
from harness.stats.basics import mean as centre

LEAST_FOR_CORRELATION = 4
"""Fisher's interval divides by the root of n - 3."""


class MeanInterval(NamedTuple):
    """A mean with its 95 % t-interval, whose ends are nan where it has none."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """The mean of values, at least one, with its t-interval."""
    return t_interval(centre(values), deviation(values), len(values))


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
    """What paired values say of the spread that a plan needs.

    Attributes
    ----------
    count : int
        Pairs.
    sd_first, sd_second : float
        Of each side.
    sd : SpreadEstimate
        Of the differences; interval from the chi-squared distribution of normal values.
    correlation : SpreadEstimate
        Pearson's, interval by Fisher's transformation; nan where a side has no spread.
    """

    count: int
    sd_first: float
    sd_second: float
    sd: SpreadEstimate
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
