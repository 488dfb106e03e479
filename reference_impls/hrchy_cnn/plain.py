"""The stable yardstick: an explicit sum over the taps of each kernel, the gate written out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from reference_impls.checks import zero_at_padding
from reference_impls.hrchy_cnn.layer import HrchyCnnLayer


class PlainHrchyCnn(HrchyCnnLayer):
    """`HrchyCnnLayer` with one product per tap."""

    def stack(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Each layer is y = z[:h] * sigmoid(z[h:]), plus the layer before."""
        y = x
        for i in range(self.layers):
            z = self._convolve(zero_at_padding(y, mask), *self.weights(i))
            if self.form == "released":
                z = z.relu()
            value, gate = z.chunk(2, dim=-1)  # [B, N, d_out]
            gated = value * torch.sigmoid(gate)
            y = gated + y if i else gated
        return y

    def _convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """z_i = b + sum over t of x_{i + t - front} w_t."""
        k, n = weight.shape[0], x.shape[1]
        front = (k - 1) // 2
        padded = pad(x, (0, 0, front, k - 1 - front))  # [B, N + k - 1, D]
        z = padded[:, :n] @ weight[0]  # [B, N, 2*d_out]
        for t in range(1, k):
            z = z + padded[:, t : t + n] @ weight[t]
        return z + bias

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the positions ``rows`` [R]; None is all N.

        All positions are computed; ``rows`` picks.
        """
        out = super().forward(x, mask)
        return out if rows is None else out[:, rows]
