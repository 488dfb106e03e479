"""Multi-window convolution: weights, padding, concatenation, and three ways to convolve.

Tap by tap; by torch's convolutions; by products of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, cat, nn
from torch.nn.functional import pad

from reference_impls.checks import (
    check_input,
    glorot,
    positive_int,
    refuse_unknown,
    weight_of,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.convolution import convolved, multiplied
from reference_impls.mechanism import BadOption


class MultiCnnLayer(nn.Module):
    """Convolutions with several kernel sizes side by side, each followed by relu.

    Parameters
    ----------
    d_in, d_out : int
        Every kernel size k has d_out / len(kernel_sizes) filters, weights ``w<k>`` [k, d_in, F]
        and ``b<k>`` [F].
    kernel_sizes : sequence of int
        All different. A kernel of size k reads (k-1)//2 positions in front, the rest behind.

    Raises
    ------
    BadOption
        For a configuration that does not exist.
    """

    def __init__(
        self, d_in: int, d_out: int, *, kernel_sizes: Sequence[int] = (3, 4, 5), **unknown: Any
    ) -> None:
        super().__init__()
        refuse_unknown("multi_cnn", unknown, ("kernel_sizes",))
        if isinstance(kernel_sizes, str) or not isinstance(kernel_sizes, Sequence):
            raise BadOption(f"kernel_sizes={kernel_sizes!r}; expected a list of integers")
        if not kernel_sizes or len(set(kernel_sizes)) != len(kernel_sizes):
            raise BadOption(f"kernel_sizes={list(kernel_sizes)}; expected different integers")
        self.d_in = d_in
        self.kernel_sizes = tuple(positive_int("kernel_sizes", k) for k in kernel_sizes)
        filters = width_per_part(d_out, len(self.kernel_sizes), "kernel sizes")
        for k in self.kernel_sizes:
            self.register_parameter(f"w{k}", glorot(k, d_in, filters, taps=k))
            self.register_parameter(f"b{k}", zero_bias(filters))

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """[B, N, D] by weight [k, D, F] and bias [F] -> [B, N, F], before relu."""
        raise NotImplementedError

    def side_by_side(self, x: Tensor) -> Tensor:
        """All kernel sizes, before relu: [B, N, D] -> [B, N, d_out], a tensor of its own."""
        return torch.cat([self.convolve(x, *weights) for weights in self.weights()], dim=-1)

    def weights(self) -> list[tuple[Tensor, Tensor]]:
        """Weight [k, D, F] and bias [F] of each kernel size."""
        return [(weight_of(self, f"w{k}"), weight_of(self, f"b{k}")) for k in self.kernel_sizes]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out]."""
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        return zero_at_padding(self.side_by_side(x).relu_(), mask)  # [B, N, d_out]


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


class ConvMultiCnn(MultiCnnLayer):
    """`MultiCnnLayer` by one convolution for each kernel size."""

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Even kernels need one position more behind."""
        k = weight.shape[0]
        front = (k - 1) // 2
        return convolved(x, weight, bias, front, k - 1 - front)


class GemmMultiCnn(MultiCnnLayer):
    """`MultiCnnLayer` by one product for each kernel size; the windows are copied once for all."""

    def side_by_side(self, x: Tensor) -> Tensor:
        """All kernel sizes read parts of the same rows."""
        weights, biases = zip(*self.weights(), strict=True)
        fronts = [(k - 1) // 2 for k in self.kernel_sizes]
        return multiplied(x, weights, cat(biases), fronts, x.shape[1])
