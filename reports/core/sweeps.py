"""Sweeps over length, everything else equal: lines of rows, and how fast a cost grows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import linear_regression
from typing import Any

import pandas as pd

from harness.records.ratios import Row
from harness.stats import mean_interval

OTHER_SESSION = 1.25
"""A time so far from baseline and ratio is of another session, or of a machine that moved."""
LONGEST_FACTOR = 4
"""The longest lengths are those within this factor of the longest one."""


def length_of(row: Row) -> int:
    """Sequence length of a row."""
    return int(str(row.columns["length"]))


def label_of(row: Row) -> str:
    """``mtsa.algorithm1 8h``: name and number of heads, where it has any."""
    heads = f" {row.columns['heads']}h" if row.columns["heads"] else ""
    return f"{row.columns['name']}{heads}"


def to_width(rows: Sequence[Row]) -> Callable[[Row], str]:
    """What tells rows of one table apart that give other widths: `` to 300``, or nothing."""
    widths: dict[str, set[Any]] = {}
    for row in rows:
        widths.setdefault(label_of(row), set()).add(row.columns["d_out"])

    def said(row: Row) -> str:
        return f" to {row.columns['d_out']}" if len(widths[label_of(row)]) > 1 else ""

    return said


@dataclass(frozen=True)
class LengthSweep:
    """All rows of one batch, width, dtype and setting, both passes."""

    batch: int
    d_in: int
    dtype: str
    settings: str
    rows: tuple[Row, ...]

    @property
    def size(self) -> str:
        """``batch 2, input 300 wide, f32, 1-thread``."""
        return f"batch {self.batch}, input {self.d_in} wide, {self.dtype}, {self.settings}"

    @property
    def slug(self) -> str:
        """For file names."""
        return f"b{self.batch}-d{self.d_in}-{self.dtype}-{self.settings}".replace("+", "-")

    @property
    def lengths(self) -> list[int]:
        """All lengths that were tried."""
        return sorted({length_of(r) for r in self.rows})

    def ratios(self, phase: str) -> int:
        """At how many lengths there is a ratio to the baseline."""
        return len({length_of(r) for r in self.rows if r.time and r.columns["phase"] == phase})

    def lines(self, phase: str) -> dict[str, list[Row]]:
        """Rows of a pass by label, sorted by length."""
        lines: dict[str, list[Row]] = {}
        width = to_width(self.rows)
        for r in sorted(self.rows, key=length_of):
            if r.columns["phase"] == phase:
                lines.setdefault(label_of(r) + width(r), []).append(r)
        return lines


def _beside(rows: Sequence[Row]) -> list[Row]:
    """Rows whose time contradicts their ratio, as if they had run in the baseline's blocks.

    Sessions of other days may hold some of the cases: a machine that was slower then would draw a
    step into a line. Ratios are formed inside of blocks; medians of one session agree with them.
    """
    base = {r.case: r.seconds for r in rows if r.verdict == "baseline"}
    found = []
    for r in rows:
        beside = base.get(r.baseline or "", 0.0)
        if r.time is not None and beside > 0:
            fair = beside * r.time.ratio
            if not 1 / OTHER_SESSION < r.seconds / fair < OTHER_SESSION:
                r = replace(r, seconds=fair)
        found.append(r)
    return found


def sweeps(rows: Sequence[Row], least: int = 2) -> list[LengthSweep]:
    """Groups that differ in length only, those with most lengths first.

    Parameters
    ----------
    least : int
        Fewer lengths are no sweep.
    """
    groups: dict[tuple[int, int, str, str], list[Row]] = {}
    for r in rows:
        c: Mapping[str, object] = r.columns
        key = (int(str(c["batch"])), int(str(c["d_in"])), str(c["dtype"]), str(c["settings"]))
        groups.setdefault(key, []).append(r)
    found = [LengthSweep(*key, tuple(_beside(group))) for key, group in groups.items()]
    found = [s for s in found if len(s.lengths) >= least]
    return sorted(found, key=lambda s: (-len(s.lengths), -len(s.rows)))


def problem_order(row: Row) -> tuple[Any, ...]:
    """Sorts rows by problem, each with its baseline first."""
    c = row.columns
    return (
        -int(str(c["batch"])),
        str(c["dtype"]),
        str(c["settings"]),
        int(str(c["d_in"])),
        int(str(c["length"])),
        str(c["phase"]),
        row.verdict != "baseline",
        label_of(row),
    )


@dataclass(frozen=True)
class Slope:
    """Growth as a power of the length: cost is proportional to N ** slope.

    The mean over blocks with its 95 % t-interval, nan with fewer than two, and the lengths fitted.
    """

    slope: float
    low: float
    high: float
    blocks: int
    lengths: tuple[int, ...]

    def __str__(self) -> str:
        """``1.62 [1.58, 1.66]``."""
        if math.isnan(self.low):
            return f"{self.slope:.2f} [one reading]"
        return f"{self.slope:.2f} [{self.low:.2f}, {self.high:.2f}]"


def fit_slope(blocks: Sequence[Mapping[int, float]]) -> Slope | None:
    """Fit log cost on log length in every block, and take mean and t-interval over the blocks.

    The interval says how well the slope repeats from one fresh interpreter to the next, not
    whether the growth is a power at all: constant overhead bends short lengths down.

    Parameters
    ----------
    blocks : sequence of mapping
        Cost by length, one mapping per block. What is fitted are the lengths of the block that
        has most of them (of equals, the one that goes furthest); one that lacks any is left out.

    Returns
    -------
    Slope or None
        None with fewer than two lengths.
    """
    lengths = max((sorted(block) for block in blocks), key=lambda n: (len(n), n), default=[])
    whole = [block for block in blocks if set(lengths) <= set(block)]
    if len(lengths) < 2 or not whole:
        return None
    x = [math.log(n) for n in lengths]
    slopes = [linear_regression(x, [math.log(block[n]) for n in lengths]).slope for block in whole]
    return Slope(*mean_interval(slopes), len(slopes), tuple(lengths))


def by_block(frame: pd.DataFrame, value: str, timed: bool) -> list[dict[int, float]]:
    """Cost by length, one mapping per block.

    Parameters
    ----------
    frame : DataFrame
        With ``session``, ``block``, ``length`` and the cost.
    timed : bool
        Times of two sessions never meet in a block: a machine that was slower that day would pass
        for growth. Bytes do.
    """
    keys = ["session", "block"] if timed else ["block"]
    return [
        {int(str(n)): float(v) for n, v in block.groupby("length")[value].median().items()}
        for _, block in frame.groupby(keys, dropna=False)
    ]


def longest(blocks: Sequence[Mapping[int, float]]) -> list[dict[int, float]]:
    """The same, only the longest lengths: within `LONGEST_FACTOR` of the longest that shows growth.

    That has another length in its block within this factor. Where one block alone goes furthest,
    and two or more go nearly as far (within the factor again), it is these: they have an interval.
    """
    ends = sorted((n for block in blocks for n in block if _grows_to(block, n)), reverse=True)
    if not ends:
        return []
    near = [n for n in ends if n * LONGEST_FACTOR >= ends[0]]
    top = next((n for n in near if ends.count(n) > 1), ends[0])
    return [{n: v for n, v in b.items() if n <= top <= n * LONGEST_FACTOR} for b in blocks]


def _grows_to(block: Mapping[int, float], top: int) -> bool:
    return any(n < top <= n * LONGEST_FACTOR for n in block)
