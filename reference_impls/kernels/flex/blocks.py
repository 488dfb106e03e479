"""Ranges of keys as FlexAttention's lists of blocks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.functional import pad

from reference_impls.compiled_flex import BLOCK, listed
from reference_impls.kernels.caching import TensorCache
from reference_impls.kernels.geometry import Geometry


def block_mask(geometry: Geometry, mask: Tensor | None, batch: int, length: int) -> BlockMask:
    """The blocks of keys of each block of queries; kept for a geometry where nothing is padded."""
    if mask is not None:
        return _made(geometry, mask, batch, length)
    # A Geometry is frozen and its tensors are never written to: known by their identity.
    key = (geometry, batch, length)
    return _cache.of(key, geometry.lo.device, lambda: _made(geometry, None, batch, length))


_cache: TensorCache[BlockMask] = TensorCache(16)


def _made(geometry: Geometry, mask: Tensor | None, batch: int, length: int) -> BlockMask:
    heads, device = geometry.lo.shape[0], geometry.lo.device
    lo, hi = (t.expand(heads, batch).contiguous() for t in (geometry.lo, geometry.hi))
    without_self = geometry.without_self
    first = torch.arange(0, length, BLOCK, device=device)
    last = (first + BLOCK).clamp(max=length) - 1
    # Least and largest i - j of blocks of queries (rows) and of keys (columns).
    least, most = first[:, None] - last, last[:, None] - first  # [blocks, blocks]
    # What a sample's blocks differ in is its padding and its ranges: else they are one for all.
    one = mask is None and geometry.lo.shape[1] == 1
    low, high = (t[:, :1] if one else t for t in (lo, hi))
    low, high = (t.T[:, :, None, None] for t in (low, high))  # [B or 1, H, 1, 1]
    some = (least <= high) & (most >= low)
    full = (
        (least >= low)
        & (most <= high)
        & ~(without_self[:, None, None] & (least <= 0) & (most >= 0))
    )
    # FlexAttention's full blocks are read to their ends.
    full = full & (first + BLOCK <= length)
    if mask is not None:
        tiled = pad(mask, (0, -length % BLOCK)).unflatten(1, (-1, BLOCK))  # [B, blocks, BLOCK]
        some = some & tiled.any(-1)[:, None, :, None] & tiled.any(-1)[:, None, None, :]
        full = full & tiled.all(-1)[:, None, None, :]
    full = full & some

    def in_range(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        inside = (i - j >= lo[h, b]) & (i - j <= hi[h, b])
        return inside & ((i != j) | ~without_self[h])

    real = mask
    if real is None:
        allowed = in_range
    else:

        def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return in_range(b, h, i, j) & real[b, j]

    return BlockMask.from_kv_blocks(
        *listed(some & ~full),
        *listed(full),
        BLOCK_SIZE=BLOCK,
        mask_mod=allowed,
        seq_lengths=(length, length),
    )
