"""Differences of many cases at once: Holm over the cases, and the interval that goes with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.stats.timing import Interval, Verdict, verdict
from harness.stats.verdicts import holm

FAMILY_ERROR = 0.05
"""Probability that any case at all is called faster or slower although none has changed."""


@dataclass(frozen=True)
class LogRatio:
    """Mean of a log ratio, and how well it is known.

    Attributes
    ----------
    mean, error : float
        Log of the ratio, and its standard error.
    freedom : float
        Degrees of freedom of the t-distribution.
    count : int
        Number of blocks (the smaller one where two sessions gave them).
    """

    mean: float
    error: float
    freedom: float
    count: int

    @property
    def p_value(self) -> float:
        """Two-sided p-value of a ratio of 1."""
        from scipy.stats import t

        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return float(2 * t.sf(abs(self.mean) / self.error, self.freedom))

    def interval(self, confidence: float) -> Interval:
        """t-interval of the ratio."""
        from scipy.stats import t

        half = float(t.ppf((1 + confidence) / 2, self.freedom)) * self.error
        return Interval(
            math.exp(self.mean),
            math.exp(self.mean - half),
            math.exp(self.mean + half),
            self.count,
        )


@dataclass(frozen=True)
class Difference:
    """One case, judged as one of many.

    Attributes
    ----------
    ratio : Interval
        At the confidence below; it excludes 1 exactly where Holm's adjusted p-value is below
        `FAMILY_ERROR`.
    p_value, adjusted : float
        Of a ratio of 1; adjusted by Holm over all cases.
    confidence : float
        At which Holm's method judges this case.
    floor : float
        Noise floor of this case.
    verdict : {"faster", "slower", "same", "undecided"}
    """

    ratio: Interval
    p_value: float
    adjusted: float
    confidence: float
    floor: float
    verdict: Verdict


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
    mean, variance = _moments(logs)
    return LogRatio(mean, math.sqrt(variance / len(logs)), len(logs) - 1, len(logs))


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
    moments = [_moments(v) for v in logs]
    squares = [variance / n for (_, variance), n in zip(moments, counts, strict=True)]
    total = sum(squares)
    # Welch-Satterthwaite; without any variance there is nothing to divide.
    below = sum(square**2 / (n - 1) for square, n in zip(squares, counts, strict=True))
    freedom = total**2 / below if below > 0 else float(sum(counts) - 2)
    return LogRatio(moments[1][0] - moments[0][0], math.sqrt(total), freedom, min(counts))


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
    if math.isinf(first) or math.isinf(second):
        return math.inf
    return math.exp(math.hypot(math.log(first), math.log(second)))


def _logs(ratios: Sequence[float]) -> list[float]:
    if not all(r > 0 and math.isfinite(r) for r in ratios):
        raise ValueError(f"ratios must be positive and finite, given {list(ratios)}")
    return [math.log(r) for r in ratios]


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample variance."""
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
