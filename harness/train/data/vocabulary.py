"""From tokens to word ids: the vocabulary, its embedding, the share that word vectors cover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.train.data.vectors import Vectors

PADDING = 0
"""Row of the embedding table that stands for no word; all zeros."""
UNKNOWN = 1
"""Row for every word that is not in the vocabulary."""
SPECIAL = 2
"""Number of these rows, and so the row of the first word."""

UNIFORM = 0.05
"""Words without a vector start from the uniform distribution on (-0.05, 0.05)."""
LEAST_COUNT = 2
"""Words without a vector get a row of their own from this count in train on; the rarer ones share
the row of unknown words, which is trained by them."""

Tokens = Sequence[str]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Which row of the embedding table a word has; made by `build`.

    Attributes
    ----------
    words : tuple of str
        Word of each row from `SPECIAL` on: those with a vector in the order of their table, then
        those of the training data without one, sorted.
    vectors : Vectors
    own : mapping
        Row of each training word without a vector.
    """

    words: tuple[str, ...]
    vectors: Vectors
    own: Mapping[str, int]

    @classmethod
    def build(cls, sentences: Iterable[Tokens], vectors: Vectors) -> Vocabulary:
        """Vocabulary of training sentences and of the words that have a vector."""
        counts = Counter(
            vectors.folded(token)
            for sentence in sentences
            for token in sentence
            if vectors.find(token) is None
        )
        without = sorted(word for word, count in counts.items() if count >= LEAST_COUNT)
        own = {word: row for row, word in enumerate(without, start=SPECIAL + len(vectors.rows))}
        return cls((*vectors.rows, *without), vectors, own)

    def index(self, word: str) -> int:
        """Row of the word; `UNKNOWN` if it has no vector and no row of its own."""
        row = self.vectors.find(word)
        return self.own.get(self.vectors.folded(word), UNKNOWN) if row is None else SPECIAL + row

    def encode(self, tokens: Tokens) -> list[int]:
        """Rows of the tokens; never that of padding."""
        return [self.index(token) for token in tokens]

    def embedding(self, seed: int) -> NDArray[np.float32]:
        """Initial values of the embedding, [SPECIAL + len(words), width].

        Row `PADDING` is zero; row `UNKNOWN` and those of words without a vector are drawn from
        U(-`UNIFORM`, `UNIFORM`); the others are their vectors. A random row depends on the seed,
        the width and its place only, not on the vectors.
        """
        shape = (SPECIAL + len(self.words), self.vectors.width)
        table = np.random.default_rng(seed).uniform(-UNIFORM, UNIFORM, shape).astype(np.float32)
        table[PADDING] = 0
        table[SPECIAL : SPECIAL + len(self.vectors.rows)] = self.vectors.matrix
        return table


@dataclass(frozen=True)
class Coverage:
    """How many words of a corpus have a vector.

    Attributes
    ----------
    vectors : str
        Name of the vectors.
    vocabulary, covered : int
        Distinct words (lower-cased first, where the vectors are), and those with a vector.
    running_words, covered_running : int
        The same for every occurrence.
    """

    vectors: str
    vocabulary: int
    covered: int
    running_words: int
    covered_running: int


def coverage(sentences: Iterable[Tokens], vectors: Vectors) -> Coverage:
    """Coverage of sentences by vectors."""
    counts = Counter(vectors.folded(token) for sentence in sentences for token in sentence)
    found = [count for word, count in counts.items() if vectors.find(word) is not None]
    return Coverage(vectors.name, len(counts), len(found), counts.total(), sum(found))
