"""Vectors of sequences of vectors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor, nn

from harness.train.objective import Objective
from harness.train.recipe import Recipe
from harness.train.task import Data, Split, Task
from reference_impls.models.encoders import Encoder, SequenceRegressor


def mse(predicted: np.ndarray, split: Split) -> float:
    """Mean squared error over examples and features."""
    return float(np.mean((predicted.astype(np.float64) - split.targets.astype(np.float64)) ** 2))


def relative_mse(predicted: np.ndarray, split: Split) -> float:
    """Mean squared error over the targets' variance: 1 for the best constant, 0 for perfect."""
    exact = split.targets.astype(np.float64)
    return mse(predicted, split) / float(np.mean((exact - exact.mean(axis=0)) ** 2))


class Regression(Objective):
    """A linear output, half the squared error."""

    metrics = MappingProxyType({"mse": mse, "relative_mse": relative_mse})

    def head(
        self, task: Task, encode: Encoder, data: Data, recipe: Recipe, sizes: Mapping[str, Any]
    ) -> nn.Module:
        """Of vectors, every position a real one."""
        return SequenceRegressor(encode, outputs=data.outputs, **sizes)

    def losses(self, recipe: Recipe, output: Tensor, targets: Tensor) -> Tensor:
        """Half the mean squared error of each vector."""
        return 0.5 * ((output - targets) ** 2).flatten(1).mean(1)

    def predict(self, output: Tensor) -> np.ndarray:
        """Vectors, [S, outputs]."""
        return output.numpy()

    def kept(self, split: Split, output: Tensor, said: np.ndarray) -> dict[str, np.ndarray]:
        """The mean squared error of each vector alone."""
        squares = (said.astype(np.float64) - split.targets) ** 2
        return {"errors": squares.reshape(len(split), -1).mean(1).astype(np.float16)}


OBJECTIVE = Regression()
