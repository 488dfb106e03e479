"""The pieces of the report's pages as Markdown: their sentences and tables, without figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from reports.core.page import Output, Shown
from reports.core.tables import markdown


@dataclass(frozen=True)
class PlainOutput(Output):
    """Takes the place of a page's `Output`: writes no file, and shows tables as Markdown."""

    folder: None = None
    page: str = ""

    def figure(self, name: str, figure: Figure | Callable[[], Figure], caption: str) -> Shown:
        """Nothing, and nothing is drawn: what a figure shows stands in a table too."""
        return Shown("")

    def table(
        self,
        name: str,
        frame: pd.DataFrame,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        words: Sequence[int] = (0,),
    ) -> Shown:
        """The table alone, between empty lines."""
        return Shown("", f"\n{markdown(columns, rows, words)}\n")


def text_of(piece: Shown) -> str:
    """A piece as paragraphs and tables, an empty line between them."""
    lines: list[str] = []
    for line in piece.plain.splitlines():
        row = line.startswith("|")
        if line and lines and lines[-1] and not (row and lines[-1].startswith("|")):
            lines.append("")
        if line or (lines and lines[-1]):
            lines.append(line if row else line.replace("<", "&lt;"))
    return "\n".join(lines).strip()
