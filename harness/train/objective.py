"""What a kind of task trains and how its predictions are judged; the kinds are in `kinds`."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness.records.predictions import Predictions
from harness.registry import Registry
from harness.train.batches import gather, in_order, order
from harness.train.encoder import encoder, stream
from harness.train.recipe import EVALUATION_BATCH, Recipe
from harness.train.task import Data, Split, Task
from reference_impls.models.encoders import Embedding, Encoder

Metric = Callable[[Any, Split], float]
"""Of what was predicted for a split."""


class Objective(ABC):
    """Of one kind of task: its model, its loss, its predictions and their metrics.

    Attributes
    ----------
    metrics : mapping
        By name; their directions are `harness.train.task.HIGHER_IS_BETTER`.
    """

    metrics: Mapping[str, Metric] = MappingProxyType({})

    def build(
        self,
        task: Task,
        model: str,
        options: Mapping[str, str],
        data: Data,
        recipe: Recipe,
        registry: Registry,
        seed: int,
    ) -> nn.Module:
        """The whole model of a task, float32, on the CPU, with seeded weights.

        Parameters
        ----------
        model : str
            ``mechanism`` or ``mechanism.implementation``.
        options : mapping
            For the mechanism's factory, as texts.
        """
        filters = recipe.characters if data.characters else 0
        features = data.width + filters
        encode, width = encoder(
            model, options, features, recipe, registry, seed, pooled=not task.asks_tokens
        )
        # The head's weights must not depend on how many numbers the fusion's took.
        torch.manual_seed(stream(seed, "head"))
        sizes = {"width": width, "hidden": recipe.hidden, "dropout": recipe.dropout}
        return self.head(task, encode, data, recipe, sizes)

    def head(
        self,
        task: Task,
        encode: Encoder,
        data: Data,
        recipe: Recipe,
        sizes: Mapping[str, Any],
    ) -> nn.Module:
        """The model around an encoder, its weights drawn from torch's current stream.

        Not of a kind whose `build` makes a model of another form.

        Parameters
        ----------
        sizes : mapping
            ``width`` out of the encoder, ``hidden`` and ``dropout`` of the head.
        """
        raise NotImplementedError

    def batches(
        self, sizes: np.ndarray, recipe: Recipe, generator: np.random.Generator
    ) -> list[np.ndarray]:
        """Indices of the training examples of each batch of an epoch.

        Parameters
        ----------
        sizes : ndarray of int, shape [inputs, S]
            Lengths, from `harness.train.batches.lengths`.
        """
        return order(sizes, recipe.batch, generator)

    @abstractmethod
    def losses(self, recipe: Recipe, output: Tensor, targets: Tensor) -> Tensor:
        """Of each example, [B]; their mean is trained on."""

    @abstractmethod
    def predict(self, output: Any) -> Any:
        """What `outputs` say of each example."""

    @abstractmethod
    def kept(self, split: Split, output: Any, said: Any) -> Mapping[str, np.ndarray]:
        """Those arrays of `Predictions` that depend on the kind.

        Parameters
        ----------
        split : Split
            The test split.
        output, said
            From `outputs` and `predict`.
        """

    @torch.inference_mode()
    def outputs(self, module: nn.Module, split: Split, device: torch.device) -> Any:
        """Of the module for all examples, in their order, [S, outputs], on the CPU."""
        module.eval()
        found: list[Tensor] = []
        where: list[np.ndarray] = []
        for index in in_order(split, EVALUATION_BATCH):
            inputs, _ = gather(split, index, device)
            found.append(module(*inputs).cpu())
            where.append(index)
        ordered = torch.cat(found)
        out = torch.empty_like(ordered)
        out[torch.from_numpy(np.concatenate(where))] = ordered
        return out

    def judged(self, task: Task, said: Any, split: Split) -> dict[str, float]:
        """The task's metrics of what was predicted for a split."""
        return {name: self.metrics[name](said, split) for name in task.metrics}

    def evaluate(
        self, task: Task, module: nn.Module, split: Split, device: torch.device
    ) -> dict[str, float]:
        """The task's metrics of a module on a split."""
        return self.judged(task, self.predict(self.outputs(module, split, device)), split)

    def told(self, said: Any, seconds: float) -> dict[str, Any]:
        """What a run's record says of its test beside metrics and predictions.

        Parameters
        ----------
        said
            From `predict`.
        seconds : float
            That `outputs` took.
        """
        return {}

    def predictions(self, output: Any, said: Any, data: Data) -> Predictions:
        """What is kept of the predictions for the test split."""
        split, nothing = data.test, np.empty(0, np.uint8)
        items = np.arange(len(split)) if data.test_items is None else data.test_items
        seen = np.zeros(len(split), bool) if data.seen is None else data.seen
        arrays = dict.fromkeys(("truth", "said", "confidence", "errors"), nothing)
        arrays |= self.kept(split, output, said)
        return Predictions(items.astype(np.int32), seen, **arrays)


def embedding(data: Data) -> Embedding:
    """The word vectors of a text task."""
    assert data.embedding is not None
    return Embedding(torch.from_numpy(data.embedding))


@cache
def objective_of(kind: str) -> Objective:
    """That of a kind of task, from the ``OBJECTIVES`` of its module in `harness.train.kinds`."""
    module = kind if kind in ("tagging", "translation") else "sentences"
    found: Objective = importlib.import_module(f"harness.train.kinds.{module}").OBJECTIVES[kind]
    return found
