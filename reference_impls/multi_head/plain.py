"""The stable yardstick: eq. 4 with the N x N scores of every head and their softmax."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reference_impls.checks import masked_softmax
from reference_impls.multi_head.layer import MultiHeadLayer, up_to_each


class PlainMultiHead(MultiHeadLayer):
    """`MultiHeadLayer` with an explicit softmax; memory B * H * R * N."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 4, step by step; 0 in a fully padded sample."""
        if rows is not None:
            q = q[:, :, rows]  # [B, H, R, d_h]
        r = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)  # [B, H, R, N]
        n = r.shape[-1]
        keys = torch.ones(n, dtype=torch.bool, device=r.device)
        if mask is not None:
            keys = mask[:, None, None, :]  # [B, 1, 1, N]
        if self.causal:
            before = up_to_each(n, r.device)
            keys = keys & (before if rows is None else before[rows])
        return masked_softmax(r, keys, dim=-1) @ v

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the query positions ``rows`` [R]; None is all N."""
        return self.fuse(x, mask, rows)
