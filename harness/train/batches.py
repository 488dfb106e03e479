"""Order of the examples: random, with examples of like length in one batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from harness.train.task import Split

POOL_BATCHES = 40
"""Batches that are drawn together and sorted by length inside."""


def lengths(split: Split) -> np.ndarray:
    """Longest input of each example, [S]."""
    per_input = [
        np.full(len(split), x.shape[1]) if isinstance(x, np.ndarray) else [len(t) for t in x]
        for x in split.inputs
    ]
    return np.max(np.stack([np.asarray(v) for v in per_input]), axis=0)


def order(sizes: np.ndarray, batch: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Indices of the examples of each batch, for one epoch.

    Parameters
    ----------
    sizes : ndarray of int, shape [S]
    batch : int
        Examples per batch; the last one of a pool may have fewer.
    generator : numpy Generator
        Decides the order; equal generators give equal orders, whatever the model.
    """
    shuffled = generator.permutation(len(sizes))
    out = []
    for start in range(0, len(shuffled), POOL_BATCHES * batch):
        pool = shuffled[start : start + POOL_BATCHES * batch]
        pool = pool[np.argsort(sizes[pool], kind="stable")]
        out += [pool[i : i + batch] for i in range(0, len(pool), batch)]
    return [out[i] for i in generator.permutation(len(out))]


def padding(sizes: np.ndarray, batches: Sequence[np.ndarray]) -> float:
    """Share of the positions of some batches that hold no token.

    Parameters
    ----------
    sizes : ndarray of int, shape [S]
        Of all examples.
    batches : sequence of ndarray
        Of their indices, from `order`.
    """
    places = sum(len(index) * int(sizes[index].max()) for index in batches)
    return 1 - sum(int(sizes[index].sum()) for index in batches) / places


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
    by_length = np.argsort(lengths(split), kind="stable")
    for start in range(0, len(by_length), batch):
        yield by_length[start : start + batch]
