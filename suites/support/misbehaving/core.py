"""The honest attention that every module of the family is, but for one thing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class ScaledBackward(torch.autograd.Function):
    """The same numbers; their gradient is multiplied by a factor on its way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.factor * gradient, None


class Attention(torch.nn.Module):
    """Attention of one head: honest, and what a user would write."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.query = torch.nn.Linear(d_in, d_out, bias=False)
        self.key = torch.nn.Linear(d_in, d_out, bias=False)
        self.value = torch.nn.Linear(d_in, d_out)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x.masked_fill(~mask[..., None], 0)
        out = self.attend(self.query(x), self.key(x), self.value(x), mask)
        return out.masked_fill(~mask[..., None], 0)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """The weighted mean [B, N, D] of the values at real tokens."""
        return self.weigh(q @ k.mT * q.shape[-1] ** -0.5, mask) @ v

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Softmax of the scores [B, N, N] over the real tokens."""
        # The least number, not minus infinity: a sample without tokens then has no NaN.
        least = torch.finfo(scores.dtype).min
        return scores.masked_fill(~mask[:, None, :], least).softmax(-1)
