"""Hierarchical CNN: its weights; convolutions tap by tap, by torch, and by products of matrices."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import glu

from reference_impls.checks import (
    PicksRows,
    check_input,
    glorot,
    layer_of,
    one_of,
    positive_int,
    weight_of,
    zero_at_padding,
    zero_bias,
)
from reference_impls.convolution import around, convolved, multiplied, tap_by_tap


@layer_of("hrchy_cnn")
class HrchyCnnLayer(nn.Module):
    """Convolutions with gated linear units on top of each other; residual from the second on.

    Parameters
    ----------
    d_in, d_out : int
        Layer i has weights ``l<i>_w`` [k, d_in or d_out, 2*d_out] and ``l<i>_b`` [2*d_out].
    layers, kernel_size : int
        A kernel of size k reads (k-1)//2 positions in front, the rest behind.
    form : {"paper", "released"}
        paper: padding is zero before every layer, so that its amount does not matter. released:
        relu before the gate, and padding is zero before the first layer only.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        layers: int = 3,
        kernel_size: int = 5,
        form: str = "paper",
    ) -> None:
        super().__init__()
        self.d_in = d_in
        self.layers = positive_int("layers", layers)
        k = positive_int("kernel_size", kernel_size)
        self.form = one_of("form", form, ("paper", "released"))
        for i in range(self.layers):
            fan_in = d_in if i == 0 else d_out
            self.register_parameter(f"l{i}_w", glorot(k, fan_in, 2 * d_out, taps=k))
            self.register_parameter(f"l{i}_b", zero_bias(2 * d_out))

    def weights(self, i: int) -> tuple[Tensor, Tensor]:
        """Weight [k, in, 2*d_out] and bias [2*d_out] of layer i."""
        return weight_of(self, f"l{i}_w"), weight_of(self, f"l{i}_b")

    def stack(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """All layers: [B, N, d_in], zero at padding -> [B, N, d_out].

        ``mask`` [B, N] is to be zeroed at between the layers, None if nothing is.
        """
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out]."""
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        return zero_at_padding(self.stack(x, mask if self.form == "paper" else None), mask)


class PlainHrchyCnn(PicksRows, HrchyCnnLayer):
    """`HrchyCnnLayer` with one product per tap."""

    def stack(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Each layer is y = z[:h] * sigmoid(z[h:]), plus the layer before."""
        y = x
        for i in range(self.layers):
            weight, bias = self.weights(i)
            z = tap_by_tap(zero_at_padding(y, mask), weight, bias, *around(weight.shape[0]))
            if self.form == "released":
                z = z.relu()
            value, gate = z.chunk(2, dim=-1)  # [B, N, d_out]
            gated = value * torch.sigmoid(gate)
            y = gated + y if i else gated
        return y


class ConvHrchyCnn(HrchyCnnLayer):
    """`HrchyCnnLayer` by one convolution for each layer."""

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """[B, N, D] by weight [k, D, F] and bias [F] -> [B, N, F]."""
        return convolved(x, weight, bias, *around(weight.shape[0]))

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
        return multiplied(x, [weight], bias, [around(weight.shape[0])[0]], x.shape[1])
