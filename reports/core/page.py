"""What a notebook cell shows: HTML for the page, files beside it, sentences for the index."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from reports.core.figure_data import data_of
from reports.core.html import pieces
from reports.core.parameters import opens
from reports.core.source import SHOWN, DeviceRecords, Source, facts, find
from reports.core.style import SOFT, with_dark
from reports.core.tables import Cell, delimited, latex, markdown

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
    """A piece of a page: escaped HTML, plain text for readers without, sentences for the index."""

    html: str
    plain: str = ""
    sentences: tuple[str, ...] = field(default=())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/html": self.html, "text/plain": self.plain, MIME: list(self.sentences)}


def together(*parts: Shown, grid: bool = False) -> Shown:
    """Several pieces as one; in a grid they stand side by side where there is room."""
    inside = Markup("\n".join(p.html for p in parts))
    sentences = tuple(one for p in parts for one in p.sentences)
    body = pieces().grid(inside) if grid else inside
    return Shown(body, "\n".join(p.plain for p in parts), sentences)


LETTER = 4.0
"""Points that a letter takes on average, in a figure's footer."""


def footed(figure: Figure, footer: str) -> Figure:
    """The figure with device, commits and dates below it, say, in lines no wider than it is."""
    if footer:
        letters = int(figure.get_figwidth() * 72 / LETTER)
        said = textwrap.fill(footer, letters)
        figure.text(0.005, -0.01, said, fontsize=6.5, color=SOFT, va="top")
    return figure


def svg(figure: Figure) -> str:
    """A figure as an ``<svg>`` element, without date or XML header."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", **_TIGHT, metadata=_NO_METADATA)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def heading(text: str, level: int = 3, anchor: str = "") -> Shown:
    """A heading made from records, which a link ends at if it has an anchor."""
    return Shown(pieces().heading(text, level, anchor), text)


def folded(title: str, inside: Shown) -> Shown:
    """A piece behind its title, which unfolds it."""
    return Shown(pieces().folded(title, Markup(inside.html)), f"{title}\n{inside.plain}")


def says(sentences: Iterable[str], main: bool = False) -> Shown:
    """Sentences, one paragraph each; the main ones stand on the index too."""
    lines = list(sentences)
    return Shown(pieces().says(lines), "\n".join(lines), tuple(lines) if main else ())


def warns(sentences: Iterable[str]) -> Shown:
    """Warnings, as a list that can't be overlooked."""
    lines = list(sentences)
    return Shown(pieces().warns(lines), "\n".join(lines))


def remark(text: str) -> Shown:
    """How something is to be read."""
    return Shown(pieces().remark(text), text)


def steps(lines: Sequence[str]) -> Shown:
    """A numbered list."""
    return Shown(pieces().steps(lines), "\n".join(lines))


def table(rows: Iterable[Mapping[str, str]], words: Sequence[int] = (0,)) -> Shown:
    """A table of texts by the heading of their column; a `Cell` has more to it.

    Columns of `words` are left-aligned and wrapped (but the first); the others are numbers. Without
    a row there is no table.
    """
    lines = [{head: Cell.of(cell) for head, cell in row.items()} for row in rows]
    if not lines:
        return Shown("")
    return Shown(pieces().table(lines, words), f"\n{markdown(lines, words)}\n")


