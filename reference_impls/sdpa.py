"""torch's fused attention where its gradient may not lie in memory as its output does.

cuDNN's backward pass reads the one by the strides of the other (torch 2.11: wrong numbers, and no
word, on an H200), and torch takes cuDNN for half precision of its own accord.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

HALF = (torch.float16, torch.bfloat16)


class Alike(torch.autograd.Function):
    """A tensor as it is; its gradient with the same strides."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        """The same memory."""
        ctx.strides = values.stride()
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        """What arrives, copied where it lies otherwise."""
        if g.stride() == ctx.strides:
            return g
        return torch.empty_strided(g.shape, ctx.strides, dtype=g.dtype, device=g.device).copy_(g)


def by_cudnn(q: Tensor) -> bool:
    """Whether torch may take cuDNN for these queries."""
    return q.is_cuda and q.dtype in HALF


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """`scaled_dot_product_attention`, with gradients that are right wherever they come from."""
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return Alike.apply(out) if by_cudnn(q) and out.requires_grad else out
