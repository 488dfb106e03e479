"""The longest length that fits: which one to try next, from what is known. Pure functions.

What is known is a mapping from the lengths that were tried to whether they fit; nothing else is
remembered, so that a search that was killed goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

STEP = 16
"""Lengths above it are multiples of it."""
RESOLUTION = 0.05
"""Share of the longest length at which the search ends; never under `STEP`."""
NEAR = 1.25
"""First step away from a guess, in case it was a good one; twice as far from then on."""
BEYOND = 1.3
"""A second failure is wanted at this multiple of the longest: one alone may be an accident."""


@dataclass(frozen=True)
class Frontier:
    """Where a search stands.

    Attributes
    ----------
    longest : int or None
        Longest length that fitted.
    first_miss : int or None
        Shortest length above it that did not; None if the search ended at its largest length.
    not_monotone : tuple of int
        Lengths below the longest that did not fit: their reason was not the length.
    """

    longest: int | None
    first_miss: int | None
    not_monotone: tuple[int, ...]


def stand(tried: Mapping[int, bool]) -> Frontier:
    """What the lengths that were tried say."""
    longest = max((n for n, fits in tried.items() if fits), default=None)
    misses = sorted(n for n, fits in tried.items() if not fits)
    above = [n for n in misses if longest is None or n > longest]
    below = tuple(n for n in misses if longest is not None and n < longest)
    return Frontier(longest, above[0] if above else None, below)


def snapped(length: float, largest: int) -> int:
    """A length of the grid near to the given one, between 1 and the largest."""
    whole = round(length / STEP) * STEP if length >= STEP else int(length)
    return max(1, min(whole, largest))


def resolution(length: int) -> int:
    """How near the search comes to the frontier at a length: within 5 %, or 16, or 1 below 16."""
    return max(STEP, int(RESOLUTION * length)) if length >= STEP else 1


def next_length(tried: Mapping[int, bool], guess: int, largest: int) -> int | None:
    """The next length to try; None when the search is over.

    From the guess on by growing steps until one length fits and a longer one does not, then by
    halves down to `resolution`. A second failure, at `BEYOND` times the longest if not before, ends
    it: a single one may be an accident (a machine that was busy).

    Parameters
    ----------
    tried : mapping of int to bool
        Whether each length fitted.
    guess, largest : int
        Where to begin, and what is never exceeded.
    """
    now = stand(tried)
    if not tried:
        return snapped(guess, largest)
    if now.longest is None:
        shortest = min(tried)
        if shortest == 1:
            return None
        down = snapped(shortest / (NEAR if len(tried) == 1 else 2), largest)
        return min(down, shortest - 1)
    if now.first_miss is None:
        if now.longest >= largest:
            return None
        up = snapped(now.longest * (NEAR if len(tried) == 1 else 2), largest)
        return min(largest, max(up, now.longest + resolution(now.longest)))
    if now.first_miss - now.longest > resolution(now.longest):
        middle = (now.longest + now.first_miss) // 2
        on_grid = snapped(middle, now.first_miss)
        return on_grid if now.longest < on_grid < now.first_miss else middle
    beyond = min(largest, snapped(BEYOND * now.longest + STEP / 2, largest))
    if sum(n > now.longest for n in tried) > 1 or beyond <= now.first_miss:
        return None
    return beyond
