"""``--data hub``: corpora from the public hub, by the library `datasets` (extra ``data``).

What is fetched becomes tables of the data directory's form in a folder of the user's cache, so the
rows are the same either way: a table whose content has another checksum is refused. It has never
run against the hub itself, only through the library on files laid out as the hub does, with made-up
rows and with rows made from the tables by what the hub's scripts do.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.train.data.corpora import CorpusFile, HubSource, KnownCorpus, corpora, found_in
from harness.train.data.directory import VARIABLE

NAME = "hub"
"""What is given in place of a folder; one that is called so is ``./hub``."""
CACHE = "ATTNBENCH_CACHE"
"""Environment variable: folder for what was fetched, in place of the user's cache folder."""

Table = list[tuple[str, ...]]
"""Rows without the names of the columns."""

TREC_TORN = ("a sister city with", "a sister\N{LATIN SMALL LETTER ETH}city with")
"""The hub has a blank for the one byte of TREC that is no ASCII; the table keeps it."""

MR_TORN = {
    473: "…{}",
    1560: "… {}",
    2518: "…{}",
    3520: "…{}",
    5952: "{}…",
    7530: "…{}",
    10523: "…{}",
}
"""Rows of MR, from 0, whose ellipsis at the end of the text the hub's script took for white space
(read as Latin-1 it is one)."""


def asked(given: str | None) -> bool:
    """Whether ``--data``, or without it the environment variable, says ``hub``."""
    return (os.environ.get(VARIABLE) if given is None else given) == NAME


def cache_folder() -> Path:
    """Where fetched tables lie."""
    if CACHE in os.environ:
        return Path(os.environ[CACHE]) / NAME
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "attnbench" / NAME


def directory(task: str, files: Sequence[str], folder: Path | None = None) -> Path:
    """The data directory of what was fetched, with these files in it; fetches what is missing.

    Parameters
    ----------
    task : str
        For the error.
    files : sequence of str
        As ``trec/train.tsv``.
    folder : Path, optional
        Instead of `cache_folder`.

    Raises
    ------
    UsageError
        If a corpus has no source on the hub, the library is not installed, nothing can be fetched,
        or what comes is not the corpus.
    """
    folder = folder or cache_folder()
    for corpus in given_by(task, files):
        if any(found_in(folder, file).status != "right" for file in corpus.files):
            fetch(corpus, folder)
    return folder


def given_by(task: str, files: Sequence[str]) -> list[KnownCorpus]:
    """The corpora of these files, if the hub has them all; nothing is fetched.

    Raises
    ------
    UsageError
        If it has not.
    """
    found = []
    for name in dict.fromkeys(file.partition("/")[0] for file in files):
        corpus = corpora().get(name)
        if corpus is None or corpus.hub is None:
            have = ", ".join(c.name for c in corpora().values() if c.hub is not None)
            raise UsageError(
                f"--data hub: no data set of the hub gives the rows of {name} (task {task}); give "
                f"a folder (the hub has {have})"
            )
        found.append(corpus)
    return found


def fetch(corpus: KnownCorpus, folder: Path) -> None:
    """Fetch a corpus and write its tables below a folder.

    Raises
    ------
    UsageError
        See `directory`.
    """
    assert corpus.hub is not None
    tables = CONVERSIONS[corpus.name](_splits(corpus.hub))
    for file in corpus.files:
        content = _content(file, tables[file.name])
        if hashlib.sha256(content).hexdigest() != file.content:
            raise UsageError(
                f"{corpus.hub.repository} at {corpus.hub.revision[:10]} does not give the rows of "
                f"{file.name} ({len(tables[file.name])} rows, expected {file.rows}, or another "
                "text); give --data DIR"
            )
        _write(folder / f"{file.name}.gz", content)


def _splits(source: HubSource) -> dict[str, HubSplit]:
    try:
        import datasets
    except ModuleNotFoundError:
        raise UsageError(
            "--data hub needs the library datasets: pip install 'attnbench[data]', or give a folder"
        ) from None
    try:
        loaded = datasets.load_dataset(
            source.repository, revision=source.revision, data_files=dict(source.files)
        )
    except Exception as error:  # of the library, of its transport, of the network: all kinds
        first = (str(error).splitlines() or [""])[0]
        raise UsageError(
            f"--data hub: {source.repository} can't be fetched ({type(error).__name__}: {first}); "
            "give a folder"
        ) from error
    return {name: _split(loaded[name]) for name in source.files}


def _split(loaded: Any) -> HubSplit:
    names = {
        column: list(feature.names)
        for column, feature in loaded.features.items()
        if getattr(feature, "names", None)
    }
    return HubSplit([dict(row) for row in loaded], names)


def _content(file: CorpusFile, table: Table) -> bytes:
    lines = [file.columns, *table]
    return "".join("\t".join(fields) + "\n" for fields in lines).encode()


def _write(path: Path, content: bytes) -> None:
    draft = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(gzip.compress(content, mtime=0))
        draft.replace(path)
    except OSError as error:
        raise UsageError(
            f"can't write {path}: {error.strerror}; set {CACHE} to another folder"
        ) from None


@dataclass(frozen=True)
class HubSplit:
    """One split as the library hands it over.

    Attributes
    ----------
    rows : sequence of mapping
        Values by column; a class is a number.
    names : mapping
        Names of the classes, by column.
    """

    rows: Sequence[Mapping[str, Any]]
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)


def clean(text: str) -> str:
    """One space for what would end a field or a line, nothing around the text."""
    for mark in "\t\r\n\N{NEXT LINE}\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}":
        text = text.replace(mark, " ")
    return text.strip()


def trec(splits: Mapping[str, HubSplit]) -> dict[str, Table]:
    """Of ``CogComp/trec``: fine classes are named ``DESC:manner``."""
    tables = {}
    for name in ("train", "test"):
        split, table = splits[name], Table()
        for row in split.rows:
            coarse, _, fine = split.names["fine_label"][row["fine_label"]].partition(":")
            table.append((coarse, fine, clean(row["text"]).replace(*TREC_TORN)))
        tables[f"trec/{name}.tsv"] = table
    return tables


def mr(splits: Mapping[str, HubSplit]) -> dict[str, Table]:
    """Of ``rotten_tomatoes``, which is the corpus cut in three, with Windows-1252 read as Latin-1.

    Raises
    ------
    UsageError
        For a text that is not what such a reading gives.
    """
    table: Table = []
    for wanted in ("neg", "pos"):
        for name in ("train", "validation", "test"):
            split = splits[name]
            for row in split.rows:
                if split.names["label"][row["label"]] == wanted:
                    text = clean(_as_windows_1252(row["text"]))
                    if len(table) in MR_TORN:
                        text = MR_TORN[len(table)].format(text)
                    table.append((str(("neg", "pos").index(wanted)), text))
    return {"mr/all.tsv": table}


def _as_windows_1252(text: str) -> str:
    try:
        return text.encode("latin-1").decode("cp1252")
    except UnicodeError:
        raise UsageError(
            f"the hub's text {text[:60]!r} is not Latin-1, as it was; give --data DIR"
        ) from None


CONVERSIONS: Mapping[str, Callable[[Mapping[str, HubSplit]], dict[str, Table]]] = {
    "trec": trec,
    "mr": mr,
}
"""By corpus. Of the others no data set with the same rows and a known revision is known to us. As
far as is remembered (nothing could be looked up): SST-5 is lower-cased there, CR, MPQA and SUBJ are
in another order or cut at random, SNLI is not tokenised, and SICK is the other release (4,439 / 495
/ 4,906 pairs)."""
