"""Console and JSON output shared by the commands."""

from __future__ import annotations

from rich.console import Console

from harness.json_file import check_json, plain, write_json

__all__ = ["check_json", "console", "plain", "write_json"]


def console() -> Console:
    """Standard output; wide enough for ids where it is not a terminal."""
    out = Console()
    return out if out.is_terminal else Console(width=160)
