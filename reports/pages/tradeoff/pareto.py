"""Which models are not beaten in everything: the Pareto front of costs and a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Standing = Literal["on the front", "behind", "open"]


@dataclass(frozen=True)
class MeanInterval:
    """A mean with its 95 % t-interval; nan ends where there is none."""

    mean: float
    low: float
    high: float

    def surely_below(self, other: MeanInterval) -> bool:
        """Whether the intervals do not meet, this one the lower; unknown ones always meet."""
        return self.high < other.low

    def surely_above(self, other: MeanInterval) -> bool:
        """Whether the intervals do not meet, this one the higher."""
        return self.low > other.high


@dataclass(frozen=True)
class Candidate:
    """One model.

    Attributes
    ----------
    name : str
    costs : tuple of MeanInterval
        Time, memory ...: less is better. nan costs are not known, and decide nothing.
    metric : MeanInterval
        More is better (the sign of an error is turned before).
    """

    name: str
    costs: tuple[MeanInterval, ...]
    metric: MeanInterval


def beats(first: Candidate, second: Candidate) -> bool:
    """Whether the first is at least as good in every mean, and better in one."""
    pairs = [
        (a.mean, b.mean)
        for a, b in zip(first.costs, second.costs, strict=True)
        if not (math.isnan(a.mean) or math.isnan(b.mean))
    ]
    no_worse = all(a <= b for a, b in pairs) and first.metric.mean >= second.metric.mean
    better = any(a < b for a, b in pairs) or first.metric.mean > second.metric.mean
    return no_worse and better


def surely_beats(first: Candidate, second: Candidate) -> bool:
    """Whether it is better in everything, and no two intervals meet."""
    costs = [
        (a, b)
        for a, b in zip(first.costs, second.costs, strict=True)
        if not (math.isnan(a.mean) or math.isnan(b.mean))
    ]
    return all(a.surely_below(b) for a, b in costs) and first.metric.surely_above(second.metric)


def standings(candidates: Sequence[Candidate]) -> dict[str, Standing]:
    """Where each stands.

    *on the front*: no other is at least as good in every mean. *behind*: another is better in
    everything and no intervals meet. *open*: another's means are better, but chance may be why.
    """
    found: dict[str, Standing] = {}
    for one in candidates:
        others = [other for other in candidates if other is not one]
        if any(surely_beats(other, one) for other in others):
            found[one.name] = "behind"
        elif any(beats(other, one) for other in others):
            found[one.name] = "open"
        else:
            found[one.name] = "on the front"
    return found
