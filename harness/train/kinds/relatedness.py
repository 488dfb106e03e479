"""Degrees of relatedness of two sentences."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.train.kinds.regression import mse
from harness.train.objective import Objective, embedding
from harness.train.recipe import Recipe
from harness.train.task import Data, Split, Task
from reference_impls.models.encoders import (
    Encoder,
    PairRelatedness,
    degree_distribution,
    expected_degree,
)


def _is_constant(values: np.ndarray) -> bool:
    # A correlation with a constant is undefined; it says nothing about the targets.
    return bool(np.all(values == values[0]))


def pearson(predicted: np.ndarray, split: Split) -> float:
    """Pearson's r of [S] and [S]; 0 for constant predictions."""
    from scipy.stats import pearsonr

    if _is_constant(predicted):
        return 0.0
    return float(pearsonr(predicted.astype(np.float64), split.targets.astype(np.float64)).statistic)


def spearman(predicted: np.ndarray, split: Split) -> float:
    """Spearman's rank correlation, ties at their mean rank; 0 for constant predictions."""
    from scipy.stats import spearmanr

    if _is_constant(predicted):
        return 0.0
    return float(spearmanr(predicted, split.targets).statistic)


class Relatedness(Objective):
    """Logits of the degrees 1 to G; what is predicted is the expected degree."""

    metrics = MappingProxyType({"pearson": pearson, "spearman": spearman, "mse": mse})

    def head(
        self, task: Task, encode: Encoder, data: Data, recipe: Recipe, sizes: Mapping[str, Any]
    ) -> nn.Module:
        """As of Tai et al. 2015."""
        return PairRelatedness(embedding(data), encode, degrees=data.outputs, **sizes)

    def losses(self, recipe: Recipe, output: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy with the distribution whose mean the degree [B] is.

        Unless the recipe says otherwise: with half the squared error of the expected degree the
        softmax can saturate, and its gradient with it; multi-head then predicts one degree for all
        pairs.
        """
        if recipe.degree_loss == "squared":
            return 0.5 * (expected_degree(output) - targets) ** 2
        wanted = degree_distribution(targets, output.shape[-1])
        return cross_entropy(output, wanted, reduction="none")

    def predict(self, output: Tensor) -> np.ndarray:
        """Expected degrees, [S]."""
        return expected_degree(output).numpy()

    def kept(self, split: Split, output: Tensor, said: np.ndarray) -> dict[str, np.ndarray]:
        """Degrees."""
        return {"truth": split.targets, "said": said.astype(np.float16)}


OBJECTIVE = Relatedness()
