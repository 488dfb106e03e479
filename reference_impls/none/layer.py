"""No context fusion: the weights of one dense layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from reference_impls.checks import (
    activation_by_name,
    check_input,
    glorot,
    refuse_unknown,
    zero_at_padding,
    zero_bias,
)


class NoneLayer(nn.Module):
    """f(x map_w + map_b): no token sees another.

    Parameters
    ----------
    d_in, d_out : int
    activation : {"relu", "elu", "selu"}
        f.

    Raises
    ------
    BadOption
        For a configuration that does not exist.
    """

    def __init__(self, d_in: int, d_out: int, *, activation: str = "relu", **unknown: Any) -> None:
        super().__init__()
        refuse_unknown("none", unknown, ("activation",))
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
