"""Multi-window convolution: weights, padding, concatenation, and three ways to convolve.

Tap by tap; by torch's convolutions; by products of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, cat

from reference_impls.checks import PicksRows, check_input, layer_of, zero_at_padding
from reference_impls.convolution import KernelSizes, around, convolved, multiplied, tap_by_tap


@layer_of("multi_cnn")
class MultiCnnLayer(KernelSizes):
    """Convolutions with several kernel sizes side by side, each followed by relu.

    A kernel of size k reads (k-1)//2 positions in front, the rest behind.

    Parameters
    ----------
    d_in, d_out, kernel_sizes
        As for `KernelSizes`.
    """

    def __init__(self, d_in: int, d_out: int, *, kernel_sizes: Sequence[int] = (3, 4, 5)) -> None:
        super().__init__(d_in, d_out, kernel_sizes)

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """[B, N, D] by weight [k, D, F] and bias [F] -> [B, N, F], before relu."""
        raise NotImplementedError

    def side_by_side(self, x: Tensor) -> Tensor:
        """All kernel sizes, before relu: [B, N, D] -> [B, N, d_out], a tensor of its own."""
        return cat([self.convolve(x, *weights) for weights in self.weights()], dim=-1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out]."""
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        return zero_at_padding(self.side_by_side(x).relu_(), mask)  # [B, N, d_out]


class PlainMultiCnn(PicksRows, MultiCnnLayer):
    """`MultiCnnLayer` with one product per tap."""

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """y_i = b + sum over t of x_{i + t - front} w_t."""
        return tap_by_tap(x, weight, bias, *around(weight.shape[0]))


class ConvMultiCnn(MultiCnnLayer):
    """`MultiCnnLayer` by one convolution for each kernel size."""

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Even kernels need one position more behind."""
        return convolved(x, weight, bias, *around(weight.shape[0]))


class GemmMultiCnn(MultiCnnLayer):
    """`MultiCnnLayer` by one product for each kernel size; the windows are copied once for all."""

    def side_by_side(self, x: Tensor) -> Tensor:
        """All kernel sizes read parts of the same rows."""
        weights, biases = zip(*self.weights(), strict=True)
        fronts = [around(k)[0] for k in self.kernel_sizes]
        return multiplied(x, weights, cat(biases), fronts, x.shape[1])
