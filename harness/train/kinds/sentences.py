"""One answer for a sentence, a pair or a sequence of vectors: a class, a degree, or a vector."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.records.predictions import CERTAIN
from harness.train.objective import Objective, embedding
from harness.train.recipe import Recipe
from harness.train.task import Data, Split, Task
from reference_impls.models.encoders import (
    Encoder,
    PairClassifier,
    PairRelatedness,
    SentenceClassifier,
    SequenceRegressor,
    degree_distribution,
    expected_degree,
)


def accuracy(predicted: np.ndarray, split: Split) -> float:
    """Share of examples [S] whose class is right."""
    return float(np.mean(predicted == split.targets))


class Classification(Objective):
    """Logits of the classes, cross entropy, accuracy."""

    metrics = MappingProxyType({"accuracy": accuracy})

    def head(
        self, task: Task, encode: Encoder, data: Data, recipe: Recipe, sizes: Mapping[str, Any]
    ) -> nn.Module:
        """Of pairs with the activation and the highway layer of the recipe."""
        words, classes = embedding(data), data.outputs
        if not task.pairs:
            return SentenceClassifier(words, encode, classes=classes, **sizes)
        own: dict[str, Any] = {"activation": recipe.activation, "highway": recipe.highway}
        return PairClassifier(words, encode, classes=classes, **sizes, **own)

    def losses(self, recipe: Recipe, output: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy of logits [B, classes] with classes [B]."""
        return cross_entropy(output, targets, reduction="none")

    def predict(self, output: Tensor) -> np.ndarray:
        """The likeliest class, [S]."""
        return output.argmax(-1).numpy()

    def kept(self, split: Split, output: Tensor, said: np.ndarray) -> dict[str, np.ndarray]:
        """Classes, and how sure the model is of what it said."""
        sure = output.double().softmax(-1).amax(-1).numpy()
        return {
            "truth": split.targets.astype(np.uint8),
            "said": said.astype(np.uint8),
            "confidence": np.rint(sure * CERTAIN).astype(np.uint8),
        }


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


def correlation(name: str, predicted: np.ndarray, split: Split) -> float:
    """``pearsonr`` or ``spearmanr`` (ties at their mean rank) of [S] and [S].

    0 for constant predictions: their correlation is undefined, and says nothing of the targets.
    """
    from scipy import stats

    if np.all(predicted == predicted[0]):
        return 0.0
    given, wanted = predicted.astype(np.float64), split.targets.astype(np.float64)
    return float(getattr(stats, name)(given, wanted).statistic)


class Relatedness(Objective):
    """Logits of the degrees 1 to G; what is predicted is the expected degree."""

    metrics = MappingProxyType(
        {
            "pearson": partial(correlation, "pearsonr"),
            "spearman": partial(correlation, "spearmanr"),
            "mse": mse,
        }
    )

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


OBJECTIVES = {
    "classification": Classification(),
    "regression": Regression(),
    "relatedness": Relatedness(),
}
