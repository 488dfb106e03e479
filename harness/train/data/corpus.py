"""From texts to word ids, initial vectors and the share of the words that these cover."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.train.data.vectors import (
    SPECIAL,
    UNKNOWN,
    Coverage,
    Vectors,
    coverage,
    embedding_table,
    read_vectors,
)

_PIECES = re.compile(
    r"""\w+(?:-\w+)*?(?=n't\b)     # what "n't" is attached to: do|n't, ca|n't
      | n't\b
      | '(?:s|re|ve|ll|d|m)\b      # the other clitics of English
      | \w+(?:-\w+)*               # a word, with hyphens inside
      | [^\w\s]                    # a mark of punctuation
    """,
    re.VERBOSE | re.IGNORECASE,
)


def tokens_whitespace(text: str) -> list[str]:
    """Tokens of a text that is tokenised already: the pieces between white space."""
    return text.split()


def tokens_raw(text: str) -> list[str]:
    """Tokens of raw English text, such as SICK's.

    Words keep their case and their inner hyphens; the clitics n't, 's, 're, 've, 'll, 'd, 'm are
    tokens of their own, and so is every mark of punctuation. A typographic apostrophe counts as
    a plain one. Nothing but white space is lost, and tokens joined by spaces give the same tokens.

    Examples
    --------
    >>> tokens_raw("The man's T-shirt isn't dry, is it?")
    ['The', 'man', "'s", 'T-shirt', 'is', "n't", 'dry', ',', 'is', 'it', '?']
    """
    return _PIECES.findall(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Which row of the embedding table a word has; made by `build`.

    Attributes
    ----------
    words : tuple of str
        Word of each row from `SPECIAL` on: those with a vector in the order of their table, then
        those of the training data without one, sorted.
    vectors : Vectors, optional
        The word vectors. Without any, words are lower-cased.
    own : mapping
        Row of each training word without a vector.
    """

    words: tuple[str, ...]
    vectors: Vectors | None
    own: Mapping[str, int]

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], vectors: Vectors | None) -> Vocabulary:
        """Vocabulary of training sentences (tokens) and of the words that have a vector."""
        with_vector = tuple(vectors.rows) if vectors else ()
        without = sorted(
            {
                _folded(token, vectors)
                for sentence in sentences
                for token in sentence
                if vectors is None or vectors.find(token) is None
            }
        )
        own = {word: row for row, word in enumerate(without, start=SPECIAL + len(with_vector))}
        return cls((*with_vector, *without), vectors, own)

    def __len__(self) -> int:
        """Rows of the embedding table, those of padding and unknown words included."""
        return SPECIAL + len(self.words)

    def index(self, word: str) -> int:
        """Row of the word; `UNKNOWN` if it has no vector and was not in the training data."""
        row = self.vectors.find(word) if self.vectors else None
        if row is not None:
            return SPECIAL + row
        return self.own.get(_folded(word, self.vectors), UNKNOWN)

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """Rows of the tokens; never that of padding."""
        return [self.index(token) for token in tokens]


def _folded(word: str, vectors: Vectors | None) -> str:
    return word.lower() if vectors is None else vectors.folded(word)


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
