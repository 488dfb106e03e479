"""What a kind of task trains and how its predictions are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.build import make
from harness.case import literal
from harness.records.predictions import CERTAIN, Predictions
from harness.registry import Registry
from harness.train.batches import gather, in_order
from harness.train.recipe import Recipe
from harness.train.task import Data, Split, Task
from reference_impls.encoders import (
    Dense,
    Embedding,
    Encoder,
    PairClassifier,
    PairRelatedness,
    SentenceClassifier,
    SequenceRegressor,
    degree_distribution,
    expected_degree,
)


def accuracy(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Share of examples [S] whose class is right."""
    return float(np.mean(predicted == targets))


def _is_constant(values: np.ndarray) -> bool:
    # A correlation with a constant is undefined; it says nothing about the targets.
    return bool(np.all(values == values[0]))


def pearson(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Pearson's r of [S] and [S]; 0 for constant predictions."""
    from scipy.stats import pearsonr

    if _is_constant(predicted):
        return 0.0
    return float(pearsonr(predicted.astype(np.float64), targets.astype(np.float64)).statistic)


def spearman(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Spearman's rank correlation, ties at their mean rank; 0 for constant predictions."""
    from scipy.stats import spearmanr

    if _is_constant(predicted):
        return 0.0
    return float(spearmanr(predicted, targets).statistic)


def mse(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Mean squared error over examples and features."""
    return float(np.mean((predicted.astype(np.float64) - targets.astype(np.float64)) ** 2))


def relative_mse(predicted: np.ndarray, targets: np.ndarray) -> float:
    """Mean squared error over the targets' variance: 1 for the best constant, 0 for perfect."""
    exact = targets.astype(np.float64)
    return mse(predicted, targets) / float(np.mean((exact - exact.mean(axis=0)) ** 2))


METRICS = {
    "accuracy": accuracy,
    "pearson": pearson,
    "spearman": spearman,
    "mse": mse,
    "relative_mse": relative_mse,
}


POOLING = "source2token.direct"
"""Pools tokens in every model (MTSA, section 4)."""
EVALUATION_BATCH = 256
STREAMS = ("fusion", "pooling", "head", "dropout", "actions", "test actions", "entry")
"""Parts of a run that draw random numbers by torch; each has a stream of its own."""


def stream(seed: int, part: str) -> int:
    """A seed for one part of one run: no two parts, and no two seeds, share their numbers."""
    return int(np.random.SeedSequence([seed, STREAMS.index(part)]).generate_state(1, np.uint64)[0])


def encoder(
    model: str,
    options: Mapping[str, str],
    data: Data,
    recipe: Recipe,
    registry: Registry,
    seed: int,
) -> tuple[Encoder, int]:
    """Context fusion and pooling of a model, with seeded weights, and the features out of it.

    A mechanism that keeps its width has that of the tokens if it gives a sentence. If it gives
    tokens, a dense layer without bias brings these to the recipe's width before it.
    """
    mechanism, implementation = registry.find(model)
    chosen = {**mechanism.options, **implementation.options}
    if recipe.attention_dropout and "attention_dropout" in mechanism.options:
        chosen["attention_dropout"] = recipe.attention_dropout
    chosen |= {name: literal(text) for name, text in options.items()}
    tokens = mechanism.output == "tokens"
    d_in, width = data.width, recipe.width
    if mechanism.keeps_width:
        d_in = width = width if tokens else d_in
    fusion = make(
        mechanism,
        implementation.factory,
        d_in,
        width,
        recipe.heads,
        chosen,
        stream(seed, "fusion"),
    )
    entry = None
    if d_in != data.width:
        torch.manual_seed(stream(seed, "entry"))
        entry = Dense(data.width, d_in, bias=False)
    pooling = None
    if tokens:
        pooler, direct = registry.find(POOLING)
        pooling = make(
            pooler, direct.factory, width, width, 0, pooler.options, stream(seed, "pooling")
        )
    return Encoder(fusion, pooling, recipe.dropout, entry), width


def build(
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
    encode, width = encoder(model, options, data, recipe, registry, seed)
    # The head's weights must not depend on how many numbers the fusion's took.
    torch.manual_seed(stream(seed, "head"))
    sizes: dict[str, Any] = {"width": width, "hidden": recipe.hidden, "dropout": recipe.dropout}
    if data.embedding is None:
        return SequenceRegressor(encode, outputs=data.outputs, **sizes)
    embedding = Embedding(torch.from_numpy(data.embedding))
    if task.kind == "relatedness":
        return PairRelatedness(embedding, encode, degrees=data.outputs, **sizes)
    if task.pairs:
        head: dict[str, Any] = {"activation": recipe.activation, "highway": recipe.highway}
        return PairClassifier(embedding, encode, classes=data.outputs, **sizes, **head)
    return SentenceClassifier(embedding, encode, classes=data.outputs, **sizes)


def losses(task: Task, recipe: Recipe, output: Tensor, targets: Tensor) -> Tensor:
    """Of each example, [B]: cross entropy of classes, half the squared error of vectors.

    Their mean is trained on.

    Degrees of relatedness are trained towards the distribution whose mean they are, unless the
    recipe says otherwise. With half the squared error of the expected degree the softmax can
    saturate, and its gradient with it: multi-head then predicts one degree for all pairs.
    """
    if task.kind == "classification":
        return cross_entropy(output, targets, reduction="none")
    if task.kind == "relatedness":
        if recipe.degree_loss == "squared":
            return 0.5 * (expected_degree(output) - targets) ** 2
        wanted = degree_distribution(targets, output.shape[-1])
        return cross_entropy(output, wanted, reduction="none")
    return 0.5 * ((output - targets) ** 2).flatten(1).mean(1)


@torch.inference_mode()
def outputs(module: nn.Module, split: Split, device: torch.device) -> Tensor:
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


def predict(task: Task, output: Tensor) -> np.ndarray:
    """What a module's output says of each example: classes [S], degrees [S] or vectors."""
    if task.kind == "classification":
        output = output.argmax(-1)
    elif task.kind == "relatedness":
        output = expected_degree(output)
    return output.numpy()


def judged(task: Task, predicted: np.ndarray, split: Split) -> dict[str, float]:
    """The task's metrics of what was predicted for a split."""
    return {name: METRICS[name](predicted, split.targets) for name in task.metrics}


def evaluate(task: Task, module: nn.Module, split: Split, device: torch.device) -> dict[str, float]:
    """The task's metrics of a module on a split."""
    return judged(task, predict(task, outputs(module, split, device)), split)


def kept(task: Task, output: Tensor, predicted: np.ndarray, data: Data) -> Predictions:
    """What is kept of the predictions for the test split.

    Parameters
    ----------
    output : Tensor
        From `outputs`.
    predicted : ndarray
        From `predict`.
    """
    split, nothing = data.test, np.empty(0, np.uint8)
    truth = said = confidence = errors = nothing
    if task.kind == "classification":
        truth, said = split.targets.astype(np.uint8), predicted.astype(np.uint8)
        sure = output.double().softmax(-1).amax(-1).numpy()
        confidence = np.rint(sure * CERTAIN).astype(np.uint8)
    elif task.kind == "relatedness":
        truth, said = split.targets, predicted.astype(np.float16)
    else:
        squares = (predicted.astype(np.float64) - split.targets) ** 2
        errors = squares.reshape(len(split), -1).mean(1).astype(np.float16)
    items = np.arange(len(split)) if data.test_items is None else data.test_items
    seen = np.zeros(len(split), bool) if data.seen is None else data.seen
    return Predictions(items.astype(np.int32), seen, truth, said, confidence, errors)


def parameters(module: nn.Module) -> tuple[int, int]:
    """Number of trained weights without and with word vectors; the papers count without."""
    everything = sum(p.numel() for p in module.parameters())
    words: Sequence[nn.Module] = [m for m in module.modules() if isinstance(m, nn.Embedding)]
    return everything - sum(p.numel() for m in words for p in m.parameters()), everything
