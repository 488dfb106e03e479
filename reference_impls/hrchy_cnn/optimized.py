"""Hierarchical CNN by torch's convolution and `glu`, and by products of matrices."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import glu

from reference_impls.checks import zero_at_padding
from reference_impls.convolution import convolved, multiplied
from reference_impls.hrchy_cnn.layer import HrchyCnnLayer


class ConvHrchyCnn(HrchyCnnLayer):
    """`HrchyCnnLayer` by one convolution for each layer."""

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """[B, N, D] by weight [k, D, F] and bias [F] -> [B, N, F]."""
        k = weight.shape[0]
        front = (k - 1) // 2
        return convolved(x, weight, bias, front, k - 1 - front)

    def stack(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Features stay last from end to end."""
        y = x
        for i in range(self.layers):
            if i:  # x is zero at padding already
                y = zero_at_padding(y, mask)
            z = self.convolve(y, *self.weights(i))  # [B, N, 2 * d_out]
            gated = glu(z.relu() if self.form == "released" else z)
            y = gated + y if i else gated
        return y


class GemmHrchyCnn(ConvHrchyCnn):
    """`HrchyCnnLayer` by one product for each layer."""

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """As `ConvHrchyCnn.convolve`."""
        return multiplied(x, [weight], bias, [(weight.shape[0] - 1) // 2], x.shape[1])
