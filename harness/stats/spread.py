"""How well a mean, a deviation and a correlation are known from a few values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.stats.accuracy import CONFIDENCE

LEAST_FOR_CORRELATION = 4
"""Fisher's interval divides by the root of n - 3."""


class MeanInterval(NamedTuple):
    """A mean with its 95 % t-interval, whose ends are nan where it has none."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """The mean of values, at least one, with its t-interval."""
    mean = math.fsum(values) / len(values)
    return t_interval(mean, deviation(values) if len(values) > 1 else math.nan, len(values))


def t_interval(mean: float, sd: float, count: int) -> MeanInterval:
    """The interval of a mean of so many values with this sample deviation."""
    from scipy.stats import t

    if count < 2:
        return MeanInterval(mean, math.nan, math.nan)
    half = float(t.ppf((1 + CONFIDENCE) / 2, count - 1)) * sd / math.sqrt(count)
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


def deviation(values: Sequence[float]) -> float:
    """Sample deviation (n - 1)."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def sd_estimate(values: Sequence[float]) -> SpreadEstimate:
    """Deviation of normal values, with its interval.

    Raises
    ------
    ValueError
        With fewer than two values.
    """
    from scipy.stats import chi2

    if len(values) < 2:
        raise ValueError(f"given {len(values)} values; expected two or more")
    sd, freedom = deviation(values), len(values) - 1
    low, high = (float(chi2.ppf((1 + s * CONFIDENCE) / 2, freedom)) for s in (1, -1))
    return SpreadEstimate(sd, sd * math.sqrt(freedom / low), sd * math.sqrt(freedom / high))


def correlation_estimate(first: Sequence[float], second: Sequence[float]) -> SpreadEstimate:
    """Pearson's correlation, with its interval by Fisher's transformation."""
    from scipy.special import ndtri
    from scipy.stats import pearsonr

    if len(first) < 2 or not (deviation(first) > 0 and deviation(second) > 0):
        return SpreadEstimate(math.nan, math.nan, math.nan)
    r = float(pearsonr(first, second).statistic)
    if len(first) < LEAST_FOR_CORRELATION or abs(r) >= 1:
        return SpreadEstimate(r, math.nan, math.nan)
    half = float(ndtri((1 + CONFIDENCE) / 2)) / math.sqrt(len(first) - 3)
    return SpreadEstimate(r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half))


def paired_spread(first: Sequence[float], second: Sequence[float]) -> PairedSpread:
    """Spread of pairs.

    Raises
    ------
    ValueError
        With fewer than two pairs, or without as many on either side.
    """
    if len(first) != len(second):
        raise ValueError(f"given {len(first)} and {len(second)} values; expected as many")
    differences = [a - b for a, b in zip(first, second, strict=True)]
    sd = sd_estimate(differences)
    return PairedSpread(
        len(differences),
        deviation(first),
        deviation(second),
        sd,
        correlation_estimate(first, second),
    )
