"""Word vectors: finding their file, reading it, finding a word; and the vocabulary around them."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.train.data.directory import VARIABLE, combined, digest_of, lines_of

NO_VECTORS = "none"
"""``--vectors none``: all words start from random vectors."""
AMONG = "&"
"""``first&second``: the first table's vectors of the words that the second has too."""

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
Line = tuple[int, bytes]
"""Number of a line, and the line without its end."""
Table = tuple[list[str], NDArray[np.float32], bool]
"""Words, their rows, and whether the file has capitals."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """A table of word vectors."""

    name: str  # the file's name without its endings, such as ``glove.840B.300d``.
    rows: Mapping[str, int]  # row of each word, in the order of the matrix
    matrix: NDArray[np.float32]  # float32 [V, d]
    cased: bool  # whether the file has words with capital letters
    # Short hash of the file's whole content, as of `directory.digest_of`; it depends neither on
    # compression nor on which rows were kept.
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
        forms = _forms(word) if self.cased else (word.lower(),)
        return next((self.rows[form] for form in forms if form in self.rows), None)

    def folded(self, word: str) -> str:
        """The word in the form in which this table tells words apart."""
        return word if self.cased else word.lower()


def _forms(word: str) -> tuple[str, str, str]:
    return word, word.lower(), word.capitalize()


def no_vectors(width: int) -> Vectors:
    """A table in which no word is found."""
    return Vectors(NO_VECTORS, {}, np.zeros((0, width), np.float32), False, "")


def vectors_digest(given: str, directory: Path | None = None) -> str:
    """`Vectors.digest` of the file that `read_vectors` would read, without reading vectors."""
    return digest_of(_tables(given, directory))


def canonical(given: str, directory: Path | None = None) -> str:
    """One name for one table: its full name, or the whole path of another file; of two, both."""
    paths = [path.resolve() for path in _tables(given, directory)]
    folder = None if directory is None else (directory / "glove").resolve()
    return AMONG.join(_name(path) if path.parent == folder else str(path) for path in paths)


def _tables(given: str, directory: Path | None) -> list[Path]:
    """The file of a table, or those of ``first&second``; a file's own name may be such a one."""
    parts = [given] if Path(given).is_file() else given.split(AMONG)
    return [_located(part, directory) for part in parts]


