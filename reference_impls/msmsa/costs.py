"""The products of a layer as each implementation computes them: plain arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from reference_impls.msmsa.scales import Scale


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


Way: TypeAlias = Callable[[Sequence[Scale], int], list[Cost]]
"""``(scales, length)`` -> of each head."""


def every_pair(scales: Sequence[Scale], length: int) -> list[Cost]:
    """Of "plain" and "masked": N * N, whatever a head sees."""
    return [Cost(3, length * length)] * len(scales)


def ranges(scales: Sequence[Scale], length: int) -> list[Cost]:
    """Of all others: the pairs within the windows.

    What a kernel computes beyond the ends of a window is not counted, nor what it computes again in
    the backward pass: as for all that runs on the kernels for ranges of keys.
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
