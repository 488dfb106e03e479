"""The stable yardstick: the tensor of N x N x d scores and its softmax, step by step."""

from __future__ import annotations

import torch
from torch import Tensor

from reference_impls.checks import masked_softmax
from reference_impls.disa.layer import DisaLayer
from reference_impls.masks import HeadMask, allowed


class PlainDisa(DisaLayer):
    """`DisaLayer` with an explicit softmax; memory B * R * N * d_out, several times."""

    def attend(
        self,
        h: Tensor,
        dependent: Tensor,
        head: Tensor,
        direction: HeadMask,
        mask: Tensor | None,
        rows: Tensor | None,
    ) -> Tensor:
        """MTSA eq. 6, the softmax over j, and the weighted sum."""
        if rows is not None:
            head = head[:, rows]  # [B, R, d]
        c = self.tanh_scale
        e = c * torch.tanh((dependent[:, None] + head[:, :, None]) / c)  # [B, R, N, d]
        pairs = allowed((direction,), h.shape[1], h.device, rows)  # [1, R, N]
        if mask is not None:
            pairs = pairs & mask[:, None]  # [B, R, N]
        p = masked_softmax(e, pairs[..., None], dim=2)  # [B, R, N, d]
        return (p * h[:, None]).sum(2)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the query positions ``rows`` [R]; None is all N."""
        return self.fuse(x, mask, rows)
