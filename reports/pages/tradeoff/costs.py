"""What training a model costs on one task: time of an epoch, peak memory, beside its accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from harness.experiments.costs import epoch_seconds
from reports.core.trained import ModelRuns, mean_interval, per_unit
from reports.pages.tradeoff.pareto import MeanInterval


@dataclass(frozen=True)
class TrainingCosts:
    """What one model costs on one task, with 95 % t-intervals over seeds or folds.

    Attributes
    ----------
    model : ModelRuns
    metric : MeanInterval
        In the metric's unit.
    seconds : MeanInterval
        Of training, an epoch: the median epoch of each run.
    peak_bytes : MeanInterval
        Of a training run, beyond data, libraries and weights; nan where it can't be measured.
    parameters : int
        Without word vectors.
    workers : tuple of int
        Runs at a time, in those that are shown: they slow each other.
    """

    model: ModelRuns
    metric: MeanInterval
    seconds: MeanInterval
    peak_bytes: MeanInterval
    parameters: int
    workers: tuple[int, ...]


def costs_of(model: ModelRuns) -> TrainingCosts:
    """TrainingCosts of a model from its run records."""

    def estimate(value: Any, scale: float = 1.0) -> MeanInterval:
        numbers = [scale * v for v in per_unit(model.runs, value)]
        return MeanInterval(*mean_interval(numbers)) if numbers else MeanInterval(*[math.nan] * 3)

    return TrainingCosts(
        model,
        estimate(lambda r: r["test"][model.metric], model.unit.scale),
        estimate(epoch_seconds),
        estimate(lambda r: r.get("peak_bytes")),
        int(model.runs[-1].get("parameters") or 0),
        tuple(sorted({int(r.get("workers") or 1) for r in model.runs})),
    )
