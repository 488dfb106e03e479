"""The stack on the kernels: one projection a layer, views of it, nothing of N x N."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from reference_impls.mtsa.fused import FusedAttention, parts_of
from reference_impls.mtsa.layer import side_by_side
from reference_impls.mtsa_stack.layer import Centred, StackedLayer


def _side_by_side(q_w: Tensor, k_w: Tensor, v_w: Tensor, s_w: Tensor) -> Tensor:
    """Columns of all four, the queries divided by sqrt(d_h)."""
    return side_by_side(q_w / math.sqrt(q_w.shape[2]), k_w, v_w, s_w)


class FusedStackedMTSA(Centred, FusedAttention, StackedLayer):
    """`StackedLayer` on a kernel; memory B * N * d_out for each layer."""

    def _projected(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `StackedLayer._projected`, with views; the scores' bias is added by the product."""
        weights = [self._w(layer, name) for name in ("q_w", "k_w", "v_w", "s2_w")]
        weight = self.merged.of(_side_by_side, *weights)
        s_b = self._w(layer, "s2_b").flatten()
        bias = nn.functional.pad(s_b, (weight.shape[1] - s_b.shape[0], 0))
        product = torch.addmm(bias, x.reshape(-1, self.d_in), weight)
        q, k, v, s = (
            t.unflatten(1, x.shape[:2])
            for t in parts_of(product, self.heads, [w.shape[2] for w in weights])
        )
        return q, k, v, s
