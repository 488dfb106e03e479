"""Console and JSON output shared by the commands."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape

from harness.json_file import check_json, plain, write_json

__all__ = ["check_json", "console", "duration", "plain", "say", "tell_skipped", "write_json"]


def console() -> Console:
    """Standard output; wide enough for ids where it is not a terminal."""
    out = Console()
    return out if out.is_terminal else Console(width=160)


def say(out: Console, text: str, style: str | None = None) -> None:
    """A line as it is: no markup, no highlighting, not broken at the console's width."""
    out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """``42 s``, ``12.5 min``, ``3.4 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def tell_skipped(out: Console, warnings: Iterable[str]) -> None:
    """What a journal holds that could not be read, a line each."""
    for warning in warnings:
        out.print(f"[yellow]journal:[/] {escape(warning)}", highlight=False, soft_wrap=True)
