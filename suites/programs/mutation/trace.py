"""Which lines of some files run: for choosing the checks that can notice a mutant."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Lines = dict[str, set[int]]


@contextmanager
def traced(files: Mapping[str, str]) -> Iterator[Lines]:
    """Collect the lines that run inside the block.

    Parameters
    ----------
    files : mapping
        File name as in a code object -> name in the result.

    Yields
    ------
    dict
        Name -> set of line numbers, filled in as the block runs.
    """
    seen: Lines = {}

    def line(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            seen.setdefault(files[frame.f_code.co_filename], set()).add(frame.f_lineno)
        return line

    def call(frame: Any, event: str, _: Any) -> Any:
        return line if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield seen
    finally:
        sys.settrace(before)
