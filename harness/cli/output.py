"""Console and JSON output shared by the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from harness.json_file import plain, write_json

__all__ = [
    "bare_table",
    "console",
    "duration",
    "plain",
    "say",
    "steps",
    "tell_skipped",
    "write_json",
]


def console() -> Console:
    """Standard output; wide enough for ids where it is not a terminal."""
    out = Console()
    return out if out.is_terminal else Console(width=160)


def say(out: Console, text: str, style: str | None = None) -> None:
    """A line as it is: no markup, no highlighting, not broken at the console's width."""
    out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def bare_table(*columns: str, numbers: Iterable[str] = ()) -> Table:
    """A table without lines: texts at the left, then numbers at the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


@contextmanager
def steps(out: Console, what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar with time left, for work whose steps are of one kind; called at the end of each."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=out,
        transient=True,
        disable=not out.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def duration(seconds: float) -> str:
    """``42 s``, ``12.5 min``, ``3.4 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def tell_skipped(out: Console, warnings: Iterable[str]) -> None:
    """What a journal holds that could not be read, a line each."""
    for warning in warnings:
        out.print(f"[yellow]journal:[/] {escape(warning)}", highlight=False, soft_wrap=True)
