"""What the side programs' commands have in common beyond those of attnbench."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec

import typer
from rich.console import Console
from rich.table import Table

from harness.cli.output import say
from harness.errors import UsageError

Given = ParamSpec("Given")


def application() -> typer.Typer:
    """An app of one command."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def console(table_alone: bool = False) -> Console:
    """Where to print, wide where it is no terminal; a table has standard output for itself."""
    out = Console(stderr=table_alone)
    return out if out.is_terminal else Console(width=200, stderr=table_alone)


def finishing(name: str) -> Callable[[Callable[Given, int]], Callable[Given, None]]:
    """Make a command end with the exit code that it returns; what can't be is one line, and 2."""

    def decorate(command: Callable[Given, int]) -> Callable[Given, None]:
        @wraps(command)
        def run(*arguments: Given.args, **options: Given.kwargs) -> None:
            try:
                code = command(*arguments, **options)
            except UsageError as error:
                print(f"{name}: {error}", file=sys.stderr)
                code = 2
            raise typer.Exit(code)

        return run

    return decorate


def print_judged(
    out: Console,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    sentences: Sequence[str] = (),
    *,
    met: bool,
    few: str,
    markdown: bool,
) -> None:
    """Print a table, sentences, and whether the goals are met; or what a page of docs shows.

    Of a self-test ``few`` says what it has too few of, and nothing is judged.
    """
    if markdown:
        print("\n".join([markdown_table(heads, rows), *([""] if sentences else []), *sentences]))
        return
    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    out.print(table)
    for sentence in sentences:
        say(out, sentence)
    if few:
        say(out, f"A self-test: so few {few} prove nothing either way.")
    else:
        say(out, "all goals met" if met else "goals not met", "green" if met else "red")


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a page of documentation."""
    lines = [list(heads), ["---"] * len(heads), *map(list, rows)]
    return "\n".join("| " + " | ".join(line).replace("\n", " ") + " |" for line in lines)
