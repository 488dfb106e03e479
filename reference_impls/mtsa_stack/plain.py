"""The stable yardstick: in every layer the tensor of N x N x d_h scores and its softmax."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from reference_impls.mtsa.plain import PlainAttention
from reference_impls.mtsa_stack.layer import StackedLayer

STEP = 64
"""Queries whose scores are held at once where positions are named."""


class PlainStackedMTSA(PlainAttention, StackedLayer):
    """`StackedLayer` with the tensor of scores; memory B * N * N * d_out for each layer.

    For some output positions (a look at long sequences) memory is B * `STEP` * N * d_out.
    """

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 10-12; named positions a few at a time, computed again for their gradients."""
        attend = super().attend
        if rows is None or len(rows) <= STEP:
            return attend(q, k, v, s, mask, rows)
        parts = [
            checkpoint(attend, q, k, v, s, mask, some, use_reentrant=False)
            for some in rows.split(STEP)
        ]
        return torch.cat(parts, dim=2)  # [H, B, R, d_h]
