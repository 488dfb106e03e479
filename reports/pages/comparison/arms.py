"""The models of a comparison with what their runs said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.experiments.conclusion import Comparison
from harness.experiments.replicates import is_ok
from harness.records.predictions import Predictions, PredictionsLost
from reports.core.source import DeviceRecords


@dataclass(frozen=True)
class Arm:
    """One model on one task.

    Attributes
    ----------
    model : str
    said : mapping
        Predictions by seed and fold.
    """

    model: str
    said: Mapping[tuple[int, int | None], Predictions]

    def pooled(self, name: str) -> np.ndarray:
        """An array of the predictions of all runs, one behind the other."""
        return np.concatenate([getattr(one, name) for one in self.said.values()])


def arms_of(
    comparisons: Sequence[Comparison], device: DeviceRecords
) -> tuple[list[Arm], list[str]]:
    """Every model whose predictions are kept, the baseline last; and what is lost, by name."""
    sides = [(c.first, c.sides[0]) for c in comparisons]
    found, lost = [], []
    for model, some in [*sides, (comparisons[0].second, comparisons[0].sides[1])]:
        said: dict[tuple[int, int | None], Predictions] = {}
        for run in filter(is_ok, some):
            try:
                one = device.said(run)
            except PredictionsLost as error:
                lost.append(str(error))
                continue
            if one is not None and one.said.size:
                said[run["seed"], run.get("fold")] = one
        if said:
            found.append(Arm(model, said))
    return found, lost
