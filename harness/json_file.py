"""Results as files: as JSON, and replaced whole; and files of TOML that a user gives."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tomllib
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


def replace_file(path: Path, content: bytes | memoryview) -> None:
    """Write a file, and its folder: killed at any moment, what was there before or this is there.

    Its draft has a name for each process: two that write at once take nothing from each other.

    Raises
    ------
    OSError
        If the system refuses; what was there before still is.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        while True:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # it was empty, so another took it away
                file = draft.open("wb")
                break
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # what is told is why it could not be written
            draft.unlink(missing_ok=True)
        raise


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


def read_toml(path: Path, what: str) -> tuple[bytes, dict[str, Any]]:
    """A file of a sweep or a design: its bytes, and what they say.

    Raises
    ------
    UsageError
        If it can't be read.
    """
    try:
        content = path.read_bytes()
        return content, tomllib.loads(content.decode())
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"can't read the {what} {path}: {why}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
