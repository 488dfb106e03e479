"""How fast a cost grows with length: slopes of log cost on log length, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression

import pandas as pd

from harness.stats import mean_interval

LONGEST_FACTOR = 4
"""The longest lengths are those within this factor of the longest one."""


@dataclass(frozen=True)
class Slope:
    """Growth as a power of the length: cost is proportional to N ** slope.

    Attributes
    ----------
    slope : float
        Mean over blocks.
    low, high : float
        95 % t-interval over blocks; nan with fewer than two.
    blocks : int
    lengths : tuple of int
        What was fitted.
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
