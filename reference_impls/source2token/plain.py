"""The stable yardstick: the softmax over tokens written out."""

from __future__ import annotations

import torch
from torch import Tensor

from reference_impls.checks import masked_softmax
from reference_impls.source2token.layer import Source2TokenLayer


class PlainSource2Token(Source2TokenLayer):
    """`Source2TokenLayer` with an explicit softmax."""

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """p_jl = softmax over real j of s_jl; sum over j of p_jl x_jl."""
        real = torch.ones_like(s[..., 0], dtype=torch.bool) if mask is None else mask
        p = masked_softmax(s, real[..., None], dim=1)  # [B, N, D]
        return (p * x).sum(1)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, D] -> [B, D]; ``rows`` is ignored, there is one output per sequence."""
        return super().forward(x, mask)
