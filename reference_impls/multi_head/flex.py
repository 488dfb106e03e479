"""Multi-head attention by FlexAttention: kernels that torch generates on first use (CUDA)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.functional import pad

from reference_impls.checks import refuse_rows
from reference_impls.compiled_flex import BLOCK, DTYPES, fused, listed, wide_enough
from reference_impls.mechanism import Unsupported
from reference_impls.multi_head.modules import MultiHeadLayer, up_to_each, visible_keys


def real_keys_only(visible: Tensor, causal: bool = False) -> BlockMask:
    """What FlexAttention is to compute, told without waiting for the device.

    Parameters
    ----------
    visible : Tensor of bool, shape [B, N]
        Keys that count; every sample has one.
    causal : bool
        Whether a query sees only keys up to its own place; it may then see none.

    Returns
    -------
    BlockMask
        Blocks of keys that hold a visible one, and which keys within them.
    """
    n = visible.shape[1]
    blocks = -(-n // BLOCK)
    some = pad(visible, (0, blocks * BLOCK - n)).unflatten(1, (blocks, BLOCK)).any(-1)  # [B, K]
    if causal:
        some = some[:, None, None] & up_to_each(blocks, visible.device)  # [B, 1, Q, K]
    else:
        some = some[:, None, None]  # [B, 1, 1, K]

    def is_visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return visible[b, j] & (i >= j) if causal else visible[b, j]

    return BlockMask.from_kv_blocks(
        *listed(some.expand(-1, 1, blocks, -1)),  # [B, 1, Q], [B, 1, Q, K]
        BLOCK_SIZE=BLOCK,
        mask_mod=is_visible,
        seq_lengths=(n, n),
    )


class FlexMultiHead(MultiHeadLayer):
    """`torch.nn.attention.flex_attention`, forward and backward.

    Notes
    -----
    `forward` raises `Unsupported` away from CUDA, where it has no backward pass, and for float64.
    """

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 4, fused."""
        refuse_rows(rows)
        if q.device.type != "cuda":
            raise Unsupported(f"flex runs on CUDA only, x is on {q.device.type}; take sdpa")
        if q.dtype not in DTYPES:
            name = str(q.dtype).removeprefix("torch.")
            raise Unsupported(f"flex takes float32, bfloat16 and float16, not {name}; take sdpa")
        return flexed(q, k, v, mask, 1 / math.sqrt(self.head_dim), fused, self.causal)


def flexed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scale: float,
    fused: Callable[..., Tensor],
    causal: bool = False,
) -> Tensor:
    """Eq. 4 by a function that is called as `flex_attention`: [B, H, N, d_h] -> the same."""
    width = q.shape[-1]
    q, k, v = map(wide_enough, (q, k, v))
    if mask is not None:
        blocks = real_keys_only(visible_keys(mask), causal)
    elif causal:
        every = torch.ones(q.shape[0], q.shape[2], dtype=torch.bool, device=q.device)  # [B, N]
        blocks = real_keys_only(every, causal)
    else:
        blocks = None
    return fused(q, k, v, block_mask=blocks, scale=scale)[..., :width]
