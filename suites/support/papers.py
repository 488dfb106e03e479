"""The papers' texts, where they are: beside the repository, or where ATTNBENCH_PAPERS says."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from suites.support.command_line import ROOT

PAPERS = Path(os.environ.get("ATTNBENCH_PAPERS") or ROOT.parent / "shared" / "papers")
CITATION = 60
"""Characters that may stand between the name of a row and its cells: a citation."""
_DROPPED = str.maketrans("", "", "-–—−∗*·")


def squeezed(text: str) -> str:
    """Without white space and dashes: texts of a PDF break lines, split words and drop spaces."""
    return "".join(unicodedata.normalize("NFKC", text).split()).translate(_DROPPED)


def text_of(name: str) -> str:
    """The squeezed text of a paper."""
    return squeezed((PAPERS / name).read_text(encoding="utf-8"))


def tables(paper: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every table of a transcribed paper, by name."""
    for name, table in paper.items():
        if name != "paper":
            yield name, table


def sentences(table: Any) -> Iterator[str]:
    """Everything in a transcription that is called a line of the paper."""
    if isinstance(table, Mapping):
        for key, value in table.items():
            if key == "line" or key.endswith("_line"):
                yield value
            elif key == "lines":
                yield from value
            else:
                yield from sentences(value)
    elif isinstance(table, list):
        for one in table:
            yield from sentences(one)


def stands(row: Mapping[str, Any], text: str) -> bool:
    """Whether a row stands in a squeezed text: its name, perhaps a citation, and its cells."""
    name = re.escape(squeezed(row["name"] + row.get("mark", "")))
    cells = re.escape(squeezed("".join(row["cells"])))
    return re.search(f"{name}.{{0,{CITATION}}}?{cells}", text) is not None
