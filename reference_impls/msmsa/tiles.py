"""How `windowed` cuts a sequence, and the products of a layer as each implementation computes them.

Plain arithmetic, shared by implementations and records. Heads are grouped by how they are computed,
queries are cut in tiles. Every way of computing is a function ``(scales, length, batch)`` -> for
each head its `Cost`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from reference_impls.msmsa.scales import Scale

Method = Literal["alone", "near", "tiles", "all"]
ORDER: tuple[Method, ...] = ("alone", "near", "tiles", "all")
NEAREST = 1
"""Up to this reach keys are met by shifting the sequence, without products of matrices, where
that is worth its calls."""
TILES = (32, 64, 128, 256)
"""Queries per tile from which the cheapest is taken."""
CALL, EACH = 8000, 500
"""Pairs in whose time one more call of fused attention is made, and one more tile is begun, on a
CPU: roughly."""
SHIFTED = 96
"""Pairs in whose time a query meets its neighbours in a shifted sequence, on a CPU: roughly."""


@dataclass(frozen=True)
class Piece:
    """Tiles of queries of one size, and the keys around them.

    Tile m has the queries ``start + m * tile`` and on, and the `band` keys from
    ``first + m * tile`` on: a window is cut by the ends of the sequence, never by those of a band.
    """

    start: int
    tiles: int
    tile: int
    first: int
    band: int

    @property
    def pairs(self) -> int:
        """Pairs of query and key whose scores are computed, per head and sample."""
        return self.tiles * self.tile * self.band


@dataclass(frozen=True)
class Group:
    """Heads that are computed together, in a batch of padded length N.

    Attributes
    ----------
    method : {"alone", "near", "tiles", "all"}
        alone: the only key is the query itself, whose value is the result; near: the sequence
        shifted to either side; tiles: see `pieces`; all: N x N pairs and a mask.
    heads : tuple of int
    scales : tuple of Scale
        One per head.
    half : int
        Largest distance to a key of any head in a sample without padding.
    tile : int
        Queries per tile, 0 for other methods.
    """

    method: Method
    heads: tuple[int, ...]
    scales: tuple[Scale, ...]
    half: int
    tile: int = 0

    def pairs(self, length: int) -> int:
        """Pairs of query and key that products are computed for, per head and sample."""
        if self.method == "tiles":
            return sum(piece.pairs for piece in pieces(self.half, self.tile, length))
        return length * length if self.method == "all" else 0


def pieces(half: int, tile: int, length: int) -> tuple[Piece, Piece, Piece]:
    """The queries near the beginning, those in tiles, and those near the end.

    Parameters
    ----------
    half, tile, length : int
        ``length >= 2 * half + tile``, ``half >= 1``.
    """
    tiles = (length - 2 * half) // tile
    done = half + tiles * tile
    return (
        Piece(0, 1, half, 0, 2 * half),
        Piece(half, tiles, tile, 0, tile + 2 * half),
        Piece(done, 1, length - done, done - half, length - done + half),
    )


def tile_for(half: int, length: int, batch: int) -> int:
    """Queries per tile, or 0 where all pairs at once are cheaper.

    A small tile computes few pairs outside of its windows; a long sequence, or a large batch, is
    worth the calls that tiles cost.
    """
    best, least = 0, batch * length**2
    for tile in TILES:
        if length >= 2 * half + tile:
            cut = pieces(half, tile, length)
            work = sum(piece.pairs + EACH * piece.tiles for piece in cut)
            cost = batch * work + 2 * CALL
            if cost < least:
                best, least = tile, cost
    return best


def by_shifts(length: int, batch: int) -> bool:
    """Whether neighbours are met by shifting: in a short sequence all pairs take fewer calls."""
    return batch * length * (length - SHIFTED) > 2 * CALL


def plan(scales: Sequence[Scale], length: int, batch: int = 1) -> list[Group]:
    """Group heads, in the order of `ORDER`."""
    found: dict[tuple[Method, int, Scale | None], list[int]] = {}
    tiles: dict[int, int] = {}
    for h, scale in enumerate(scales):
        half = scale.half(length)
        tile = tiles.setdefault(half, tile_for(half, length, batch) if half > NEAREST else 0)
        if half == 0:
            key: tuple[Method, int, Scale | None] = ("alone", 0, None)
        elif half <= NEAREST and by_shifts(length, batch):
            key = ("near", half, None)
        elif tile:
            key = ("tiles", half, scale)  # heads of one scale share the masks of their tiles
        else:
            key = ("all", 0, None)
        found.setdefault(key, []).append(h)
    groups = []
    for (method, _, _), heads in found.items():
        some = tuple(scales[h] for h in heads)
        half = max(scale.half(length) for scale in some)
        tile = tiles[half] if method == "tiles" else 0
        groups.append(Group(method, tuple(heads), some, half, tile))
    return sorted(groups, key=lambda group: ORDER.index(group.method))


class Cost(NamedTuple):
    """What a head costs in each sample.

    Attributes
    ----------
    projections : int
        3, for queries, keys and values; 1 for a head that sees the query itself alone, whose value
        is the result.
    pairs : int
        Of query and key that products are computed for.
    """

    projections: int
    pairs: int


Way: TypeAlias = Callable[[Sequence[Scale], int, int], list[Cost]]


def every_pair(scales: Sequence[Scale], length: int, batch: int) -> list[Cost]:
    """Of "plain" and "masked": N * N, whatever a head sees."""
    return [Cost(3, length * length)] * len(scales)


def tiles(scales: Sequence[Scale], length: int, batch: int) -> list[Cost]:
    """Of "windowed": those of its tiles; sums over one neighbour to a side are no products."""
    return [
        Cost(1 if group.method == "alone" else 3, group.pairs(length))
        for group in plan(scales, length, batch)
        for _ in group.heads
    ]


def ranges(scales: Sequence[Scale], length: int, batch: int) -> list[Cost]:
    """Of the kernels for ranges of keys: the pairs within the windows.

    What their tiles compute beyond the ends of a window is not counted, nor what they compute again
    in the backward pass: as for all that runs on those kernels.
    """
    found = []
    for half in (int(scale.half(length)) for scale in scales):
        reach = min(half, length - 1)
        # Windows of 2 * reach + 1 keys, less what the ends of the sequence cut off.
        pairs = length * (2 * reach + 1) - reach * (reach + 1)
        found.append(Cost(3, pairs) if half else Cost(1, 0))
    return found


def layer(costs: Sequence[Cost], batch: int, length: int, d_in: int, d_h: int, d_out: int) -> float:
    """Operations of projections, scores, sums and W^o in a forward pass."""
    heads = sum(2 * length * d_in * d_h * c.projections + 4 * c.pairs * d_h for c in costs)
    return float(batch * (heads + 2 * length * len(costs) * d_h * d_out))
