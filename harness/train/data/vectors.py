"""Word vectors: finding a word, the share of a corpus they cover, the embedding table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.train.data import vector_files
from harness.train.data.directory import VARIABLE, digest_of

PADDING = 0
"""Row of the embedding table that stands for no word; all zeros."""
UNKNOWN = 1
"""Row for every word that is not in the vocabulary."""
SPECIAL = 2
"""Number of these rows, and so the row of the first word."""

UNIFORM = 0.05
"""Words without a vector start from the uniform distribution on (-0.05, 0.05)."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """A table of word vectors.

    Attributes
    ----------
    name : str
        The file's name without its endings, such as ``glove.840B.300d``.
    rows : mapping
        Row of each word, in the order of the matrix.
    matrix : float32 [V, d]
    cased : bool
        Whether the file has words with capital letters.
    centred : bool
        Whether the mean over all rows of the file was subtracted.
    digest : str
        Short hash of the file's whole content, as of `directory.digest_of`; it depends neither on
        compression nor on which rows were kept.
    """

    name: str
    rows: Mapping[str, int]
    matrix: NDArray[np.float32]
    cased: bool
    centred: bool
    digest: str

    @property
    def width(self) -> int:
        """Components of a vector, d."""
        return int(self.matrix.shape[1])

    def find(self, word: str) -> int | None:
        """Row of the word, or None.

        A table of lower-case words is asked for the lower-cased word; a cased one for the word as
        it is, then lower-cased, then capitalised.
        """
        forms = (word, word.lower(), word.capitalize()) if self.cased else (word.lower(),)
        return next((self.rows[form] for form in forms if form in self.rows), None)

    def folded(self, word: str) -> str:
        """The word in the form in which this table tells words apart."""
        return word if self.cased else word.lower()


def read_vectors(
    given: str, directory: Path | None = None, needed: Collection[str] | None = None
) -> Vectors:
    """Read word vectors.

    Parameters
    ----------
    given : str
        A file in a format of `vector_files.read`, or the name of a table in the folder ``glove``
        of the data directory, such as ``top10k_100d`` or ``sick_840B_300d``.
    directory : Path, optional
        The data directory.
    needed : collection of str, optional
        Keep only rows that one of these words can find, so that the file never stands in memory.

    Raises
    ------
    UsageError
        If there is no such file or table, or its content is not what it should be.
    """
    path = _located(given, directory)
    content = vector_files.read(path, needed)
    rows = {word: row for row, word in enumerate(content.words)}
    return Vectors(
        _name(path), rows, content.matrix, content.cased, content.centred, content.digest
    )


def vectors_digest(given: str, directory: Path | None = None) -> str:
    """`Vectors.digest` of the file that `read_vectors` would read, without reading vectors."""
    return digest_of([_located(given, directory)])


def canonical(given: str, directory: Path | None = None) -> str:
    """One name for one table: its full name, or the whole path of another file."""
    path = _located(given, directory).resolve()
    inside = directory is not None and path.parent == (directory / "glove").resolve()
    return _name(path) if inside else str(path)


def _name(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    return name.removesuffix(Path(name).suffix) if name.endswith((".tsv", ".txt", ".vec")) else name


def _located(given: str, directory: Path | None) -> Path:
    """The table of that name, or of the only name that goes on with ``_``; else the path."""
    tables: dict[str, Path] = {}
    if directory is not None:
        tables = {_name(path): path for path in sorted((directory / "glove").glob("*.tsv*"))}
    names = (
        [given] if given in tables else [name for name in tables if name.startswith(given + "_")]
    )
    if len(names) == 1:
        return tables[names[0]]
    path = Path(given)
    if path.is_file():
        return path
    if directory is None:
        there = f"set --data or {VARIABLE} to choose a table there by its name"
    else:
        there = f"tables in {directory / 'glove'}: {', '.join(tables) or 'none'}"
    raise UsageError(
        f"no word vectors {given!r}; give a table's name, a GloVe-format file, or none ({there})"
    )


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

    @property
    def share(self) -> float:
        """Share of the vocabulary with a vector; 0 for an empty corpus."""
        return self.covered / max(self.vocabulary, 1)

    @property
    def running_share(self) -> float:
        """Share of the running words with a vector; 0 for an empty corpus."""
        return self.covered_running / max(self.running_words, 1)

    def __str__(self) -> str:
        return (
            f"vectors {self.vectors} cover {100 * self.share:.1f} % of {self.vocabulary:,} words, "
            f"{100 * self.running_share:.1f} % of {self.running_words:,} running words"
        )


def coverage(sentences: Iterable[Sequence[str]], vectors: Vectors) -> Coverage:
    """Coverage of sentences (tokens) by vectors."""
    counts = Counter(vectors.folded(token) for sentence in sentences for token in sentence)
    found = [count for word, count in counts.items() if vectors.find(word) is not None]
    return Coverage(vectors.name, len(counts), len(found), counts.total(), sum(found))


def embedding_table(
    words: Sequence[str], vectors: Vectors | None, seed: int, width: int
) -> NDArray[np.float32]:
    """Initial values of an embedding.

    Parameters
    ----------
    words : sequence of str
        `Vocabulary.words`.
    vectors : Vectors, optional
        Without any, all words get random rows.
    seed : int
        A random row depends on the seed, the width and its place only, not on the vectors.
    width : int
        Components d.

    Returns
    -------
    float32 [SPECIAL + len(words), d]
        Row `PADDING` is zero; row `UNKNOWN` and those of words without a vector are drawn from
        U(-`UNIFORM`, `UNIFORM`); the others are their vectors.

    Raises
    ------
    UsageError
        If the vectors have another width.
    """
    if vectors is not None and vectors.width != width:
        raise UsageError(
            f"vectors {vectors.name} have {vectors.width} components, the embedding {width}; give "
            "other vectors, or this width"
        )
    shape = (SPECIAL + len(words), width)
    table = np.random.default_rng(seed).uniform(-UNIFORM, UNIFORM, shape).astype(np.float32)
    table[PADDING] = 0
    if vectors is not None:
        for row, word in enumerate(words, start=SPECIAL):
            source = vectors.find(word)
            if source is not None:
                table[row] = vectors.matrix[source]
    return table
