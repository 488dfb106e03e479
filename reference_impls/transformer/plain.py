"""The stable yardstick: the scores of every head and their softmax."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reference_impls.checks import core_dtype, masked_softmax
from reference_impls.transformer.layer import TransformerLayers


def plain_attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Eq. 2, step by step: [B, H, M, d_h] -> the same; memory B * H * M * M."""
    r = q @ k.mT / math.sqrt(q.shape[-1])  # [B, H, M, M]
    keys = torch.ones(r.shape[-1], dtype=torch.bool, device=r.device)
    if mask is not None:
        keys = mask[:, None, None, :]  # [B, 1, 1, M]
    return masked_softmax(r.to(core_dtype(r.dtype)), keys, dim=-1).to(v.dtype) @ v


class PlainTransformer(TransformerLayers):
    """`TransformerLayers` with an explicit softmax."""

    attend = staticmethod(plain_attend)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, d_out]; ``rows`` is ignored, there is one output per sequence."""
        return super().forward(x, mask)
