"""Where golden files are; without torch."""

from __future__ import annotations

from pathlib import Path

from harness.errors import UsageError


def find(folder: Path) -> list[Path]:
    """All ``.npz`` files at or below a folder (or the file itself).

    Raises
    ------
    UsageError
        If the path does not exist.
    """
    if not folder.exists():
        raise UsageError(f"no such folder: {folder}")
    return [folder] if folder.is_file() else sorted(folder.rglob("*.npz"))
