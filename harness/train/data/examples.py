"""Labelled sentences, and pairs of them: read from tables, and made into what a run trains on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.train.data.corpus import Tokens, corpus
from harness.train.data.directory import existing, read_table
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


Tokenise = Callable[[str], list[str]]


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples before their words are numbers.

    Attributes
    ----------
    sides : tuple of list of tokens
        One entry per input of the model.
    targets : ndarray, shape [S]
    """

    sides: tuple[Sequence[Tokens], ...]
    targets: NDArray[Any]

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.targets)

    def take(self, index: NDArray[np.intp]) -> Examples:
        """Some of them, in the order of the index."""
        return Examples(tuple([side[i] for i in index] for side in self.sides), self.targets[index])


def read_examples(
    path: Path,
    texts: Sequence[str],
    target: str,
    value: Callable[[str], float | None],
    expected: str,
    tokenise: Tokenise,
) -> Examples:
    """Examples of a table.

    Parameters
    ----------
    path : Path
    texts : sequence of str
        Columns of the sentences, one per input of the model.
    target : str
        Column of the target.
    value : callable
        Text of a target to a number; None if it is none.
    expected : str
        What a target has to be, for the error.
    tokenise : callable

    Raises
    ------
    UsageError
        With the line of a target that is none.
    """
    path = existing(path)
    rows = read_table(path, (target, *texts))
    found = []
    for number, row in enumerate(rows, start=2):
        one = value(row[target])
        if one is None:
            raise UsageError(f"{path}:{number}: {target} {row[target]!r}; expected {expected}")
        found.append(one)
    sides = tuple([tokenise(row[column]) for row in rows] for column in texts)
    return Examples(sides, np.array(found))


def read_classes(
    path: Path, texts: Sequence[str], target: str, classes: Sequence[str], tokenise: Tokenise
) -> Examples:
    """Examples of a table whose targets are classes: int64, the place in `classes`."""
    numbers = {name: number for number, name in enumerate(classes)}
    found = read_examples(path, texts, target, numbers.get, ", ".join(classes), tokenise)
    return Examples(found.sides, found.targets.astype(np.int64))


def assemble(
    parts: Mapping[str, Examples],
    outputs: int,
    tokenise: Tokenise,
    vectors: str,
    directory: Path | None,
    seed: int,
    word_width: int,
) -> Data:
    """What a run trains on: the vocabulary is that of train, vectors are looked up for all.

    Parameters
    ----------
    parts : mapping
        ``train``, ``dev`` and ``test``.
    outputs : int
        Classes or degrees.
    tokenise : callable
        As the corpus was treated, for sentences given later.
    vectors, directory, seed, word_width
        See `corpus`.
    """
    train, *rest = (parts[name] for name in ("train", "dev", "test"))
    words = corpus(
        [s for side in train.sides for s in side],
        [s for part in rest for side in part.sides for s in side],
        vectors,
        directory,
        seed,
        word_width,
    )

    def split(part: Examples) -> Split:
        return Split(tuple([words.encode(t) for t in side] for side in part.sides), part.targets)

    return Data(
        train=split(parts["train"]),
        dev=split(parts["dev"]),
        test=split(parts["test"]),
        width=words.embedding.shape[1],
        outputs=outputs,
        embedding=words.embedding,
        coverage=words.coverage,
        encode=lambda text: words.encode(tokenise(text)),
        tokenise=tokenise,
    )
