"""From the sentences of a corpus to word ids, initial vectors and the share they cover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.train.data.text import Vocabulary
from harness.train.data.vectors import Coverage, coverage, embedding_table, read_vectors

NO_VECTORS = "none"
"""``--vectors none``: all words start from random vectors."""
LEAST_COUNT = 2
"""Words without a vector get a row of their own from this count in train on; the rarer ones share
the row of unknown words, which is trained by them."""

Tokens = Sequence[str]


@dataclass(frozen=True)
class Corpus:
    """Encoder of a corpus.

    Attributes
    ----------
    encode : callable
        Tokens to word ids.
    embedding : float32 [V, d]
        Row 0 padding, row 1 unknown words.
    coverage : Coverage or None
        Over all splits; None without vectors.
    """

    encode: Callable[[Tokens], list[int]]
    embedding: NDArray[np.float32]
    coverage: Coverage | None


def corpus(
    train: Sequence[Tokens],
    rest: Sequence[Tokens],
    vectors: str,
    directory: Path | None,
    seed: int,
    word_width: int,
) -> Corpus:
    """Vocabulary and vectors of a corpus.

    Parameters
    ----------
    train, rest : sequence of tokens
        Sentences of the training split, and of the others (only looked up in the vectors).
    vectors : str
        A file, a table of the data directory, or ``none``.
    seed : int
        Of the random rows.
    word_width : int
        Components of a vector where there are no vectors.
    """
    everything = [*train, *rest]
    table = None
    if vectors != NO_VECTORS:
        table = read_vectors(vectors, directory, {word for s in everything for word in s})
    fold = str.lower if table is None else table.folded
    counts = Counter(fold(word) for sentence in train for word in sentence)
    frequent = [[w for w in sentence if counts[fold(w)] >= LEAST_COUNT] for sentence in train]
    vocabulary = Vocabulary.build(frequent, table)
    return Corpus(
        encode=vocabulary.encode,
        embedding=embedding_table(
            vocabulary.words, table, seed, word_width if table is None else table.width
        ),
        coverage=None if table is None else coverage(everything, table),
    )
