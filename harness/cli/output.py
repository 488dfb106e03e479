"""Console and JSON output shared by the commands."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape

from harness.json_file import check_json, plain, write_json

__all__ = ["check_json", "console", "plain", "tell_skipped", "write_json"]


def console() -> Console:
    """Standard output; wide enough for ids where it is not a terminal."""
    out = Console()
    return out if out.is_terminal else Console(width=160)


def tell_skipped(out: Console, warnings: Iterable[str]) -> None:
    """What a journal holds that could not be read, a line each."""
    for warning in warnings:
        out.print(f"[yellow]journal:[/] {escape(warning)}", highlight=False, soft_wrap=True)
