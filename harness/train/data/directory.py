"""The folder of corpora: where it is, its tables, and what identifies their contents."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from reprlib import repr as shortened

from harness.errors import UsageError

VARIABLE = "ATTNBENCH_DATA"
"""Environment variable that names the data directory where ``--data`` is not given."""

LAYOUT = "DIR/trec/train.tsv.gz (columns coarse fine text) and so on; see docs/data.md"


def data_directory(given: str | None) -> Path:
    """Folder that holds the corpora.

    Parameters
    ----------
    given : str, optional
        What ``--data`` says; without it the environment variable `VARIABLE` counts.

    Raises
    ------
    UsageError
        If neither names a folder, or the folder is not there.
    """
    name = os.environ.get(VARIABLE, "") if given is None else given
    if given is None and not name:
        raise UsageError(
            f"this needs a data directory: set --data DIR or {VARIABLE} to a folder laid out like "
            f"{LAYOUT}"
        )
    folder = Path(name)
    if not name or not folder.is_dir():  # Path("") would be the current folder
        raise UsageError(
            f"{VARIABLE if given is None else '--data'} says {name!r}, which is no folder; "
            f"give one laid out like {LAYOUT}"
        )
    return folder


def read_table(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    r"""Rows of a tab-separated table in UTF-8, without quoting; lines end in ``\n`` only.

    Parameters
    ----------
    path : Path
        For example ``DIR/trec/train.tsv.gz``; ``train.tsv`` beside it will do as well.
    columns : sequence of str
        The columns to return. The first line of the file has to name them; it may name others.

    Returns
    -------
    list of dict
        One per line after the first, in the order of the file.

    Raises
    ------
    UsageError
        If the file is missing, is no whole gzip file or no UTF-8, lacks a column, or a line has
        more or fewer fields than the first.
    """
    path = existing(path)
    lines = enumerate(lines_of(path), start=1)
    names = _text(path, *next(lines, (1, b""))).split("\t")
    missing = [column for column in columns if column not in names]
    if missing:
        raise UsageError(
            f"{path}:1: no column {missing[0]!r} among {shortened(names)}; expected a first line "
            f"that names {' '.join(columns)}, separated by tabs"
        )
    rows = []
    for number, line in lines:
        fields = _text(path, number, line).split("\t")
        if len(fields) != len(names):
            raise UsageError(
                f"{path}:{number}: {len(fields)} fields where the first line names {len(names)}; "
                "put one space for every tab and line end inside a text"
            )
        row = dict(zip(names, fields, strict=True))
        rows.append({column: row[column] for column in columns})
    return rows


def corpus_files(folder: Path, files: Sequence[str], supplied: Mapping[str, str]) -> list[Path]:
    """Paths of a task's tables, all of which are there.

    Parameters
    ----------
    folder : Path
        The data directory.
    files : sequence of str
        As ``trec/train.tsv``.
    supplied : mapping
        How the user makes those of them that are not handed on.

    Raises
    ------
    UsageError
        For the first one that is missing; how it is made, where that is known.
    """
    found = []
    for name in files:
        path = folder / f"{name}.gz"
        if name in supplied and there(folder, name) is None:
            raise UsageError(f"no file {path}: {supplied[name].replace('DIR', str(folder))}")
        found.append(existing(path))
    return found


def there(folder: Path, name: str) -> Path | None:
    """The table of that name, such as ``trec/train.tsv``, compressed or not; None without one."""
    paths = (folder / f"{name}.gz", folder / name)
    return next((path for path in paths if path.exists()), None)


def digest_of(paths: Iterable[Path]) -> str:
    """Short SHA-256 of the contents of files, in this order; for the keys of records.

    Contents count as they are after decompression, so ``train.tsv`` and ``train.tsv.gz`` of one
    text agree, whatever the files are called.

    Raises
    ------
    UsageError
        If a file can't be read.
    """
    return combined(content_digest(existing(path)) for path in paths)


def content_digest(path: Path) -> bytes:
    """SHA-256 of what is in a file, after decompression.

    Raises
    ------
    UsageError
        If it can't be read.
    """
    content = hashlib.sha256()
    for line in lines_of(path):
        content.update(line)
    return content.digest()


def combined(parts: Iterable[bytes]) -> str:
    """Short hash of several SHA-256 digests, in this order."""
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def existing(path: Path) -> Path:
    """The path or, where it is not there, its compressed or uncompressed twin.

    Raises
    ------
    UsageError
        If neither is there.
    """
    twin = path.with_suffix("") if path.suffix == ".gz" else path.with_name(path.name + ".gz")
    for candidate in (path, twin):
        if candidate.exists():
            return candidate
    raise UsageError(
        f"no file {path}, nor {twin.name} beside it; copy it there, or name another folder with "
        f"--data or {VARIABLE}"
    )


def lines_of(path: Path) -> Iterator[bytes]:
    r"""Lines of a plain or gzip file, each with its ``\n``, without holding the file in memory.

    Raises
    ------
    UsageError
        If the file can't be read or is no whole gzip file.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            yield from file  # a binary file ends its lines at \n only
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(
            f"{path}: not a whole gzip file ({error}); copy it again, or put it there "
            f"uncompressed as {path.with_suffix('').name}"
        ) from None
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}; give another file") from None


def _text(path: Path, number: int, line: bytes) -> str:
    try:
        return line.removesuffix(b"\n").decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}:{number}: not UTF-8 (byte {line[error.start]:#04x} in position "
            f"{error.start}); convert the file to UTF-8"
        ) from None
