"""Classes of single sentences or of pairs of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.records.predictions import CERTAIN
from harness.train.objective import Objective, embedding
from harness.train.recipe import Recipe
from harness.train.task import Data, Split, Task
from reference_impls.models.encoders import Encoder, PairClassifier, SentenceClassifier


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


OBJECTIVE = Classification()
