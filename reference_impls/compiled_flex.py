"""torch's FlexAttention, compiled; never the uncompiled form, which holds all scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

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
