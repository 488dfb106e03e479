"""How `windowed` cuts a sequence: heads grouped by scale, queries in tiles, keys in bands.

Plain arithmetic, shared by the implementation and by the formula for its operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reference_impls.msmsa.scales import Scale


@dataclass(frozen=True)
class Group:
    """Heads of one scale in a batch of padded length N.

    Attributes
    ----------
    scale : Scale
    heads : tuple of int
    half : int
        Largest distance to a key in any sample: that of a sample without padding.
    tile : int
        Queries per tile, T; each tile sees T + 2 * half keys. 0: no tiles, all N keys at once.
    """

    scale: Scale
    heads: tuple[int, ...]
    half: int
    tile: int

    @property
    def positionwise(self) -> bool:
        """The only key is the query itself: attention returns its value."""
        return self.half == 0

    def pairs(self, length: int) -> int:
        """Pairs of query and key whose scores are computed, per head and sample."""
        if self.positionwise:
            return 0
        if not self.tile:
            return length * length
        return count(length, self.tile) * self.tile * (self.tile + 2 * self.half)


def count(length: int, tile: int) -> int:
    """Number of tiles."""
    return -(-length // tile)


def tile_for(half: int, length: int) -> int:
    """Queries per tile for windows of 2 * half + 1 keys, or 0 where a band saves nothing.

    A small tile computes few pairs outside of its windows, a large one copies keys seldom: copies
    of a key are 1 + 2 * half / T. The bounds were the fastest on a CPU.
    """
    tile = 16 if half <= 8 else 32 if half <= 64 else 64
    computed = count(length, tile) * tile * (tile + 2 * half)
    return tile if computed < length * length else 0


def plan(scales: Sequence[Scale], length: int) -> list[Group]:
    """Group heads; the position-wise group is the first, the others keep the heads' order."""
    halves = [scale.half(length) for scale in scales]
    heads: dict[Scale, list[int]] = {}
    for h, (scale, half) in enumerate(zip(scales, halves, strict=True)):
        heads.setdefault(scale if half else Scale(1), []).append(h)
    groups = []
    for scale, members in heads.items():
        half = halves[members[0]]
        tile = tile_for(half, length) if half else 0
        groups.append(Group(scale, tuple(members), half, tile))
    return sorted(groups, key=lambda group: not group.positionwise)