@dataclass(frozen=True)
class Output:
    """Where a page's files go: a report's folder (None only shows), and how their names begin.

    The footer stands under every figure: device, versions, commit.
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

    def figure(self, name: str, figure: Figure | Callable[[], Figure], caption: str) -> Shown:
        """Show a figure, or what draws it, with a sentence; save SVG, PNG and, of its data, CSV."""
        if not isinstance(figure, Figure):
            figure = figure()
        path = self._path("figures", name)
        stem = ""
        drawn = svg(footed(figure, self.footer))
        if path is not None:
            stem = f"{path.parent.name}/{path.name}"
            Path(f"{path}.svg").write_text(with_dark(drawn), encoding="utf-8")
            figure.savefig(f"{path}.png", **_TIGHT, dpi=160)
            data = delimited(data_of(figure).dropna(axis=1, how="all"))
            Path(f"{path}.csv").write_text(data, encoding="utf-8")
        inches = figure.get_figwidth()
        kinds = (("svg", "SVG"), ("png", "PNG"), ("csv", "CSV"))
        body = pieces().figure(
            Markup(drawn), caption, round(PIXELS * inches), inches > WIDE, stem, kinds
        )
        return Shown(body, caption)

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
        numbers: Iterable[Any],
        rows: Sequence[Mapping[str, str]],
        words: Sequence[int] = (0,),
    ) -> Shown:
        """Show a table as `table` does; save it as Markdown and LaTeX, and all its numbers as CSV.

        Parameters
        ----------
        numbers
            Records or mappings, what is saved; units stand in their names.
        """
        shown = table(rows, words)
        path = self._path("tables", name) if rows else None
        if path is None:
            return shown
        frame = pd.DataFrame(list(numbers))
        Path(f"{path}.csv").write_text(delimited(frame), encoding="utf-8")
        for kind, written in (("md", markdown), ("tex", latex)):
            Path(f"{path}.{kind}").write_text(written(rows, words), encoding="utf-8")
        kinds = (("csv", "CSV"), ("md", "Markdown"), ("tex", "LaTeX"))
        body = pieces().saved(Markup(shown.html), f"{path.parent.name}/{path.name}", kinds)
        return Shown(body, shown.plain)


class Nothing:
    """A page without records: it says once what would make them, and any other piece is empty."""

    def __init__(self, source: Source, none: str) -> None:
        self.source, self.none = source, none

    def about(self) -> Shown:
        """What was read, and what would make more."""
        return together(says([self.source.says]), says([self.none]))

    def __getattr__(self, piece: str) -> Callable[[], Shown]:
        return lambda: says([])


class SourcePage:
    """A page about all that was read; every method of a page shows one piece of it.

    A device without a record of one of its `kinds` is none.
    """

    kinds: tuple[str, ...] = SHOWN

    def __init__(self, source: Source, place: Output) -> None:
        self.source, self.place = source, place

    @classmethod
    @opens
    def begin(cls, journal: str, out: str, page: str, **more: str) -> Self:
        """Open the notebook.

        Parameters
        ----------
        journal : str
            Folder of the records; the published ones if it is empty or holds none.
        out : str
            Folder for figures and tables; empty writes none.
        page : str
            What their names begin with.
        more
            What one page alone has.
        """
        return cls(find(str(journal), kinds=cls.kinds), Output.of(out, page), **more)


class DevicePage:
    """A page about one device's records; every method of a page shows one piece of it.

    It is about records of its `kinds`: without a device's key it is of the newest that has any, and
    `none` is said where nobody has. Device, commit and dates of those that are `footed` (its kinds,
    if that is empty) stand under the figures; `verb` is how they were made. A page that is
    `of_record` is one of many of its device.
    """

    kinds: tuple[str, ...] = ()
    footed: tuple[str, ...] = ()
    none = ""
    verb = "Measured"
    of_record = False

    def __init__(self, source: Source, device: DeviceRecords, place: Output) -> None:
        self.source, self.device, self.place = source, device, place

    @property
    def empty(self) -> bool:
        """Whether the device has nothing for it after all."""
        return False

    @classmethod
    @opens
    def begin(cls, journal: str, device: str, out: str, page: str, **record: str) -> Any:
        """Open the notebook, as `SourcePage` does.

        Parameters
        ----------
        device : str
            Key of a fingerprint; if empty that of the record, or the newest that has such records.
        record : str
            Key of the one record that the page is about, under the name that the notebook has for
            it; the newest if empty.
        """
        source = find(str(journal))
        chosen = source.device(str(device), *cls.kinds, record="".join(map(str, record.values())))
        if chosen is None:
            return Nothing(source, cls.none)
        footer = chosen.footer(*(cls.footed or cls.kinds))
        opened = cls(source, chosen, Output.of(out, page, footer), **record)
        return Nothing(source, cls.none) if opened.empty else opened

    def about(self) -> Shown:
        """Which records these are."""
        return says([f"{self.source.says} {self.device.made(self.verb, *self.kinds)}"])

    def machine(self) -> Shown:
        """Where this was made; saved once a device, not for each of its records."""
        sessions = self.device.sessions_of(*(self.footed or self.kinds))
        known = facts(self.device.fingerprint, sessions)
        rows = [{"what": name, "value": value} for name, value in known.items()]
        if self.of_record:
            return table(rows, (0, 1))
        return self.place.table("machine", rows, rows, (0, 1))
