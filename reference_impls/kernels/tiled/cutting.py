"""How `tiled` cuts its work: heads of one geometry, samples, queries; and the keys a cut can see.

Plain arithmetic on numbers of the geometry that the host has read, once: a geometry serves many
calls. Where it may not read them (in torch.compile, in CUDA graph capture before any call) nothing
is left out: every pair is computed and masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from reference_impls.checks import host_can_decide
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.sizes import FEW, LEAST_QUERIES, SCORE_BYTES, SHORT

COMPILED_SCORE_BYTES = 64 * 2**20
"""The same where torch.compile unrolls every loop."""


@dataclass(frozen=True)
class Group:
    """Neighbouring heads of one geometry.

    Attributes
    ----------
    heads : slice
    alike : bool
        Whether the first head's numbers are those of all.
    lo, hi : int
        Bounds of i - j, the widest of any sample.
    inner_lo, inner_hi : int
        The narrowest: every sample allows what lies within them.
    without_self : bool
        Whether j = i may be closed within the bounds.
    sloped : bool
        Whether a distance may be added to the scores.
    """

    heads: slice
    alike: bool
    lo: int
    hi: int
    inner_lo: int
    inner_hi: int
    without_self: bool
    sloped: bool

    def keys(self, rows: slice, length: int) -> slice:
        """The keys that any of these queries may attend to; empty: stop is not beyond start."""
        if rows.start == 0 and rows.stop == length:
            return slice(0, length)
        return slice(max(0, rows.start - self.hi), min(length, rows.stop - self.lo))

    def edge(self, rows: slice, keys: slice) -> slice:
        """The keys among them that are not simply open to all of these queries."""
        start, stop = keys.start, keys.stop
        first = max(start, rows.stop - 1 - self.inner_hi)  # i - j <= inner_hi for the last query
        last = min(stop, rows.start - self.inner_lo + 1)  # i - j >= inner_lo for the first one
        if self.sloped or first >= last or (first > start and last < stop):
            return slice(start, stop)
        found = slice(last, stop) if first == start else slice(start, first)
        if not self.without_self:
            return found
        if found.start == found.stop:
            return slice(max(start, rows.start), max(start, min(stop, rows.stop)))
        return slice(
            min(found.start, max(start, rows.start)), max(found.stop, min(stop, rows.stop))
        )


def groups(geometry: Geometry, length: int) -> list[Group]:
    """Neighbouring heads whose geometry is the same in every sample."""
    heads = geometry.lo.shape[0]
    numbers = _numbers(geometry)
    if numbers is None:
        every = slice(0, heads)
        return [Group(every, False, -length, length, length, -length, True, True)]
    found: list[Group] = []
    start = 0
    for h in range(1, heads + 1):
        if h < heads and numbers[h] == numbers[start]:
            continue
        lo, hi, without_self, slope = numbers[start]
        found.append(
            Group(
                slice(start, h), True, min(lo), max(hi), max(lo), min(hi), without_self, slope != 0
            )
        )
        start = h
    return found


_read: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""``lo`` of a geometry on a device -> its other tensors, and the numbers of all of them."""


def _numbers(geometry: Geometry) -> list[tuple[Any, ...]] | None:
    """Of each head: lo and hi by sample, without_self, slope; None where nobody may read them.

    A geometry is made once and never written to: on a device it is waited for once.
    """
    if torch.compiler.is_compiling():
        return None
    lo, *others = geometry
    if lo in _read:
        known, numbers = _read[lo]
        if all(one is other for one, other in zip(known, others, strict=True)):
            return numbers
    if not host_can_decide(lo):
        return None
    numbers = list(zip(*(t.tolist() for t in geometry), strict=True))
    if lo.device.type != "cpu":
        _read[lo] = others, numbers
    return numbers


def steps(
    group: Group, batch: int, length: int, width: int, device: str, item_bytes: int
) -> tuple[int, int, int]:
    """How many heads, samples and queries are computed at once.

    Parameters
    ----------
    batch, length, width : int
        B, N and d of the queries, keys or values (the widest).
    device : str
        Its type.
    item_bytes : int
        Of one score.
    """
    size = group.heads.stop - group.heads.start
    if torch.compiler.is_compiling():
        pairs, few = COMPILED_SCORE_BYTES // item_bytes, True
    else:
        pairs = SCORE_BYTES["cpu" if device == "cpu" else "cuda"] // item_bytes
        few = device != "cpu" or batch == 1 or batch * length * width <= FEW
    rows = length if length <= SHORT else min(length, max(LEAST_QUERIES, pairs // length))
    sequences = max(1, pairs // (rows * length))
    if not few or sequences < 2 * batch:
        return 1, min(batch, sequences), rows
    return min(size, sequences // batch), batch, rows


def cuts(start: int, stop: int, step: int) -> list[slice]:
    """Consecutive slices of at most `step`."""
    if step >= stop - start:
        return [slice(start, stop)]
    return [slice(at, min(at + step, stop)) for at in range(start, stop, step)]


def bias(
    geometry: Geometry,
    group: Group,
    heads: slice,
    samples: slice,
    rows: slice,
    keys: slice,
    dtype: torch.dtype,
) -> Tensor:
    """What is added to the scores of these queries and keys: -inf, 0 or ``-slope * |i - j|``.

    Returns
    -------
    Tensor, shape [h or 1, b or 1, R, C]
        One for all heads, or samples, where their geometry is the same.
    """
    some = slice(heads.start, heads.start + 1) if group.alike else heads
    whose = samples if geometry.lo.shape[1] > 1 else slice(0, 1)
    device = geometry.lo.device
    i = torch.arange(rows.start, rows.stop, device=device, dtype=torch.int32)[:, None]
    apart = i - torch.arange(keys.start, keys.stop, device=device, dtype=torch.int32)  # [R, C]
    lo, hi = (t[some, whose, None, None] for t in (geometry.lo, geometry.hi))  # [h, b, 1, 1]
    closed = (apart < lo) | (apart > hi)  # [h, b, R, C]
    if group.without_self:
        closed = closed | ((apart == 0) & geometry.without_self[some, None, None, None])
    added = torch.zeros(closed.shape, dtype=dtype, device=device)
    if group.sloped:
        slope = geometry.slope[some, None, None, None].to(dtype)
        added = added - slope * apart.abs().to(dtype)
    return added.masked_fill(closed, float("-inf"))
