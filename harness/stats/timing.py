"""Statistics of times: ratios over blocks, the noise floor, the verdict; of one case or of many."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.stats.basics import (
    CONFIDENCE,
    deviation,
    half_width,
    holm,
    mean,
    two_sided,
    welch_error,
)

Verdict = Literal["faster", "slower", "same", "undecided"]

SAME_WITHIN = 1.05
"""Ratios whose whole interval lies within 5 % are *same*, where the noise floor is lower still."""
FAMILY_ERROR = 0.05
"""Probability that any case at all is called faster or slower although none has changed."""


def ratio_text(ratio: float) -> str:
    """``1.13x``; two significant digits below 0.1, three from 10 on: ``0.0034x``, ``12.3x``."""
    return f"{_digits(ratio)}x"


def _digits(ratio: float) -> str:
    if ratio < 0.0995:  # what rounds to 0.10 has its two digits
        return f"{ratio:#.2g}"
    return f"{ratio:.{2 if ratio < 9.995 else 1 if ratio < 99.95 else 0}f}"


@dataclass(frozen=True)
class Interval:
    """A ratio with its confidence interval."""

    ratio: float  # geometric mean over blocks
    # low, high: ends of the t-interval on the log ratios; nan with fewer than two blocks.
    low: float
    high: float
    count: int  # number of blocks

    @property
    def known(self) -> bool:
        """Whether there are enough blocks for an interval."""
        return not math.isnan(self.low)

    def __str__(self) -> str:
        """``1.20x [1.10, 1.30]``."""
        if not self.known:
            return f"{ratio_text(self.ratio)} [one block]"
        return f"{ratio_text(self.ratio)} [{_digits(self.low)}, {_digits(self.high)}]"


@dataclass(frozen=True)
class LogRatio:
    """Mean of a log ratio, and how well it is known."""

    mean: float  # mean, error: log of the ratio, and its standard error
    error: float
    freedom: float  # degrees of freedom of the t-distribution
    count: int  # number of blocks (the smaller one where two sessions gave them)

    @property
    def p_value(self) -> float:
        """Two-sided p-value of a ratio of 1."""
        return two_sided(self.mean, self.error, self.freedom)

    def interval(self, confidence: float) -> Interval:
        """t-interval of the ratio."""
        half = half_width(self.error, self.freedom, confidence)
        return Interval(
            math.exp(self.mean),
            math.exp(self.mean - half),
            math.exp(self.mean + half),
            self.count,
        )


def inside_blocks(ratios: Sequence[float]) -> LogRatio | None:
    """Estimate from one ratio per block; None with fewer than two.

    Raises
    ------
    ValueError
        If one is not positive and finite.
    """
    logs = _logs(ratios)
    if len(logs) < 2:
        return None
    count = len(logs)
    return LogRatio(mean(logs), deviation(logs) / math.sqrt(count), count - 1, count)


def between_sessions(before: Sequence[float], after: Sequence[float]) -> LogRatio | None:
    """Ratio of two ratios that were measured apart, each once per block (Welch on their logs).

    Parameters
    ----------
    before, after : sequence of float
        Ratio to the baseline in every block of either session; they are not paired.

    Returns
    -------
    LogRatio or None
        Of after / before; None where one of them has fewer than two blocks.
    """
    logs = [_logs(before), _logs(after)]
    counts = [len(v) for v in logs]
    if min(counts) < 2:
        return None
    error, freedom = welch_error([deviation(v) for v in logs], counts)
    return LogRatio(mean(logs[1]) - mean(logs[0]), error, freedom, min(counts))


def _logs(ratios: Sequence[float]) -> list[float]:
    if not all(r > 0 and math.isfinite(r) for r in ratios):
        raise ValueError(f"ratios must be positive and finite, given {list(ratios)}")
    return [math.log(r) for r in ratios]


def block_time(samples: Sequence[float]) -> float:
    """Time of a case in one block on a CPU: the lower quartile of its samples, in their unit.

    What disturbs a sample (a cache emptied by others, a sibling core at work) only ever makes it
    longer, so that the lower part says more of the call and less of its neighbours; a quarter of
    the samples must agree, where a minimum believes a single one. Calibrated by
    `suites.programs.calibration`.

    Raises
    ------
    ValueError
        Without samples.
    """
    if len(samples) < 2:
        return statistics.median(samples)  # raises without any
    return statistics.quantiles(samples, n=4, method="inclusive")[0]


def ratio_interval(ratios: Sequence[float]) -> Interval:
    """t-interval of a ratio from one ratio per block.

    The logs of the ratios are taken as independent draws around one mean, one per fresh
    interpreter; drift and layout that hit a block as a whole cancel inside its ratio.

    Parameters
    ----------
    ratios : sequence of float
        Positive, one per block.

    Raises
    ------
    ValueError
        Without ratios, or with one that is not positive and finite.
    """
    if not ratios:
        raise ValueError("no ratios given; expected one per block")
    known = inside_blocks(ratios)
    if known is None:
        return Interval(math.exp(math.log(ratios[0])), math.nan, math.nan, 1)
    return known.interval(CONFIDENCE)


def noise_floor(control: Interval) -> float:
    """How far from 1 the A/A control reaches: the larger of ``high`` and ``1/low``.

    Nothing nearer to 1 than this is claimed. Infinite while the control has one block.
    """
    return max(control.high, 1 / control.low) if control.known else math.inf


def verdict(interval: Interval, floor: float) -> Verdict:
    """Three-way verdict on a time ratio (a ratio above 1 is slower).

    Parameters
    ----------
    interval : Interval
    floor : float
        Noise floor, at least 1.

    Returns
    -------
    {"faster", "slower", "same", "undecided"}
        *faster*, *slower*: the interval excludes 1 and the ratio lies beyond the noise floor.
        *same*: the whole interval lies within 5 %, and the noise floor is below that.
        *undecided*: the measurement is too noisy to say.
    """
    if not interval.known or math.isinf(floor):
        return "undecided"
    if interval.high < 1 and interval.ratio < 1 / floor:
        return "faster"
    if interval.low > 1 and interval.ratio > floor:
        return "slower"
    if floor <= SAME_WITHIN and interval.low >= 1 / SAME_WITHIN and interval.high <= SAME_WITHIN:
        return "same"
    return "undecided"


@dataclass(frozen=True)
class Difference:
    """One case, judged as one of many."""

    # At the confidence below; it excludes 1 exactly where Holm's adjusted p-value is below
    # `FAMILY_ERROR`.
    ratio: Interval
    p_value: float  # p_value, adjusted: of a ratio of 1; adjusted by Holm over all cases
    adjusted: float
    confidence: float  # at which Holm's method judges this case
    floor: float  # noise floor of this case
    verdict: Verdict


def judge(
    estimates: Mapping[str, LogRatio], floors: Mapping[str, float], error: float = FAMILY_ERROR
) -> dict[str, Difference]:
    """Judge all cases together.

    Holm's method goes through the p-values from the smallest, at ``error / m``, ``error / (m - 1)``
    ..., and stops at the first that is too large; that one and all behind it are judged at the
    level at which it stopped. Each interval is taken at the level of its case, so that interval and
    adjusted p-value always say the same.

    Parameters
    ----------
    estimates : mapping
        By case.
    floors : mapping
        Noise floor of each case, at least 1; nothing below it is claimed.
    error : float
        Family-wise error of *faster* and *slower*.
    """
    names = list(estimates)
    p_values = {name: estimates[name].p_value for name in names}
    adjusted = dict(zip(names, holm([p_values[n] for n in names]), strict=True))
    judged = {}
    level = error / max(len(names), 1)
    going = True
    for rank, name in enumerate(sorted(names, key=lambda n: p_values[n])):
        if going:
            level = error / (len(names) - rank)
            going = p_values[name] <= level
        ratio = estimates[name].interval(1 - level)
        judged[name] = Difference(
            ratio,
            p_values[name],
            adjusted[name],
            1 - level,
            floors[name],
            verdict(ratio, floors[name]),
        )
    return {name: judged[name] for name in names}


def joint_floor(first: float, second: float) -> float:
    """Noise floor of a ratio of two ratios, from those of the sessions they come from."""
    return math.exp(math.hypot(math.log(first), math.log(second)))
