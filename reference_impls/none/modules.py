"""No context fusion: the weights of one dense layer, step by step and in one call."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import linear

from reference_impls.checks import (
    activation_by_name,
    check_input,
    glorot,
    layer_of,
    zero_at_padding,
    zero_bias,
)


@layer_of("none")
class NoneLayer(nn.Module):
    """f(x map_w + map_b): no token sees another.

    Parameters
    ----------
    d_in, d_out : int
    activation : {"relu", "elu", "selu"}
        f.
    """

    def __init__(self, d_in: int, d_out: int, *, activation: str = "relu") -> None:
        super().__init__()
        self.d_in = d_in
        self.activation = activation_by_name(activation)
        self.map_w, self.map_b = glorot(d_in, d_out), zero_bias(d_out)

    def map(self, x: Tensor) -> Tensor:
        """The dense layer before its activation, [B, N, D] -> [B, N, d_out]."""
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out]."""
        check_input(x, mask, self.d_in)
        return zero_at_padding(self.activation(self.map(zero_at_padding(x, mask))), mask)


class PlainNone(NoneLayer):
    """`NoneLayer` step by step."""

    def map(self, x: Tensor) -> Tensor:
        """The product, then the bias."""
        return x @ self.map_w + self.map_b

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the positions ``rows`` [R]; None is all N."""
        if rows is not None:
            x, mask = x[:, rows], None if mask is None else mask[:, rows]
        return super().forward(x, mask)


class FusedNone(NoneLayer):
    """`NoneLayer` by `torch.nn.functional.linear`."""

    def map(self, x: Tensor) -> Tensor:
        """One call; the transpose is a view."""
        return linear(x, self.map_w.mT, self.map_b)
