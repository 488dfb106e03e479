"""DiSAN from its two parts: which implementations of them is left to the subclasses."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from reference_impls.checks import OneRow, layer_of
from reference_impls.disa.fused import FusedDisa
from reference_impls.disa.modules import BroadcastDisa, DisaLayer, PlainDisa
from reference_impls.source2token.modules import (
    DirectSource2Token,
    PlainSource2Token,
    Source2TokenLayer,
)


@layer_of("disan")
class DisanLayer(nn.Module):
    """Forward and backward disa side by side, then multi-dim source2token.

    Parameters
    ----------
    d_in, d_out : int
        Each direction has width d_out / 2.
    activation : {"relu", "elu", "selu"}
        f of both parts.
    tanh_scale : float
        c of disa.

    Attributes
    ----------
    fusion_type, pooling_type : type
        Implementations of the parts.
    """

    fusion_type: ClassVar[type[DisaLayer]]
    pooling_type: ClassVar[type[Source2TokenLayer]]

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        activation: str = "elu",
        tanh_scale: float = 5.0,
    ) -> None:
        super().__init__()
        self.fusion = self.fusion_type(d_in, d_out, activation=activation, tanh_scale=tanh_scale)
        self.pooling = self.pooling_type(d_out, d_out, activation=activation)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, d_out]."""
        return self.pooling(self.fusion(x, mask), mask)


class PlainDisan(OneRow, DisanLayer):
    """`DisanLayer` from `PlainDisa` and `PlainSource2Token`."""

    fusion_type = PlainDisa
    pooling_type = PlainSource2Token


class BroadcastDisan(DisanLayer):
    """`DisanLayer` from `BroadcastDisa` and `DirectSource2Token`."""

    fusion_type = BroadcastDisa
    pooling_type = DirectSource2Token


class FusedDisan(DisanLayer):
    """`DisanLayer` from `FusedDisa` and `DirectSource2Token`."""

    fusion_type = FusedDisa
    pooling_type = DirectSource2Token
