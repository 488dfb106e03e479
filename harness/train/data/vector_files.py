"""Files of word vectors: GloVe's text format, word2vec's, and the tables of the data directory."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.train.data.directory import combined, lines_of

Line = tuple[int, bytes]
"""Number of a line, and the line without its end."""


@dataclass(frozen=True, eq=False)
class Content:
    """What a file holds: words and their rows, float32 [V, d]; see `vectors.Vectors`."""

    words: tuple[str, ...]
    matrix: NDArray[np.float32]
    cased: bool
    centred: bool
    digest: str


def read(path: Path, needed: Collection[str] | None = None) -> Content:
    r"""Read a file of word vectors, plain or gzip, in one of these formats.

    - ``word v1 ... vd``, separated by single spaces, as GloVe writes it. Words may hold spaces;
      the first line, whose word may not, tells d. Before it a line ``count d`` may stand, as
      word2vec writes it.
    - ``word\tv``: the same after a first line with these names, with a tab after the word.
    - ``word\tscale\tq``: vector = q scale / 127 with q integers of 8 bits. The components of these
      vectors have large common means, so the mean over all words of the file is subtracted.

    Of a word that stands twice the first row counts.

    Parameters
    ----------
    path : Path
    needed : collection of str, optional
        Keep only the rows of these words, as they are, lower-cased or capitalised.

    Raises
    ------
    UsageError
        If the file can't be read, is empty or cut short, or a line is not of the format.
    """
    hashed = hashlib.sha256()
    lines = _hashed_lines(path, hashed)
    first = next(lines, None)
    if first is None:
        raise UsageError(f"{path} is empty; expected lines 'word v1 ... vd'")
    if first[1].startswith(b"PK\x03\x04"):
        raise UsageError(f"{path} is a zip archive; unzip it and give the file inside")
    forms = None if needed is None else {f for w in needed for f in (w, w.lower(), w.capitalize())}
    if first[1] == b"word\tscale\tq":
        words, matrix, cased = _quantised(path, lines, forms)
        centred = True
    else:
        if first[1] == b"word\tv":
            lines = ((number, line.replace(b"\t", b" ", 1)) for number, line in lines)
        else:
            lines = chain([first], lines)
        words, matrix, cased = _plain(path, lines, forms)
        centred = False
    return Content(tuple(words), matrix, cased, centred, combined([hashed.digest()]))


def _hashed_lines(path: Path, hashed: hashlib._Hash) -> Iterator[Line]:
    """Lines that hold something; ends of lines of any system, and a space before them, go."""
    for number, line in enumerate(lines_of(path), start=1):
        hashed.update(line)
        stripped = line.rstrip(b" \r\n")
        if stripped:
            yield number, stripped


def _plain(
    path: Path, lines: Iterable[Line], forms: set[str] | None
) -> tuple[list[str], NDArray[np.float32], bool]:
    """Words, rows, and whether there are capitals, of ``word v1 ... vd``."""
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


def _quantised(
    path: Path, lines: Iterable[Line], forms: set[str] | None
) -> tuple[list[str], NDArray[np.float32], bool]:
    """Words, centred rows, and whether there are capitals, of ``word scale q``."""
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
