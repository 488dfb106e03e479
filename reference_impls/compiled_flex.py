"""torch's FlexAttention, compiled; never the uncompiled form, which holds all scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

BLOCK = 128
"""Queries, and keys, of a block."""
NARROWEST = 16
"""What FlexAttention's products need at least; columns of zeros change none."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_SHAPES = 256
"""Shapes that one process compiles for; beyond them it is an error, not the uncompiled form."""


@cache
def _compiled() -> Callable[..., Tensor]:
    # Made on first use: nothing is compiled for who only lists mechanisms.
    return torch.compile(flex_attention, dynamic=False)


def fused(*arguments: Any, **options: Any) -> Tensor:
    """`flex_attention`, compiled with the caller where that is."""
    if torch.compiler.is_compiling():
        return flex_attention(*arguments, **options)
    limits = {"fail_on_recompile_limit_hit": True, "recompile_limit": MOST_SHAPES}
    with torch._dynamo.config.patch(limits):
        return _compiled()(*arguments, **options)


def listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Number of chosen blocks in each row, and their positions, chosen ones first; int32.

    Contiguous: FlexAttention's kernels go from sample to sample by the heads' stride, and would
    read beyond the end of what stands otherwise (torch 2.11, found on an H200).
    """
    blocks = blocks.contiguous()
    order = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32), order.int()


def wide_enough(values: Tensor) -> Tensor:
    """Heads [..., d] with columns of zeros up to `NARROWEST`."""
    missing = NARROWEST - values.shape[-1]
    return nn.functional.pad(values, (0, missing)) if missing > 0 else values
