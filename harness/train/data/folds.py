"""Which examples are held out: by the corpus alone (folds), or by the seed (dev)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

DEV_SHARE = 0.1
"""Of the training examples, where a corpus has no dev split."""

Index = NDArray[np.intp]


def folds_of(count: int, folds: int) -> list[Index]:
    """Numbers of the examples of each fold: a fixed permutation, cut into like parts.

    The order is that of hashes of the numbers, so it is the same with every version of every
    library, for every model and seed.
    """
    order = sorted(range(count), key=lambda i: hashlib.sha256(f"example {i}".encode()).digest())
    return np.array_split(np.array(order, dtype=np.intp), folds)


def held_out(count: int, seed: int, *more: int) -> tuple[Index, Index]:
    """Train and dev of so many examples: a tenth, drawn by the seed, is dev."""
    shuffled = np.random.default_rng([seed, 0, *more]).permutation(count)
    dev = round(DEV_SHARE * count)
    return shuffled[dev:], shuffled[:dev]


def cross_validated(count: int, folds: int, fold: int, seed: int) -> Mapping[str, Index]:
    """Train, dev and test of one fold: dev is drawn from what the fold trains on."""
    parts = folds_of(count, folds)
    rest = np.concatenate([part for number, part in enumerate(parts) if number != fold])
    train, dev = held_out(len(rest), seed, fold)
    return {"train": rest[train], "dev": rest[dev], "test": parts[fold]}
