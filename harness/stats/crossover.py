"""From which length on a mechanism is faster: where its ratio crosses 1, with an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.stats.timing import Verdict, ratio_interval, verdict

Answer = Literal["from", "always", "never", "dip", "undecided"]
_HALVINGS = 30
"""Bisections inside one segment: nine digits of a length."""


@dataclass(frozen=True)
class Crossover:
    """Where a sweep over lengths turns from slower to faster."""

    # *from*: shown faster at the longest lengths, and not at the first: `at`, `low`, `high`.
    # *always*: shown faster at every length. *never*: shown slower, or the same, at every one.
    # *dip*: shown faster somewhere, but not at the longest. *undecided*: anything else.
    answer: Answer
    # Length at which the mean curve crosses 1 for the last time; nan unless *from*, or where it
    # never was above.
    at: float
    # low, high: ends of the interval. Above `high` (inside the sweep) it is shown faster
    # everywhere; `low` is the longest length at which it is still shown slower, and 0 where it is
    # shown slower nowhere. nan unless *from*.
    low: float
    high: float
    lengths: tuple[int, ...]
    verdicts: tuple[Verdict, ...]  # at these lengths
    blocks: int  # at the length that has the fewest

    def lengths_with(self, *verdicts: Verdict) -> list[int]:
        """Lengths at which one of these verdicts was reached."""
        return [n for n, v in zip(self.lengths, self.verdicts, strict=True) if v in verdicts]


@dataclass(frozen=True)
class _Curve:
    """Log ratios over log lengths, one line per block, straight between measured lengths.

    A place is a measured length's number, or lies between two of them.
    """

    x: Sequence[float]
    logs: Sequence[Mapping[int, float]]  # at each measured length, by block
    floors: Sequence[float]

    def at(self, values: Sequence[float], place: float) -> float:
        """A value, of those at the measured lengths, anywhere."""
        import numpy as np

        return math.exp(np.interp(place, range(len(values)), values))

    def lines(self, place: float) -> list[float]:
        """Log ratios there, of the blocks that have the measured lengths beside it."""
        left, right = self.logs[math.floor(place)], self.logs[math.ceil(place)]
        both, share = sorted(left.keys() & right.keys()), place - math.floor(place)
        return [(1 - share) * left[block] + share * right[block] for block in both]

    def says(self, place: float) -> Verdict:
        """Verdict on the curve there, by the same rule as at a measured length."""
        lines = self.lines(place)
        if not lines:
            return "undecided"
        return verdict(ratio_interval([*map(math.exp, lines)]), self.at(self.floors, place))

    def edge(self, inside: float, outside: float) -> float:
        """Length where the verdict of one place ends on the way to another."""
        says = self.says(inside)
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            if self.says(middle) == says:
                inside = middle
            else:
                outside = middle
        return self.at(self.x, inside)


def crossover(ratios: Mapping[int, Mapping[int, float]], floors: Mapping[int, float]) -> Crossover:
    """Find from which length on the ratio lies below 1.

    In each block the log ratio is drawn over the log of the length and joined by straight lines. At
    every point of the sweep the blocks then give a t-interval and a verdict, as they do at a
    measured length, and the interval of the crossing is where no verdict is reached: the test of
    "the mean crosses 1 here", inverted (Fieller's interval on each segment). Unlike an interval
    over each block's own crossing this needs no block to cross, and is not moved by noise that
    makes a flat curve cross several times.

    Parameters
    ----------
    ratios : mapping of length to (mapping of block to ratio)
        Between two lengths those blocks count that have both.
    floors : mapping of length to float
        Noise floors, at least 1; infinite where unknown: nothing is claimed there.

    Raises
    ------
    ValueError
        With fewer than two lengths.
    """
    lengths = tuple(sorted(ratios))
    if len(lengths) < 2:
        raise ValueError(f"given {len(lengths)} length(s); expected a sweep over two or more")
    curve = _Curve(
        [math.log(n) for n in lengths],
        [{b: math.log(ratio) for b, ratio in ratios[n].items()} for n in lengths],
        [math.log(floors[n]) for n in lengths],
    )
    verdicts = tuple(curve.says(place) for place in range(len(lengths)))
    at = low = high = math.nan
    answer = _answer(verdicts)
    if answer == "from":
        at, low, high = _cross(curve, verdicts)
    return Crossover(answer, at, low, high, lengths, verdicts, min(map(len, curve.logs)))


def _answer(verdicts: Sequence[Verdict]) -> Answer:
    if all(v == "faster" for v in verdicts):
        return "always"
    if verdicts[-1] == "faster":
        return "from"
    if "faster" in verdicts:
        return "dip"
    return "undecided" if "undecided" in verdicts else "never"


def _cross(curve: _Curve, verdicts: Sequence[Verdict]) -> tuple[float, float, float]:
    """Where the mean crosses for the last time, and the interval around it."""
    start = len(verdicts)
    while verdicts[start - 1] == "faster":
        start -= 1
    # The set of points shown faster on a segment is an interval (an upper bound is convex), and it
    # holds the right end: one bisection finds its edge.
    high = curve.edge(start, start - 1)
    slower = [i for i, v in enumerate(verdicts) if v == "slower"]
    low = curve.edge(slower[-1], slower[-1] + 1) if slower else 0.0
    means = [math.fsum(logs.values()) / len(logs) for logs in curve.logs]
    for place in reversed(range(start)):
        left, right = means[place], means[place + 1]
        if left >= 0 > right:
            return curve.at(curve.x, place + left / (left - right)), low, high
    return math.nan, low, high
