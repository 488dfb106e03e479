"""The stable yardstick: an explicit sum over the taps of each kernel, then the maximum."""

from __future__ import annotations

import math

from torch import Tensor

from reference_impls.kim_cnn.layer import KimCnnLayer


class PlainKimCnn(KimCnnLayer):
    """`KimCnnLayer` with one product per tap."""

    def largest(self, x: Tensor, weight: Tensor, bias: Tensor, closed: Tensor | None) -> Tensor:
        """z_i = b + sum over t of x_{i+t} w_t for every window i, and its maximum."""
        k = weight.shape[0]
        windows = x.shape[1] - k + 1
        z = x[:, :windows] @ weight[0]  # [B, W, F]
        for t in range(1, k):
            z = z + x[:, t : t + windows] @ weight[t]
        z = z + bias
        if closed is not None:
            z = z.masked_fill(closed[..., None], -math.inf)
        return z.amax(1)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, d_out]; ``rows`` is ignored, there is one output per sequence."""
        return super().forward(x, mask)
