"""``--data hub``: corpora from the public hub, by the library `datasets` (extra ``data``).

What is fetched becomes tables of the data directory's form in a folder of the user's cache, so the
rows are the same either way: a table whose content has another checksum is refused. It has never
run against the hub itself, only through the library on files laid out as the hub does.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.train.data.conversions import CONVERSIONS, HubSplit, Table
from harness.train.data.corpora import CorpusFile, HubSource, KnownCorpus, corpora, found_in
from harness.train.data.directory import VARIABLE

NAME = "hub"
"""What is given in place of a folder; one that is called so is ``./hub``."""
CACHE = "ATTNBENCH_CACHE"
"""Environment variable: folder for what was fetched, in place of the user's cache folder."""


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
