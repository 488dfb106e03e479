"""From the rows of data sets on the public hub to the tables of the data directory.

Tested with made-up rows and with rows made from the tables by what the hub's scripts do, never with
the hub itself. `hub` compares the checksum of every table that is made: other rows are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError

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
