"""What the side programs' commands have in common beyond those of attnbench."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import typer
from rich.console import Console

from harness.errors import UsageError


def application() -> typer.Typer:
    """An app of one command."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def console(table_alone: bool = False) -> Console:
    """Where to print, wide where it is no terminal; a table has standard output for itself."""
    out = Console(stderr=table_alone)
    return out if out.is_terminal else Console(width=200, stderr=table_alone)


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
