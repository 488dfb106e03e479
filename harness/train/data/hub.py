"""``--data hub``: corpora from the public hub, or from the repository that the tables came from.

What is fetched becomes tables of the data directory's form in a folder of the user's cache, so the
rows are the same either way: a table whose content has another checksum is refused. (SNLI is raw
text there, so its tokens are others; the numbers of its pairs are checked.) A data set of
the hub is read by the library `datasets` (extra ``data``), a repository's files as they are. It has
never run against either itself, only on files laid out as they are there, with made-up rows and
with rows made from the tables by what the hub's scripts and the corpora's makers do.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.json_file import replace_file
from harness.train.data.corpora import HubSource, KnownCorpus, corpora, found_in
from harness.train.data.directory import VARIABLE, there
from harness.train.data.texts import tokens_raw

NAME = "hub"
"""What is given in place of a folder; one that is called so is ``./hub``."""
SECONDS = 60
"""A server that sends nothing for so long is given up."""
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
    if given := os.environ.get(CACHE):
        return Path(given) / NAME
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
        if any(not _fetched(corpus, folder, name) for name in _names(corpus)):
            fetch(corpus, folder)
    return folder


def _names(corpus: KnownCorpus) -> list[str]:
    """All files, those that users without the hub make too."""
    return [*(file.name for file in corpus.files), *corpus.yours]


def _fetched(corpus: KnownCorpus, folder: Path, name: str) -> bool:
    """Whether a file is there; where it must be the listed one, whether it is."""
    listed = {file.name: file for file in corpus.files}
    if name not in listed or (corpus.hub is not None and corpus.hub.raw):
        return there(folder, name) is not None
    return found_in(folder, listed[name]).status == "right"


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
    listed = {file.name: file for file in corpus.files}
    wanted = {file.name: file.rows for file in corpus.files} | dict(corpus.yours)
    contents = {}
    for name in _names(corpus):
        columns = listed.get(name, corpus.files[0]).columns
        lines = ["\t".join(fields) + "\n" for fields in (columns, *tables[name])]
        contents[name] = "".join(lines).encode()
        same = len(tables[name]) == wanted[name]
        if not corpus.hub.raw:
            same = hashlib.sha256(contents[name]).hexdigest() == listed[name].content
        if not same:
            raise UsageError(
                f"{corpus.hub.repository} at {corpus.hub.revision[:10]} does not give the rows of "
                f"{name} ({len(tables[name])} rows, expected {wanted[name]}"
                f"{'' if corpus.hub.raw else ', or another text'}); give --data DIR"
            )
    for name, content in contents.items():
        _write(folder / f"{name}.gz", content)


def _splits(source: HubSource) -> dict[str, HubSplit]:
    """Of a data set; or lines of text files, unpacked, in the place of rows."""
    if "://" not in source.repository:
        return _loaded(source)
    splits = {}
    for name, file in source.files.items():
        address = f"{source.repository}/{source.revision}/{file}"
        try:
            with urllib.request.urlopen(address, timeout=SECONDS) as answer:
                content: bytes = answer.read()
            content = gzip.decompress(content) if file.endswith(".gz") else content
        except (OSError, EOFError, http.client.HTTPException) as error:
            raise _refusal(address, error) from error
        lines = content.decode(errors="replace").split("\n")
        splits[name] = HubSplit([{"text": line} for line in lines])
    return splits


def _refusal(what: str, error: Exception) -> UsageError:
    first = (str(error).splitlines() or [""])[0]
    return UsageError(
        f"--data hub: {what} can't be fetched ({type(error).__name__}: {first}); give a folder"
    )


def _loaded(source: HubSource) -> dict[str, HubSplit]:
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
        raise _refusal(source.repository, error) from error
    splits = {}
    for name in source.files:
        features = loaded[name].features.items()
        names = {c: list(f.names) for c, f in features if getattr(f, "names", None)}
        splits[name] = HubSplit([dict(row) for row in loaded[name]], names)
    return splits


def _write(path: Path, content: bytes) -> None:
    try:
        replace_file(path, gzip.compress(content, mtime=0))
    except OSError as error:
        raise UsageError(
            f"can't write {path}: {error.strerror}; set {CACHE} to another folder"
        ) from None


@dataclass(frozen=True)
class HubSplit:
    """One split as the library hands it over."""

    rows: Sequence[Mapping[str, Any]]  # values by column; a class is a number
    # Names of the classes, by column.
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


def snli(splits: Mapping[str, HubSplit]) -> dict[str, Table]:
    """Of ``stanfordnlp/snli``: raw sentences, cut as SICK's; pairs without a gold label are -1."""
    tables = {}
    for name, split in splits.items():
        table = Table()
        for row in split.rows:
            if row["label"] >= 0:
                cut = (" ".join(tokens_raw(clean(row[c]))) for c in ("premise", "hypothesis"))
                table.append((split.names["label"][row["label"]], *cut))
        tables[f"snli/{'dev' if name == 'validation' else name}.tsv"] = table
    return tables


def multi30k(splits: Mapping[str, HubSplit]) -> dict[str, Table]:
    """Of ``multi30k/dataset``: four parallel files of each part."""
    tables = {}
    for name in ("train", "dev", "test2016", "test2017"):
        columns = [splits[f"{name}_{c}"].rows for c in ("en_tok", "de_tok", "en_raw", "de_raw")]
        rows = (tuple(clean(row["text"]) for row in rows) for rows in zip(*columns, strict=False))
        tables[f"multi30k/{name}.tsv"] = [row for row in rows if any(row)]
    return tables


def ud_ewt(splits: Mapping[str, HubSplit]) -> dict[str, Table]:
    """Of CoNLL-U: FORM, UPOS and XPOS of syntactic words, whose ID is a number alone."""
    places, word = (1, 3, 4), str.isdigit
    return {f"ud_ewt/{name}.tsv": _sentences(split, places, word) for name, split in splits.items()}


def wnut17(splits: Mapping[str, HubSplit]) -> dict[str, Table]:
    """Of its makers' files: a token and its tag a line."""
    return {f"wnut17/{name}.tsv": _sentences(split, (0, -1)) for name, split in splits.items()}


def _sentences(
    split: HubSplit, places: Sequence[int], is_word: Callable[[str], bool] = bool
) -> Table:
    """One row a sentence; a line whose first field is empty ends it.

    Parameters
    ----------
    places : sequence of int
        Of a line's fields, separated by tabs, those of the columns.
    is_word : callable
        Whether a line is a word, by its first field.
    """
    table: Table = []
    words: list[tuple[str, ...]] = []
    for row in (*split.rows, {"text": ""}):
        fields = row["text"].removesuffix("\r").split("\t")
        if is_word(fields[0]):
            words.append(tuple(fields[place] for place in places))
        elif words and not fields[0]:
            table.append(tuple(" ".join(column) for column in zip(*words, strict=True)))
            words = []
    return table


CONVERSIONS: Mapping[str, Callable[[Mapping[str, HubSplit]], dict[str, Table]]] = {
    "trec": trec,
    "mr": mr,
    "snli": snli,
    "multi30k": multi30k,
    "ud_ewt": ud_ewt,
    "wnut17": wnut17,
}
"""By corpus. MTL-16's files are in three encodings: we have not the bytes to try a conversion on.
Of the others no data set of the hub with the same rows and a known revision is known to us. As far
as is remembered (nothing could be looked up): SST-5 is lower-cased there, CR, MPQA and SUBJ are in
another order or cut at random, and SICK is the other release (4,439 / 495 / 4,906 pairs)."""
