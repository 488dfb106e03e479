"""A table of texts as Markdown and as LaTeX, to be pasted into a paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

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

    Attributes
    ----------
    strong : bool
        Bold, wherever it stands.
    to : str
        What a click on it opens.
    hint : str
        Shown where the pointer rests on it.
    notes : tuple of str
        Lines beneath.
    links : tuple of (text, address)
        Beneath those; without an address just words.
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


def latex(
    columns: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int] = (0,)
) -> str:
    """A ``tabular`` for the package booktabs.

    Parameters
    ----------
    words : sequence of int
        Columns that hold words: left-aligned.
    """

    def cell(text: str) -> str:
        inside = latex_text(text)
        return rf"\textbf{{{inside}}}" if isinstance(text, Best) else inside

    def line(cells: Sequence[str]) -> str:
        return " & ".join(map(cell, cells)) + r" \\"

    form = "".join("l" if i in words else "r" for i in range(len(columns)))
    body = "\n".join(line(row) for row in rows)
    return (
        f"\\begin{{tabular}}{{{form}}}\n\\toprule\n{line(columns)}\n\\midrule\n{body}\n"
        "\\bottomrule\n\\end{tabular}\n"
    )


def markdown(
    columns: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int] = (0,)
) -> str:
    """A table as GitHub reads it."""

    def cell(text: str) -> str:
        inside = str(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
        inside = inside.replace("<", "&lt;")
        return f"**{inside}**" if isinstance(text, Best) else inside

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    rule = line("---" if i in words else "---:" for i in range(len(columns)))
    lines = [line(map(cell, columns)), rule, *(line(map(cell, row)) for row in rows)]
    return "\n".join(lines) + "\n"
