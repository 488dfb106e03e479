"""The corpora that are known: sources, licences, files and their checksums; and is a copy right?"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from harness.errors import UsageError
from harness.train.data.directory import (
    combined,
    content_digest,
    corpus_files,
    digest_of,
    lines_of,
    there,
)
from harness.train.task import Task, tasks

PATH = Path(__file__).with_name("corpora.toml")


@dataclass(frozen=True)
class CorpusFile:
    """One table of a corpus."""

    name: str  # below the data directory, without the ending of compression
    rows: int  # rows, bytes: examples; size of the compressed file
    bytes: int
    columns: tuple[str, ...]
    # sha256, content: of the compressed file as it is handed on, and of what is in it. A copy is
    # right if its content is, whoever compressed it.
    sha256: str
    content: str


@dataclass(frozen=True)
class HubSource:
    """A data set of the public hub, or text files below an address, at one revision."""

    # repository, revision: the name of a data set, or an address, below which are a revision's
    # files.
    repository: str
    revision: str
    files: Mapping[str, str]  # file of each split
    # The same examples in another text: it is cut here, and only their numbers can be checked.
    raw: bool = False


@dataclass(frozen=True)
class KnownCorpus:
    """A corpus: what it is, where it comes from, its files."""

    name: str
    what: str
    licence: str
    source: str
    original: str
    note: str
    files: tuple[CorpusFile, ...]
    hub: HubSource | None = None  # from which the same rows can be made
    # Examples of the files that the user makes, by name; of these nothing else can be checked.
    yours: Mapping[str, int] = field(default_factory=dict)


@cache
def corpora() -> Mapping[str, KnownCorpus]:
    """All known corpora by name."""
    found = {}
    for name, entry in tomllib.loads(PATH.read_text(encoding="utf-8")).items():
        for file in entry["files"]:
            file["columns"] = tuple(file["columns"].split())
        entry["files"] = tuple(CorpusFile(**file) for file in entry["files"])
        if "hub" in entry:
            entry["hub"] = HubSource(**entry["hub"])
        found[name] = KnownCorpus(name=name, **entry)
    return MappingProxyType(found)


def listed_files() -> Mapping[str, CorpusFile]:
    """The files of all corpora by name."""
    return {file.name: file for corpus in corpora().values() for file in corpus.files}


def corpus_named(name: str) -> KnownCorpus:
    """The corpus of that name.

    Raises
    ------
    UsageError
        Naming all of them.
    """
    if name not in corpora():
        raise UsageError(f"unknown corpus {name!r}; there are {', '.join(corpora())}")
    return corpora()[name]


def tasks_of(corpus: str) -> list[str]:
    """Names of the tasks that read a corpus, or take its word vectors unless told otherwise."""
    return [
        task.name
        for task in tasks().values()
        if any(name.partition("/")[0] == corpus for name in task.files)
        or (corpus == "glove" and task.vectors)
    ]


def supplied() -> Mapping[str, str]:
    """Files that the user makes, and how."""
    return {name: how for task in tasks().values() for name, how in task.supplied.items()}


@dataclass(frozen=True)
class FileState:
    """What is found of one file in a data directory."""

    name: str
    # {"right", "wrong", "missing", "yours"}: ``yours`` is a file that the user made; it has no
    # checksum.
    status: Literal["right", "wrong", "missing", "yours"]
    detail: str = ""  # what is wrong, or how a missing file is made; empty otherwise


def found_in(folder: Path, file: CorpusFile) -> FileState:
    """Compare the copy of a file in a data directory with what it should be."""
    path = there(folder, file.name)
    if path is None:
        place = folder / file.name
        return FileState(file.name, "missing", f"expected at {place}.gz, or {place.name} there")
    try:
        content = content_digest(path).hex()
    except UsageError as error:
        return FileState(file.name, "wrong", str(error))
    if content == file.content:
        return FileState(file.name, "right")
    return FileState(
        file.name,
        "wrong",
        f"{path}: SHA-256 of its content is {content[:16]}..., expected "
        f"{file.content[:16]}...; copy the file again",
    )


def unlike(folder: Path, names: Iterable[str]) -> list[FileState]:
    """Those of some files whose contents are not the listed ones; files that no list knows pass.

    Of those that the user makes the number of examples counts.

    Parameters
    ----------
    folder : Path
        A data directory.
    names : iterable of str
        As ``trec/train.tsv``.
    """
    listed = listed_files()
    found = [
        found_in(folder, listed[name]) if name in listed else _made(folder, name) for name in names
    ]
    return [one for one in found if one.status == "wrong"]


def made_rows() -> Mapping[str, int]:
    """Examples of the files that users make, by name."""
    return {name: rows for one in corpora().values() for name, rows in one.yours.items()}


def _made(folder: Path, name: str) -> FileState:
    """Of a file that the user makes whether it has as many examples as it should."""
    path, wanted = there(folder, name), made_rows().get(name)
    if path is None or wanted is None:
        return FileState(name, "yours" if path else "missing")
    rows = sum(1 for _ in lines_of(path)) - 1
    if rows == wanted:
        return FileState(name, "yours")
    of = name.partition("/")[0].upper()
    detail = f"{path}: {rows:,} examples, expected {wanted:,}; what is trained on it is not {of}"
    return FileState(name, "wrong", detail)


def findings(folder: Path, corpus: KnownCorpus) -> list[FileState]:
    """One per file of a corpus, those that the user makes too."""
    found = [found_in(folder, file) for file in corpus.files]
    for name, how in supplied().items():
        if name.partition("/")[0] == corpus.name:
            made = _made(folder, name)
            found.append(replace(made, detail=how) if made.status == "missing" else made)
    return found


def data_digest(task: Task, directory: Path, vectors: str) -> str:
    """Digest of a task's files and of its word vectors.

    Parameters
    ----------
    directory : Path
        The data directory.
    vectors : str
        A file, a table of the data directory, or ``none``.

    Raises
    ------
    UsageError
        If a file is missing.
    """
    from harness.train.data.vectors import NO_VECTORS, vectors_digest

    data = digest_of(corpus_files(directory, task.files, task.supplied))
    return data if vectors == NO_VECTORS else data + vectors_digest(vectors, directory)


def made_examples(task: str) -> int | None:
    """How many a task's training table has that the user makes; None where it is none of these."""
    of = tasks().get(task.partition("[")[0])
    return made_rows().get(of.files[0]) if of is not None and of.files else None


def is_known(task: str, data: str) -> bool | None:
    """Whether a run's data are the corpus of ``attnbench data list``, whatever its vectors.

    Parameters
    ----------
    task : str
        Name of a task.
    data : str
        From `data_digest`.

    Returns
    -------
    bool or None
        None where it can't be told: the task has no files, or some that no list knows.
    """
    listed = listed_files()
    of = tasks().get(task.partition("[")[0])
    if of is None or not of.files or not data or not set(of.files) <= set(listed):
        return None
    return data.startswith(combined(bytes.fromhex(listed[name].content) for name in of.files))
