"""What the commands print with: a console, lines, tables without lines, bars, durations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, OverflowMethod
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

SAYS = TextColumn("{task.fields[says]}")
"""A column of a bar."""


def console() -> Console:
    """Standard output; wide enough for ids where it is not a terminal."""
    out = Console()
    return out if out.is_terminal else Console(width=160)


def say(out: Console, text: str, style: str | None = None, *, markup: bool = False) -> None:
    """A line as it is: no highlighting, not broken at the console's width, markup only if asked."""
    out.print(text, style=style, markup=markup, highlight=False, soft_wrap=True)


def bare_table(
    *columns: str, numbers: Iterable[str] = (), overflow: OverflowMethod = "ellipsis"
) -> Table:
    """A table without lines: texts at the left, then numbers at the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow=overflow)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


@contextmanager
def bar(
    out: Console, what: str, total: int | None, *columns: ProgressColumn
) -> Iterator[Callable[..., None]]:
    """A bar, on a terminal alone, with more columns behind it.

    Called with what has become of it: ``completed``, or ``says`` for a column of that.
    """
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        console=out,
        transient=True,
        disable=not out.is_terminal,
    )
    with shown:
        task = shown.add_task(what, total=total, says="")

        def move(**fields: Any) -> None:
            shown.update(task, **fields)

        yield move


@contextmanager
def steps(out: Console, what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar with time left, for work whose steps are of one kind; called at the end of each."""
    with bar(out, what, total, MofNCompleteColumn(), TimeRemainingColumn()) as move:
        yield lambda: move(advance=1)


def duration(seconds: float) -> str:
    """``42 s``, ``12.5 min``, ``3.4 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def tell_skipped(out: Console, warnings: Iterable[str]) -> None:
    """What a journal holds that could not be read, a line each."""
    for warning in warnings:
        say(out, f"[yellow]journal:[/] {escape(warning)}", markup=True)
