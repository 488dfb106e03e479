"""Labelled sentences, and pairs of them: read from tables, and made into what a run trains on."""

from __future__ import annotations

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
        vectors, directory, seed, word_width,
    )  # fmt: skip

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
