"""Statistics of times: ratios over blocks, the noise floor, the verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["faster", "slower", "same", "undecided"]

CONFIDENCE = 0.95
SAME_WITHIN = 1.05
"""Ratios whose whole interval lies within 5 % are *same*, where the noise floor is lower still."""


@dataclass(frozen=True)
class Interval:
    """A ratio with its confidence interval.

    Attributes
    ----------
    ratio : float
        Geometric mean over blocks.
    low, high : float
        Ends of the t-interval on the log ratios; nan with fewer than two blocks.
    count : int
        Number of blocks.
    """

    ratio: float
    low: float
    high: float
    count: int

    @property
    def known(self) -> bool:
        """Whether there are enough blocks for an interval."""
        return not math.isnan(self.low)

    def __str__(self) -> str:
        """``1.20x [1.10, 1.30]``."""
        if not self.known:
            return f"{self.ratio:.2f}x [one block]"
        return f"{self.ratio:.2f}x [{self.low:.2f}, {self.high:.2f}]"


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


def ratio_interval(ratios: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
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
    if not all(r > 0 and math.isfinite(r) for r in ratios):
        raise ValueError(f"ratios must be positive and finite, given {list(ratios)}")
    logs = [math.log(r) for r in ratios]
    mean = math.fsum(logs) / len(logs)
    if len(logs) < 2:
        return Interval(math.exp(mean), math.nan, math.nan, len(logs))
    from scipy.stats import t

    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in logs) / (len(logs) - 1))
    half = float(t.ppf((1 + confidence) / 2, len(logs) - 1)) * deviation / math.sqrt(len(logs))
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


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
