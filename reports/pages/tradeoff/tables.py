"""What training a model costs beside its accuracy, and which models nothing beats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.experiments.costs import epoch_seconds
from harness.stats import MeanInterval, mean_interval
from reports.core.trained import ModelRuns, per_unit

Standing = Literal["on the front", "behind", "open"]


@dataclass(frozen=True)
class TrainingCosts:
    """What one model costs on one task, with 95 % t-intervals over seeds or folds.

    `metric` is in its unit; `seconds` of training an epoch: the median epoch of each run;
    `peak_bytes` beyond data, libraries and weights, nan where it can't be measured; `parameters`
    without word vectors; `workers` are runs at a time, in those that are shown: they slow each
    other.
    """

    model: ModelRuns
    metric: MeanInterval
    seconds: MeanInterval
    peak_bytes: MeanInterval
    parameters: int
    workers: tuple[int, ...]

    @property
    def spent(self) -> tuple[MeanInterval, ...]:
        """Metric, time and memory, of each of which less is better."""
        m = self.metric
        better = MeanInterval(-m.mean, -m.high, -m.low) if self.model.higher_is_better else m
        return better, self.seconds, self.peak_bytes


def costs_of(model: ModelRuns) -> TrainingCosts:
    """Costs of training a model from its run records."""

    def estimate(value: Any, scale: float = 1.0) -> MeanInterval:
        numbers = [scale * v for v in per_unit(model.runs, value)]
        return mean_interval(numbers) if numbers else MeanInterval(*[math.nan] * 3)

    return TrainingCosts(
        model,
        estimate(lambda r: r["test"][model.metric], model.unit.scale),
        estimate(epoch_seconds),
        estimate(lambda r: r.get("peak_bytes")),
        int(model.runs[-1].get("parameters") or 0),
        tuple(sorted({int(r.get("workers") or 1) for r in model.runs})),
    )


def standings(spent: Mapping[str, Sequence[MeanInterval]]) -> dict[str, Standing]:
    """Where each stands on the Pareto front.

    *on the front*: no other is at least as good in every mean. *behind*: another is better in
    everything and no intervals meet. *open*: another's means are better, but chance may be why.

    Parameters
    ----------
    spent : mapping
        By name, of each of which less is better; what is nan is not known, and decides nothing.
    """
    found: dict[str, Standing] = {}
    for name, mine in spent.items():
        against = [
            [(a, b) for a, b in zip(theirs, mine, strict=True) if not math.isnan(a.mean - b.mean)]
            for other, theirs in spent.items()
            if other != name
        ]
        if any(all(a.high < b.low for a, b in pairs) for pairs in against):
            found[name] = "behind"
        elif any(
            all(a.mean <= b.mean for a, b in pairs) and any(a.mean < b.mean for a, b in pairs)
            for pairs in against
        ):
            found[name] = "open"
        else:
            found[name] = "on the front"
    return found
