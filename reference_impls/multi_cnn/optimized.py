"""Multi-window convolution by torch's `conv1d`."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import conv1d, pad

from reference_impls.multi_cnn.layer import MultiCnnLayer


class ConvMultiCnn(MultiCnnLayer):
    """`MultiCnnLayer` by `torch.nn.functional.conv1d`, which is channels first."""

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """conv1d pads alike on both sides; even kernels need one position more behind."""
        k = weight.shape[0]
        front = (k - 1) // 2
        padded = pad(x.mT, (front, k - 1 - front))  # [B, D, N + k - 1]
        return conv1d(padded, weight.permute(2, 1, 0), bias).mT  # [F, D, k] -> [B, N, F]
