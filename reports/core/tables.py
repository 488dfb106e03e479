"""A table of texts as Markdown and as LaTeX, to be pasted into a paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "α": r"$\alpha$", "µ": r"$\mu$", "²": "$^2$",
    "≤": r"$\le$", "≥": r"$\ge$", "∝": r"$\propto$",
}  # fmt: skip


class Best(str):
    """A cell that is shown to be the best: bold wherever it stands."""

    __slots__ = ()


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
