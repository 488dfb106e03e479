"""The corpus of a comparison's task, where the reader of a page has it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from harness.errors import UsageError
from harness.registry import resolve
from harness.train.data.directory import VARIABLE
from harness.train.task import task

Loader = TypeVar("Loader")
Table = TypeVar("Table")


def loader_of(name: str, kind: type[Loader]) -> Loader | None:
    """How the corpus of a task is read; None if not so, or by no task that this version knows."""
    try:
        load = resolve(task(name).load)
    except UsageError:
        return None
    return load if isinstance(load, kind) else None


def table_of(file: str, read: Callable[[Path], Table], what: str) -> tuple[Path, Table | None, str]:
    """A table of the data directory: where it is, what is read of it; or why nothing is.

    Parameters
    ----------
    file : str
        Below the data directory, without its ending.
    what : str
        What a reader would see of it: ``the texts``.
    """
    folder = os.environ.get(VARIABLE, "")
    path = Path(folder) / f"{file}.gz"
    if not folder:
        return path, None, f"Set {VARIABLE} to the data directory to see {what}."
    try:
        return path, read(path), ""
    except UsageError as error:
        return path, None, f"{what[0].upper()}{what[1:]} can't be shown: {error}."
