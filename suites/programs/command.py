"""What the side programs' commands have in common: where they print, bars, one-line errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from harness.errors import UsageError


def application() -> typer.Typer:
    """An app of one command."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def console(width: int, table_alone: bool = False) -> Console:
    """Standard output, so wide where it is no terminal; a table alone has that for itself."""
    out = Console(stderr=table_alone)
    return out if out.is_terminal else Console(width=width, stderr=table_alone)


def say(out: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is."""
    out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def bar(out: Console, remaining: bool = True) -> Progress:
    """How much is done, and how long the rest will take (or how long it has taken)."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(24),
        MofNCompleteColumn(),
        TimeRemainingColumn() if remaining else TimeElapsedColumn(),
        console=out,
        transient=True,
        disable=not out.is_terminal,
    )


def finish(name: str, command: Callable[[], int]) -> None:
    """Do the command and end with its exit code; what can't be is one line, and 2."""
    try:
        code = command()
    except UsageError as error:
        print(f"{name}: {error}", file=sys.stderr)
        code = 2
    raise typer.Exit(code)


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a page of documentation."""
    lines = [list(heads), ["---"] * len(heads), *map(list, rows)]
    return "\n".join("| " + " | ".join(line).replace("\n", " ") + " |" for line in lines)
