"""The sizes that a reader cares about, from a file of theirs or from the profile."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.case import DTYPES
from harness.errors import UsageError
from harness.profile import Profile
from harness.records.ratios import Row

WIDTH = (300, 600)
"""Of the papers: word vectors in, context out."""


@dataclass(frozen=True)
class Size:
    """What the reader would run: B, N and H, the width in and out, and the mechanism that would
    replace a baseline (``mechanism.implementation``); the task whose accuracy counts, empty for
    all.
    """

    batch: int
    length: int
    heads: int
    width: tuple[int, int]
    dtype: str
    setting: str
    mechanism: str
    baseline: str
    task: str = ""

    def __str__(self) -> str:
        """``batch 64, N = 64, 300 to 600, 8 heads, f32, 1-thread``."""
        return (
            f"batch {self.batch}, N = {self.length:,}, {self.width[0]} to {self.width[1]}, "
            f"{self.heads} heads, {self.dtype}, {self.setting}"
        )

    @property
    def command(self) -> str:
        """What measures exactly this."""
        return (
            f"attnbench bench --only {self.mechanism} --batch {self.batch} --lengths {self.length} "
            f"--width {self.width[0]}x{self.width[1]} --heads {self.heads} --dtypes {self.dtype} "
            f"--settings {self.setting}"
        )


def padded(setting: str) -> bool:
    """Whether batches are padded under ``1-thread+padded``: work of another kind."""
    return "padded" in setting.split("+")


def of_profile(profile: Profile) -> Size:
    """The profile's reference size."""
    r = profile.reference
    return Size(
        r["batch"],
        r["length"],
        r["heads"],
        WIDTH,
        "f32",
        profile.setting,
        profile.subject,
        profile.baseline,
    )


_KINDS: dict[str, type] = {
    **dict.fromkeys(("batch", "length", "heads"), int),
    "width": list,
    **dict.fromkeys(("dtype", "setting", "mechanism", "baseline", "task"), str),
}
_EXPECTED = {int: "a whole number", list: "[in, out]", str: "a text"}


def read(file: str) -> dict[str, Any]:
    """What a file says; what it leaves out is the profile's.

    Raises
    ------
    UsageError
        If it can't be read, or says what is no size.
    """
    if not file:
        return {}
    try:
        given = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"--like: can't read {file}: {error}") from None
    for name, value in given.items():
        if name not in _KINDS:
            raise UsageError(f"--like {file}: unknown name {name!r}; use {', '.join(_KINDS)}")
        kind = _KINDS[name]
        if type(value) is not kind or (isinstance(value, int) and value < 1):
            raise UsageError(f"--like {file}: {name} = {value!r}; expected {_EXPECTED[kind]}")
    width = given.get("width", list(WIDTH))
    if len(width) != 2 or not all(type(n) is int and n > 0 for n in width):
        raise UsageError(f"--like {file}: width = {width}; expected [in, out], whole numbers")
    if given.get("dtype", "f32") not in DTYPES:
        raise UsageError(f"--like {file}: dtype = {given['dtype']!r}; expected {', '.join(DTYPES)}")
    for name in ("mechanism", "baseline"):
        if "." not in given.get(name, "."):
            raise UsageError(
                f"--like {file}: {name} = {given[name]!r}; expected mechanism.implementation"
            )
    return {**given, "width": (width[0], width[1])} if "width" in given else given


def size_for(profile: Profile, given: dict[str, Any]) -> Size:
    """The profile's size with what the reader gave (`read`)."""
    return replace(of_profile(profile), **given)


Problem = tuple[int, int, int, str, str]
"""Batch, length, width in, dtype and settings: what rows of one answer share."""


def problem_of(row: Row) -> Problem:
    """The problem of a row."""
    c = row.columns
    return (
        int(str(c["batch"])),
        int(str(c["length"])),
        int(str(c["d_in"])),
        str(c["dtype"]),
        str(c["settings"]),
    )


def wanted(size: Size) -> Problem:
    """The problem that a size is."""
    return (size.batch, size.length, size.width[0], size.dtype, size.setting)


def nearest(rows: Sequence[Row], size: Size) -> Problem | None:
    """The measured problem that is most like a size.

    Same dtype first, padding alike, same setting, then the problems that the mechanism asked about
    was measured at, then the fewest doublings of length, batch and width between them.
    """
    problems: dict[Problem, bool] = {}
    for row in rows:
        if row.verdict != "baseline" and row.time is not None:
            own = row.columns["name"] == size.mechanism
            problems[problem_of(row)] = problems.get(problem_of(row), False) or own
    if not problems:
        return None
    goal = wanted(size)

    def distance(problem: Problem) -> tuple[Any, ...]:
        doublings = sum(abs(math.log2(a / b)) for a, b in zip(problem[:3], goal[:3], strict=True))
        other = (padded(problem[4]) != padded(goal[4]), problem[4] != goal[4])
        return (problem[3] != goal[3], *other, not problems[problem], doublings)

    return min(problems, key=distance)
