"""Hierarchical CNN by torch's `conv1d` and `glu`, channels first from end to end."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import conv1d, glu, pad

from reference_impls.hrchy_cnn.layer import HrchyCnnLayer


class ConvHrchyCnn(HrchyCnnLayer):
    """`HrchyCnnLayer` that turns the axes once, not for every layer."""

    def stack(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """conv1d pads alike on both sides; even kernels need one position more behind."""
        y = x.mT  # [B, d_in, N]
        padded = None if mask is None else ~mask[:, None]  # [B, 1, N]
        for i in range(self.layers):
            if padded is not None and i:  # x is zero there already
                y = y.masked_fill(padded, 0)
            weight, bias = self.weights(i)
            k = weight.shape[0]
            wider = y if k % 2 else pad(y, (0, 1))
            z = conv1d(wider, weight.permute(2, 1, 0), bias, padding=(k - 1) // 2)
            gated = glu(z.relu() if self.form == "released" else z, dim=1)  # [B, d_out, N]
            y = gated + y if i else gated
        return y.mT
