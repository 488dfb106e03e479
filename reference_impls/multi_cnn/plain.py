"""The stable yardstick: an explicit sum over the taps of each kernel."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad

from reference_impls.multi_cnn.layer import MultiCnnLayer


class PlainMultiCnn(MultiCnnLayer):
    """`MultiCnnLayer` with one product per tap."""

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """y_i = b + sum over t of x_{i + t - front} w_t."""
        k, n = weight.shape[0], x.shape[1]
        front = (k - 1) // 2
        padded = pad(x, (0, 0, front, k - 1 - front))  # [B, N + k - 1, D]
        y = padded[:, :n] @ weight[0]  # [B, N, F]
        for t in range(1, k):
            y = y + padded[:, t : t + n] @ weight[t]
        return y + bias

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the positions ``rows`` [R]; None is all N.

        All positions are computed; ``rows`` picks.
        """
        out = super().forward(x, mask)
        return out if rows is None else out[:, rows]
