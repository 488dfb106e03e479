"""A table as CSV, and of texts as Markdown and as LaTeX, to be pasted into a paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

_FORMULA = re.compile(r"[=+\-@\t\r]")
_NEGATIVE = re.compile(r"-[0-9.]+(e[+-]?[0-9]+)?", re.IGNORECASE)
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "α": r"$\alpha$",
    "µ": r"$\mu$",
    "²": "$^2$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "∝": r"$\propto$",
}


class Cell(str):
    """A text of a table, with what more its cell shows on a page.

    Bold wherever it stands, what a click on it opens, a hint where the pointer rests on it; beneath
    it lines of notes, and links, without an address just words.
    """

    strong: bool = False
    to: str = ""
    hint: str = ""
    notes: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, text: str, **more: Any) -> Cell:
        """The text as a cell; one that is a cell already stays what it is."""
        if isinstance(text, Cell) and not more:
            return text
        cell = cls(text)
        for name, value in more.items():
            setattr(cell, name, value)
        return cell


class Best(Cell):
    """A cell that is shown to be the best: bold wherever it stands."""

    strong = True


def latex_text(text: str) -> str:
    """Text that LaTeX takes for what it says."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


Rows = Sequence[Mapping[str, str]]
"""Of a table, one at least: texts by the heading of their column."""


Saved = tuple[list[dict[str, Any]], list[dict[str, str]]]
"""A table's numbers, for a file, and its texts, which are shown."""


def under(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[dict[str, str]]:
    """Rows of texts, each text under its heading."""
    return [dict(zip(columns, row, strict=True)) for row in rows]


def latex(rows: Rows, words: Sequence[int] = (0,)) -> str:
    """A ``tabular`` for the package booktabs; columns of `words` are left-aligned."""

    def line(cells: Iterable[str]) -> str:
        inside = [
            rf"\textbf{{{latex_text(text)}}}" if isinstance(text, Best) else latex_text(text)
            for text in cells
        ]
        return " & ".join(inside) + r" \\"

    form = "".join("l" if i in words else "r" for i in range(len(rows[0])))
    body = "\n".join(line(row.values()) for row in rows)
    return (
        f"\\begin{{tabular}}{{{form}}}\n\\toprule\n{line(rows[0])}\n\\midrule\n{body}\n"
        "\\bottomrule\n\\end{tabular}\n"
    )


def markdown(rows: Rows, words: Sequence[int] = (0,)) -> str:
    """A table as GitHub reads it, notes beneath their text; columns of `words` are left-aligned."""

    def line(texts: Iterable[str]) -> str:
        return "| " + " | ".join(texts) + " |"

    def escaped(text: str) -> str:
        inside = str(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
        return inside.replace("<", "&lt;")

    def cells(row: Iterable[str]) -> Iterator[str]:
        for text in row:
            inside = f"**{escaped(text)}**" if isinstance(text, Best) else escaped(text)
            notes = text.notes if isinstance(text, Cell) else ()
            yield "<br>".join(filter(None, [inside, *map(escaped, notes)]))

    rule = line("---" if i in words else "---:" for i in range(len(rows[0])))
    lines = [line(cells(rows[0])), rule, *(line(cells(row.values())) for row in rows)]
    return "\n".join(lines) + "\n"


def delimited(frame: pd.DataFrame, **form: Any) -> str:
    """Numbers and names as CSV; no text of a record is a formula to the program that opens it.

    What a spreadsheet would calculate begins with an apostrophe then; negative numbers stay.

    Parameters
    ----------
    form
        For `pandas.DataFrame.to_csv`.
    """

    def harmless(cell: Any) -> Any:
        if not isinstance(cell, str):
            return cell
        calculated = _FORMULA.match(cell) and not _NEGATIVE.fullmatch(cell)
        # The writer puts no quotes around a carriage return, which would end the line.
        return ("'" if calculated else "") + cell.replace("\r", "\n")

    safe = frame.rename(columns=harmless)
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if not pd.api.types.is_numeric_dtype(column):
            safe.isetitem(place, pd.array([*map(harmless, column)], object))
    return safe.to_csv(index=False, **form)
