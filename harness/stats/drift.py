"""Drift: does a reading move over the blocks of a session, or over the places inside a block?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.stats.basics import ALPHA, deviation, holm, mean, two_sided

LEAST_BLOCKS = 4
"""With fewer a line through the blocks leaves less than two degrees of freedom."""
LEAST_CHANGE = 1.05
"""Smaller movements are not worth a warning, however certain."""


@dataclass(frozen=True)
class Trend:
    """How a positive reading moved."""

    # Of a session: geometric mean of the last third of the blocks over that of the first. Inside a
    # block: last place over first place.
    change: float
    p: float  # two-sided, of the hypothesis that nothing moved
    blocks: int


def session_trend(by_block: Mapping[int, float]) -> Trend | None:
    """Whether a reading moves over the blocks: the slope of its log on the block, by a t-test.

    Parameters
    ----------
    by_block : mapping of int to float
        One positive reading per block.

    Returns
    -------
    Trend or None
        None with fewer than `LEAST_BLOCKS` blocks.
    """
    from scipy.stats import linregress

    blocks = sorted(by_block)
    if len(blocks) < LEAST_BLOCKS:
        return None
    logs = [math.log(by_block[b]) for b in blocks]
    third = len(blocks) // 3
    change = (math.fsum(logs[-third:]) - math.fsum(logs[:third])) / third
    moved = max(logs) > min(logs)
    p = float(linregress(blocks, logs).pvalue) if moved else 1.0
    return Trend(math.exp(change), p, len(blocks))


def block_trend(readings: Sequence[tuple[str, int, float, float]]) -> Trend | None:
    """Whether readings move with their place inside a block.

    Cases stand in random order in each block, so what is left of a log reading after its case's
    mean over the blocks is taken off says how the machine moved. One slope per block, a t-test over
    the blocks: they are what is independent.

    Parameters
    ----------
    readings : sequence of (case, block, place, seconds)
        ``place`` runs from 0 (first in its block) to 1 (last).

    Returns
    -------
    Trend or None
        None with fewer than `LEAST_BLOCKS` blocks that have a slope.
    """
    by_case: dict[str, list[float]] = {}
    for case, _, _, seconds in readings:
        by_case.setdefault(case, []).append(math.log(seconds))
    usual = {case: mean(logs) for case, logs in by_case.items()}
    by_block: dict[int, list[tuple[float, float]]] = {}
    for case, block, place, seconds in readings:
        by_block.setdefault(block, []).append((place, math.log(seconds) - usual[case]))
    slopes = [
        statistics.linear_regression(*zip(*points, strict=True)).slope
        for points in by_block.values()
        if len({place for place, _ in points}) > 1
    ]
    count = len(slopes)
    if count < LEAST_BLOCKS:
        return None
    # A case's mean holds one block in so many of this block's own movement.
    whole = math.fsum(slopes) / (count - 1)
    p = two_sided(mean(slopes), deviation(slopes) / math.sqrt(count), count - 1)
    return Trend(math.exp(whole), p, count)


def shown(trends: Sequence[Trend | None], least: Sequence[float] | None = None) -> list[bool]:
    """Which of a family of readings drifted: certain after Holm, and large enough to matter.

    Parameters
    ----------
    trends : sequence of Trend or None
        None: could not be tested, and is not shown.
    least : sequence of float, optional
        Change, at least 1, below which nothing is claimed of a reading (its noise floor);
        `LEAST_CHANGE` counts where it is larger.
    """
    floors = [LEAST_CHANGE] * len(trends) if least is None else least
    tested = [t for t in trends if t is not None]
    adjusted = iter(holm([t.p for t in tested]))
    return [
        trend is not None
        and next(adjusted) < ALPHA
        and abs(math.log(trend.change)) > math.log(max(floor, LEAST_CHANGE))
        for trend, floor in zip(trends, floors, strict=True)
    ]
