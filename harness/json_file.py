"""Results as JSON files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from harness.errors import UsageError


def plain(value: Any) -> Any:
    """JSON has neither infinity nor not-a-number: both become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "item"):
        return plain(value.item())
    return value


def check_json(path: str | None) -> None:
    """Refuse a file that can't be written before hours of work, not after.

    Raises
    ------
    UsageError
        If its folder is not there, or it is a folder itself.
    """
    if path is not None and (Path(path).is_dir() or not Path(path).parent.is_dir()):
        raise UsageError(f"can't write --json {path}: no such folder, or a folder itself")


def write_json(path: str | None, value: Any) -> None:
    """Write a result to a file, if one was asked for.

    Raises
    ------
    UsageError
        If it can't be written.
    """
    if path is None:
        return
    try:
        Path(path).write_text(json.dumps(plain(value), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write --json {path}: {error.strerror}") from None
