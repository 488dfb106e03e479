"""The stable yardstick: the softmax over tokens written out."""

from __future__ import annotations

import torch
from torch import Tensor

from reference_impls.additive.layer import AdditiveLayer
from reference_impls.checks import masked_softmax


class PlainAdditive(AdditiveLayer):
    """`AdditiveLayer` with an explicit softmax."""

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """p_j = softmax over real j of s_j; sum over j of p_j x_j."""
        real = torch.ones_like(s, dtype=torch.bool) if mask is None else mask
        p = masked_softmax(s, real, dim=1)  # [B, N]
        return (p[..., None] * x).sum(1)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, D] -> [B, D]; ``rows`` is ignored, there is one output per sequence."""
        return super().forward(x, mask)
