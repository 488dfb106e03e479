"""Multi-window convolution by torch's convolutions, and by products of matrices."""

from __future__ import annotations

from torch import Tensor, cat

from reference_impls.convolution import convolved, multiplied
from reference_impls.multi_cnn.layer import MultiCnnLayer


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
