"""Which keys a query may attend to, as a kernel reads it: a range of ``i - j`` per head and sample.

`reference_impls.masks` says it in words; here it is numbers on the device, so that kernels can skip
whole tiles and nobody needs a mask of N x N.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from reference_impls.kernels.caching import TensorCache
from reference_impls.masks import HeadMask

LENGTHS_CACHED = 64
"""Geometries are small, but lengths may be many."""
SINGLE: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""Slopes of geometries that are kept -> the same in float32, where kernels want that."""


class Geometry(NamedTuple):
    """Key j is open to query i of head h in sample b if ``lo <= i - j <= hi``.

    Attributes
    ----------
    lo, hi : Tensor of int32, shape [H, B] or [H, 1]
        Bounds of i - j; -N and N where there are none.
    without_self : Tensor of bool, shape [H]
        Whether j = i is closed although it lies within the bounds.
    slope : Tensor of float64, shape [H]
        ``-slope * |i - j|`` is added to the score. In float32 a slope of 0.7 would be wrong by
        1e-8, too much for scores in float64.
    """

    lo: Tensor
    hi: Tensor
    without_self: Tensor
    slope: Tensor

    def open_keys(self, length: int, mask: Tensor | None) -> Tensor:
        """How many keys each query may attend to: cost H * B * N, nothing of N x N.

        Parameters
        ----------
        length : int
            N.
        mask : Tensor of bool, shape [B, N], or None
            True for real tokens; None is all real.

        Returns
        -------
        Tensor of int64, shape [H, B, N], or [H, 1, N] where neither range nor mask differ by sample
        """
        i = torch.arange(length, device=self.lo.device)
        first = (i - self.hi[..., None]).clamp(0, length)  # [H, B or 1, N]
        last = (i - self.lo[..., None] + 1).clamp(0, length)
        if mask is None:
            count = (last - first).clamp(min=0)
            here = torch.ones_like(count)
        else:
            # before[b, j]: number of real keys in front of j
            before = torch.nn.functional.pad(mask.long().cumsum(1), (1, 0))  # [B, N+1]
            shape = (self.lo.shape[0], mask.shape[0], length)
            before = before.expand(shape[0], *before.shape)
            count = before.gather(2, last.expand(shape)) - before.gather(2, first.expand(shape))
            count = count.clamp(min=0)
            here = mask.long().expand(shape)
        inside = (self.lo <= 0) & (self.hi >= 0) & self.without_self[:, None]  # [H, B or 1]
        return count - here * inside[..., None].long()


class GeometryByLength:
    """The geometry of a layer's masks, made once for each length: on a GPU it has to be copied."""

    def __init__(self, masks: Sequence[HeadMask]) -> None:
        self.masks = masks
        self._cache: TensorCache[Geometry] = TensorCache(LENGTHS_CACHED)

    def of(self, length: int, device: torch.device) -> Geometry:
        """Of this length on this device."""
        key = (length, device)
        return self._cache.of(key, device, lambda: of_masks(self.masks, length, device))


def of_masks(masks: Sequence[HeadMask], length: int, device: torch.device) -> Geometry:
    """The geometry of positional masks, alike for all samples."""
    lo = [-length if mask.lo is None else max(-length, mask.lo) for mask in masks]
    hi = [length if mask.hi is None else min(length, mask.hi) for mask in masks]
    slopes = [mask.slope for mask in masks]
    slope = torch.tensor(slopes, dtype=torch.float64, device=device)
    if not torch.compiler.is_compiling():
        SINGLE[slope] = torch.tensor(slopes, dtype=torch.float32, device=device)
    return Geometry(
        torch.tensor(lo, dtype=torch.int32, device=device)[:, None],
        torch.tensor(hi, dtype=torch.int32, device=device)[:, None],
        torch.tensor([mask.without_self for mask in masks], device=device),
        slope,
    )
