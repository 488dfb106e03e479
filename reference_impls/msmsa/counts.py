"""The products of a layer of multi-scale attention, as each implementation computes them.

Plain arithmetic, for the records. Every way of computing is a function ``(scales, length, batch)``
-> for each head its `Cost`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from reference_impls.msmsa.scales import Scale
from reference_impls.msmsa.tiles import plan


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
