"""What a notebook cell shows: HTML for the page, files beside it, marks for the index."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from reports.core.dark import with_dark
from reports.core.figure_data import data_of
from reports.core.style import SOFT
from reports.core.tables import Best, latex, markdown

MIME = "application/vnd.attnbench.report+json"
"""In the outputs of an executed notebook: what the index takes from it."""
WIDE = 7.5
"""Inches; a wider figure has a row of its own."""
PIXELS = 110
"""Of an inch on the page, at most: a small figure is not blown up."""
_TIGHT: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.08}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
"""Without them an SVG is the same every time, and names no address."""


@dataclass(frozen=True)
class Shown:
    """A piece of a page; Jupyter displays it.

    Attributes
    ----------
    html : str
        Escaped.
    plain : str
        For readers without HTML.
    marks : tuple of dict
        ``{"sentence": ...}`` and ``{"figure": path, "caption": ...}`` for the index.
    """

    html: str
    plain: str = ""
    marks: tuple[dict[str, str], ...] = field(default=())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/html": self.html, "text/plain": self.plain, MIME: list(self.marks)}


def together(*pieces: Shown, grid: bool = False) -> Shown:
    """Several pieces as one; in a grid they stand side by side where there is room."""
    inside = "\n".join(p.html for p in pieces)
    marks = tuple(mark for p in pieces for mark in p.marks)
    body = f'<div class="grid">{inside}</div>' if grid else inside
    return Shown(body, "\n".join(p.plain for p in pieces), marks)


def svg(figure: Figure) -> str:
    """A figure as an ``<svg>`` element, without date or XML header."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", **_TIGHT, metadata=_NO_METADATA)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def heading(text: str, level: int = 3) -> Shown:
    """A heading made from records."""
    return Shown(f"<h{level}>{html.escape(text)}</h{level}>", text)


def says(sentences: Iterable[str], main: bool = False) -> Shown:
    """Sentences, one paragraph each; the main ones stand on the index too."""
    lines = list(sentences)
    body = "".join(f'<p class="say">{html.escape(s)}</p>' for s in lines)
    marks = tuple({"sentence": s} for s in lines) if main else ()
    return Shown(body, "\n".join(lines), marks)


def warns(sentences: Iterable[str]) -> Shown:
    """Warnings, as a list that can't be overlooked."""
    lines = list(sentences)
    items = "".join(f"<li>{html.escape(s)}</li>" for s in lines)
    return Shown(f'<ul class="warnings">{items}</ul>' if lines else "", "\n".join(lines))


def remark(text: str) -> Shown:
    """How something is to be read."""
    return Shown(f'<p class="soft">{html.escape(text)}</p>', text)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int] = (0,)
) -> Shown:
    """A table of texts.

    Parameters
    ----------
    words : sequence of int
        Columns that hold words: left-aligned, and wrapped (but the first); the others are numbers.
    """
    lines = [list(row) for row in rows]
    marks = [' class="words"' if i in words else "" for i in range(len(columns))]

    def line(tag: str, cells: Sequence[str]) -> str:
        texts = zip(cells, marks, strict=True)
        return "".join(f"<{tag}{mark}>{_cell(cell)}</{tag}>" for cell, mark in texts)

    head = line("th", columns)
    body = "\n".join(f"<tr>{line('td', row)}</tr>" for row in lines)
    plain = "\n".join("  ".join(row) for row in [list(columns), *lines])
    return Shown(
        f'<div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>', plain
    )  # fmt: skip


def _cell(text: str) -> str:
    inside = html.escape(text)
    return f"<strong>{inside}</strong>" if isinstance(text, Best) else inside


@dataclass(frozen=True)
class Output:
    """Where a page's files go.

    Attributes
    ----------
    folder : Path or None
        The report's folder; None writes nothing, the notebook only shows.
    page : str
        Name of the page; its files begin with it.
    footer : str
        Stands under every figure: device, versions, commit.
    """

    folder: Path | None
    page: str
    footer: str = ""

    @classmethod
    def of(cls, out: object, page: object, footer: str = "") -> Output:
        """The place that a notebook's parameters ``out`` and ``page`` name."""
        return cls(Path(str(out)) if out else None, str(page), footer)

    def _path(self, kind: str, name: str) -> Path | None:
        if self.folder is None:
            return None
        (self.folder / kind).mkdir(parents=True, exist_ok=True)
        return self.folder / kind / f"{self.page}-{name}"

    def figure(self, name: str, figure: Figure, caption: str, main: bool = False) -> Shown:
        """Show a figure with one sentence; save it as SVG and PNG, and its data as CSV.

        Parameters
        ----------
        main : bool
            Whether the index shows it too.
        """
        path = self._path("figures", name)
        links, marks = "", ()
        form = ' class="wide"' if figure.get_figwidth() > WIDE else ""
        most = round(PIXELS * figure.get_figwidth())
        if self.footer:
            figure.text(0.005, -0.01, self.footer, fontsize=6.5, color=SOFT, va="top")
        drawn = svg(figure)
        if path is not None:
            stem = f"{path.parent.name}/{path.name}"
            Path(f"{path}.svg").write_text(with_dark(drawn), encoding="utf-8")
            figure.savefig(f"{path}.png", **_TIGHT, dpi=160)
            data_of(figure).dropna(axis=1, how="all").to_csv(f"{path}.csv", index=False)
            links = _links(stem, ("svg", "png", "csv"))
            if main:
                mark = {"figure": f"{stem}.svg", "caption": caption, "pixels": str(most),
                        "wide": form and "1"}  # fmt: skip
                marks = (mark,)  # type: ignore[assignment]
        body = (
            f'<figure{form}><div class="figure" style="max-width: {most}px" role="img" '
            f'aria-label="{html.escape(caption)}">'
            f"{drawn}</div><figcaption>{html.escape(caption)}"
            f'<span class="files">{links}</span></figcaption></figure>'
        )
        return Shown(body, caption, marks)

    def lines(self, name: str, lines: Iterable[str]) -> str:
        """Save lines of JSON; the link to them from a page, empty if nothing is written."""
        path = self._path("tables", name)
        if path is None:
            return ""
        file = path.with_name(f"{path.name}.jsonl")
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return f"tables/{file.name}"

    def table(
        self,
        name: str,
        frame: pd.DataFrame,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        words: Sequence[int] = (0,),
    ) -> Shown:
        """Show a table of texts; save it as Markdown and LaTeX, and all its numbers as CSV.

        Parameters
        ----------
        frame : DataFrame
            What is saved; units stand in its column names.
        columns, rows, words
            What is shown, see `table`.
        """
        lines = [list(row) for row in rows]
        shown = table(columns, lines, words)
        path = self._path("tables", name)
        if path is None:
            return shown
        frame.to_csv(f"{path}.csv", index=False)
        for kind, written in (("md", markdown), ("tex", latex)):
            text = written(columns, lines, words)
            Path(f"{path}.{kind}").write_text(text, encoding="utf-8")
        links = _links(f"{path.parent.name}/{path.name}", ("csv", "md", "tex"))
        return Shown(f'{shown.html}<p class="files">{links}</p>', shown.plain)


def _links(stem: str, kinds: Iterable[str]) -> str:
    names = {"md": "Markdown", "tex": "LaTeX"}
    return " ".join(
        f'<a href="{html.escape(stem)}.{kind}">{names.get(kind, kind.upper())}</a>'
        for kind in kinds
    )
