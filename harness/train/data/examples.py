"""From labelled texts to what a run trains on: splits, word ids, embedding."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.train.data.vectors import (
    NO_VECTORS,
    Tokens,
    Vocabulary,
    coverage,
    no_vectors,
    read_vectors,
)
from harness.train.task import Data, Split

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


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples before their words are numbers."""

    sides: Sequence[Sequence[Tokens]]  # one entry per input of the model
    targets: NDArray[Any]  # ndarray, shape [S]

    def take(self, index: Index) -> Examples:
        """Some of them, in the order of the index."""
        return Examples([[side[i] for i in index] for side in self.sides], self.targets[index])

    def texts(self) -> list[tuple[tuple[str, ...], ...]]:
        """The words of each example, side by side."""
        return [tuple(map(tuple, sides)) for sides in zip(*self.sides, strict=True)]


@dataclass(frozen=True, eq=False)
class Splits:
    """Train, dev and test."""

    train: Examples
    dev: Examples
    test: Examples
    items: Index  # ndarray of int, shape [S]: places of the test examples in their table
    # ndarray of bool, shape [S]: whether the text of a test example stands in the training table
    # too: whatever of it is dev.
    seen: NDArray[np.bool_]


def in_splits(
    tables: Sequence[Examples], folds: int, fold: int | None, seed: int, last: int = 0
) -> Splits:
    """Three tables as they are; of two the first in train and dev; one in folds.

    Parameters
    ----------
    last : int
        Of two tables, how many examples at the end of the first are dev; 0: a tenth, drawn.
    """
    first, *others = tables
    if not others:
        assert fold is not None
        index = cross_validated(len(first.targets), folds, fold, seed)
        train, dev, test = (first.take(index[name]) for name in ("train", "dev", "test"))
        items = index["test"]
    else:
        test, items = others[-1], np.arange(len(others[-1].targets))
        train, dev = first, others[0]
        if len(tables) == 2:
            kept, held = held_out(len(first.targets), seed)
            if last:
                kept, held = np.split(np.arange(len(first.targets)), [-last])
            train, dev = first.take(kept), first.take(held)
    trained = set(train.texts()) | (set(dev.texts()) if len(tables) < 3 else set())
    seen = np.array([text in trained for text in test.texts()], dtype=bool)
    return Splits(train, dev, test, items, seen)


def assemble(
    splits: Splits,
    outputs: int,
    tokenise: Callable[[str], list[str]],
    vectors: str,
    directory: Path,
    seed: int,
    word_width: int,
) -> Data:
    """What a run trains on: the vocabulary is that of train, vectors are looked up for all.

    Parameters
    ----------
    splits : Splits
    outputs : int
        Classes or degrees.
    tokenise : callable
        As the corpus was treated, for sentences given later.
    vectors, directory, seed, word_width
        See `harness.train.task.load`.
    """
    parts = splits.train, splits.dev, splits.test
    sentences = [[tokens for side in part.sides for tokens in side] for part in parts]
    everything = [tokens for part in sentences for tokens in part]
    if vectors == NO_VECTORS:
        table = no_vectors(word_width)
    else:
        table = read_vectors(vectors, directory, {word for s in everything for word in s})
    words = Vocabulary.build(sentences[0], table)
    train, dev, test = (
        Split(tuple([words.encode(t) for t in side] for side in part.sides), part.targets)
        for part in parts
    )
    return Data(
        train=train,
        dev=dev,
        test=test,
        width=table.width,
        outputs=outputs,
        embedding=words.embedding(seed),
        coverage=None if vectors == NO_VECTORS else coverage(everything, table),
        encode=lambda text: words.encode(tokenise(text)),
        tokenise=tokenise,
        test_items=splits.items,
        seen=splits.seen,
    )
