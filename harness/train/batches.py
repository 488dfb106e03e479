"""Order of the examples: random, with examples of like length in one batch; their padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from harness.train.task import Split

POOL_BATCHES = 40
"""Batches that are drawn together and sorted by length inside."""
MANY_BATCHES = 1000
"""From so many on there are enough pairs of any two lengths to sort all of them by both."""


def lengths(split: Split) -> np.ndarray:
    """Length of each input of each example, [inputs, S]."""
    per_input = [
        np.full(len(split), x.shape[1]) if isinstance(x, np.ndarray) else [len(t) for t in x]
        for x in split.inputs
    ]
    return np.stack([np.asarray(v) for v in per_input])


def padding(sizes: np.ndarray, batches: Sequence[np.ndarray]) -> float:
    """Share of the places in batches that hold no token.

    Parameters
    ----------
    sizes : ndarray of int, shape [inputs, S]
    batches : sequence of ndarray
        Indices of examples.
    """
    places = sum(len(index) * int(sizes[:, index].max(1).sum()) for index in batches)
    return 1 - sum(int(sizes[:, index].sum()) for index in batches) / max(places, 1)


def order(sizes: np.ndarray, batch: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Indices of the examples of each batch, for one epoch.

    Parameters
    ----------
    sizes : ndarray of int, shape [inputs, S]
        Examples whose longest input is alike stand together; of very many pairs those of which both
        are, because one length alone leaves a quarter of SNLI's positions empty.
    batch : int
        Examples per batch; the last one of a pool may have fewer.
    generator : numpy Generator
        Decides the order; equal generators give equal orders, whatever the model.
    """
    shuffled, pooled = generator.permutation(sizes.shape[1]), POOL_BATCHES * batch
    keys = sizes.max(0)[None]
    if len(sizes) > 1 and len(shuffled) >= MANY_BATCHES * batch:
        keys, pooled = sizes, len(shuffled)
    out = []
    for start in range(0, len(shuffled), pooled):
        pool = shuffled[start : start + pooled]
        pool = pool[np.lexsort(keys[:, pool])]
        out += [pool[i : i + batch] for i in range(0, len(pool), batch)]
    return [out[i] for i in generator.permutation(len(out))]


def order_by_tokens(
    sizes: np.ndarray, tokens: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Indices of the examples of each batch, so many tokens in each, for one epoch.

    All examples are sorted by the lengths of their inputs, the last input first, so that neither
    side is padded much; which of alike examples share a batch, and the order of batches, is drawn.

    Parameters
    ----------
    sizes : ndarray of int, shape [inputs, S]
    tokens : int
        Most places of all inputs in a batch, padding counted; an example that is longer than that
        has a batch of its own.
    generator : numpy Generator
        As of `order`.
    """
    shuffled = generator.permutation(sizes.shape[1])
    by_length = shuffled[np.lexsort(sizes[:, shuffled])]
    out, first, most = [], 0, np.zeros(len(sizes), int)
    for place, example in enumerate(by_length):
        longer = np.maximum(most, sizes[:, example])
        if place > first and (place + 1 - first) * longer.sum() > tokens:
            out.append(by_length[first:place])
            first, longer = place, sizes[:, example]
        most = longer
    out.append(by_length[first:])
    return [out[i] for i in generator.permutation(len(out))]


def padded(sequences: Sequence[Any]) -> torch.Tensor:
    """Numbers [B, N], or [B, N, C] of arrays [n, C], with 0 behind the shorter sequences.

    N is at least 1.
    """
    longest = max(1, max(len(s) for s in sequences))
    more = getattr(sequences[0], "shape", (0,))[1:]
    ids = np.zeros((len(sequences), longest, *more), dtype=np.int64)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(ids)


def gather(
    split: Split, index: np.ndarray, device: torch.device
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Inputs and targets of some examples, on the device; sequences with 0 behind them."""
    *inputs, targets = (
        torch.from_numpy(x[index]) if isinstance(x, np.ndarray) else padded([x[i] for i in index])
        for x in (*split.inputs, split.targets)
    )
    return [x.to(device) for x in inputs], targets.to(device)


def in_order(split: Split, batch: int) -> Iterator[np.ndarray]:
    """All examples once, short ones first, for evaluation."""
    by_length = np.argsort(lengths(split).max(0), kind="stable")
    for start in range(0, len(by_length), batch):
        yield by_length[start : start + batch]
