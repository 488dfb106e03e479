"""The stable yardstick: every softmax written out, masked."""

from __future__ import annotations

import torch
from torch import Tensor

from reference_impls.biblosa.layer import BiblosaLayer
from reference_impls.checks import masked_softmax
from reference_impls.masks import HeadMask, allowed


class PlainBiblosa(BiblosaLayer):
    """`BiblosaLayer` with explicit softmaxes; memory B * d_out * (N*r + m*m), several times."""

    def attend(
        self, h: Tensor, dependent: Tensor, head: Tensor, direction: HeadMask, real: Tensor | None
    ) -> Tensor:
        """The scores, the softmax over j, and the weighted sum."""
        c = self.tanh_scale
        e = c * torch.tanh((dependent[:, None] + head[:, :, None]) / c)  # [G, L, L, d]
        pairs = allowed((direction,), h.shape[1], h.device)  # [1, L, L]
        if real is not None:
            pairs = pairs & real[:, None]  # [G, L, L]
        p = masked_softmax(e, pairs[..., None], dim=2)
        return (p * h[:, None]).sum(2)

    def summarise(self, a: Tensor, z: Tensor, real: Tensor) -> Tensor:
        """The softmax over a block's real tokens, and the weighted sum."""
        return (masked_softmax(z, real[..., None], dim=2) * a).sum(2)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the positions ``rows`` [R]; None is all N.

        All positions are computed; ``rows`` picks.
        """
        out = super().forward(x, mask)
        return out if rows is None else out[:, rows]