def _name(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    return name.removesuffix(Path(name).suffix) if name.endswith((".tsv", ".txt", ".vec")) else name


def _located(given: str, directory: Path | None) -> Path:
    """The table of that name, or of the only name that goes on with ``_``; else the path."""
    tables: dict[str, Path] = {}
    if directory is not None:
        tables = {_name(path): path for path in sorted((directory / "glove").glob("*.tsv*"))}
    longer = [name for name in tables if name.startswith(given + "_")]
    names = [given] if given in tables else longer
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


def read_vectors(
    given: str, directory: Path | None = None, needed: Collection[str] | None = None
) -> Vectors:
    r"""Read word vectors, plain or gzip, in one of these formats.

    - ``word v1 ... vd``, separated by single spaces, as GloVe writes it. Words may hold spaces;
      the first line, whose word may not, tells d. Before it a line ``count d`` may stand, as
      word2vec writes it.
    - ``word\tv``: the same after a first line with these names, with a tab after the word.
    - ``word\tscale\tq``: vector = q scale / 127 with q integers of 8 bits. The components of these
      vectors have large common means, so the mean over all words of the file is subtracted.

    Of a word that stands twice the first row counts.

    Parameters
    ----------
    given : str
        A file, or the name of a table in the folder ``glove`` of the data directory, such as
        ``top10k_100d`` or ``sick_840B_300d``; ``top10k_100d&sick_840B_300d`` is the first without
        the words that the second has not.
    directory : Path, optional
        The data directory.
    needed : collection of str, optional
        Keep only rows that one of these words can find, so that the file never stands in memory.

    Raises
    ------
    UsageError
        If there is no such file or table, it can't be read, is empty or cut short, or a line is
        not of the format.
    """
    path, *others = _tables(given, directory)
    found, content = _read(path, needed)
    contents = [content]
    for other in others:
        second, content = _read(other, found.rows)
        contents.append(content)
        kept = {w: row for w, row in found.rows.items() if second.find(w) is not None}
        found = replace(
            found,
            name=f"{found.name}{AMONG}{second.name}",
            rows={word: row for row, word in enumerate(kept)},
            matrix=found.matrix[list(kept.values())],
        )
    return replace(found, digest=combined(contents))


def _read(path: Path, needed: Collection[str] | None) -> tuple[Vectors, bytes]:
    """The table of a file, without its digest; and the SHA-256 of its content."""
    hashed = hashlib.sha256()
    lines = _hashed_lines(path, hashed)
    first = next(lines, None)
    if first is None:
        raise UsageError(f"{path} is empty; expected lines 'word v1 ... vd'")
    if first[1].startswith(b"PK\x03\x04"):
        raise UsageError(f"{path} is a zip archive; unzip it and give the file inside")
    forms = None if needed is None else {form for word in needed for form in _forms(word)}
    if first[1] == b"word\tscale\tq":
        words, matrix, cased = _quantised(path, lines, forms)
    else:
        if first[1] == b"word\tv":
            lines = ((number, line.replace(b"\t", b" ", 1)) for number, line in lines)
        else:
            lines = chain([first], lines)
        words, matrix, cased = _plain(path, lines, forms)
    rows = {word: row for row, word in enumerate(words)}
    return Vectors(_name(path), rows, matrix, cased, ""), hashed.digest()


def _hashed_lines(path: Path, hashed: hashlib._Hash) -> Iterator[Line]:
    """Lines that hold something; ends of lines of any system, and a space before them, go."""
    for number, line in enumerate(lines_of(path), start=1):
        hashed.update(line)
        stripped = line.rstrip(b" \r\n")
        if stripped:
            yield number, stripped


def _plain(path: Path, lines: Iterable[Line], forms: set[str] | None) -> Table:
    """Of ``word v1 ... vd``."""
    lines = iter(lines)
    number, line = next(lines, (2, b""))
    fields = line.split(b" ")
    announced = None
    if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit():
        announced, width = int(fields[0]), int(fields[1])
    else:
        width = len(fields) - 1
        lines = chain([(number, line)], lines)
    if width < 1:
        raise _error(path, number, "no components", "word v1 ... vd")

    # Most of a large file is skipped by a look at the first piece of the word.
    heads = None if forms is None else {form.split(" ", 1)[0].encode() for form in forms}
    kept: dict[str, NDArray[np.float32]] = {}
    count, cased = 0, False
    for number, line in lines:
        count += 1
        head = line.split(b" ", 1)[0]
        cased = cased or head != head.lower()
        if heads is not None and head not in heads and line.count(b" ") == width:
            continue
        raw, vector = _row(path, number, line, width)
        if heads is not None and head not in heads:
            continue
        word = _word(path, number, raw)
        if word not in kept and (forms is None or word in forms):
            kept[word] = vector
    if announced not in (None, count):
        raise UsageError(
            f"{path}:1: announces {announced} words, {count} follow; copy the file again"
        )
    matrix = np.array(list(kept.values()), dtype=np.float32).reshape(len(kept), width)
    return list(kept), matrix, cased


def _row(path: Path, number: int, line: bytes, width: int) -> tuple[bytes, NDArray[np.float32]]:
    """Word and vector of a line; the word is what is left of the last `width` pieces."""
    word, *pieces = line.rsplit(b" ", width)
    given, last = len(pieces), word.rpartition(b" ")[2]
    if b" " in word and (not last or _is_number(last)):
        given = line.count(b" ")
    if given != width:
        raise _error(path, number, f"{given} components", f"{width}, as in the first line")
    return word, _numbers(path, number, pieces, np.float32)


def _quantised(path: Path, lines: Iterable[Line], forms: set[str] | None) -> Table:
    """Of ``word scale q``, the rows centred."""
    rows: dict[str, NDArray[np.float64]] = {}
    width, cased = None, False
    for number, line in lines:
        fields = line.split(b"\t")
        if len(fields) != 3:
            raise _error(path, number, f"{len(fields)} fields", "word scale q, separated by tabs")
        integers = _numbers(path, number, fields[2].split(b" "), np.int8)
        width = width or len(integers)
        if len(integers) != width:
            raise _error(path, number, f"{len(integers)} components", f"{width}, as before")
        scale = _numbers(path, number, [fields[1]], np.float64)
        cased = cased or fields[0] != fields[0].lower()
        rows.setdefault(_word(path, number, fields[0]), integers * scale / 127)
    if not rows:
        raise UsageError(f"{path}:2: no words; expected lines 'word scale q'")
    matrix = np.stack(list(rows.values()))
    matrix -= matrix.mean(axis=0)
    kept = [place for place, word in enumerate(rows) if forms is None or word in forms]
    words = list(rows)
    return [words[place] for place in kept], matrix[kept].astype(np.float32), cased


def _numbers(path: Path, number: int, pieces: list[bytes], kind: type) -> NDArray[Any]:
    """Array of the pieces; integers for np.int8, else finite floats."""
    convert, expected = (
        (int, "integers of 8 bits") if kind is np.int8 else (float, "finite numbers")
    )
    try:
        values = np.array([convert(piece) for piece in pieces])
        with np.errstate(over="ignore"):
            array: NDArray[Any] = values.astype(kind)
        if not np.isfinite(array).all() or (kind is np.int8 and (array != values).any()):
            raise ValueError
    except (ValueError, OverflowError):
        culprit = next((p for p in pieces if not _is_number(p)), b" ".join(pieces))
        text = shortened(culprit.decode(errors="replace"))
        raise _error(path, number, f"{text} among the components", expected) from None
    return array


def _is_number(piece: bytes) -> bool:
    try:
        return math.isfinite(float(piece))
    except ValueError:
        return False


def _word(path: Path, number: int, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _error(path, number, f"the word {shortened(raw)}", "UTF-8") from None


def _error(path: Path, number: int, given: str, expected: str) -> UsageError:
    return UsageError(
        f"{path}:{number}: {given}; expected {expected}; correct the line or copy the file again"
    )


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Which row of the embedding table a word has; made by `build`."""

    # Word of each row from `SPECIAL` on: those with a vector in the order of their table, then
    # those of the training data without one, sorted.
    words: tuple[str, ...]
    vectors: Vectors
    own: Mapping[str, int]  # row of each training word without a vector

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
    """How many words of a corpus have a vector."""

    vectors: str  # name of the vectors
    # vocabulary, covered: distinct words (lower-cased first, where the vectors are), and those with
    # a vector.
    vocabulary: int
    covered: int
    running_words: int  # running_words, covered_running: the same for every occurrence
    covered_running: int


def coverage(sentences: Iterable[Tokens], vectors: Vectors) -> Coverage:
    """Coverage of sentences by vectors."""
    counts = Counter(vectors.folded(token) for sentence in sentences for token in sentence)
    found = [count for word, count in counts.items() if vectors.find(word) is not None]
    return Coverage(vectors.name, len(counts), len(found), counts.total(), sum(found))
