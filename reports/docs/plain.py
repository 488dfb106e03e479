"""What a page shows, as paragraphs and tables of Markdown."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from reports.core.page import Output, Shown


class PlainOutput(Output):
    """In the place of a page's `Output`: no file, and no figure (a table says it too)."""

    def __init__(self) -> None:
        super().__init__(None, "")

    def figure(self, name: str, figure: Figure | Callable[[], Figure], caption: str) -> Shown:
        """Nothing, and nothing is drawn."""
        return Shown("")


def text_of(piece: Shown) -> str:
    """A piece as paragraphs and tables of Markdown, an empty line between them."""
    lines: list[str] = []
    for line in piece.plain.splitlines():
        row = line.startswith("|")
        if line and lines and lines[-1] and not (row and lines[-1].startswith("|")):
            lines.append("")
        if line or (lines and lines[-1]):
            lines.append(line if row else line.replace("<", "&lt;"))
    return "\n".join(lines).strip()
