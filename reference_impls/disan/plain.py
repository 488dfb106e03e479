"""The stable yardstick: both parts' own yardsticks."""

from __future__ import annotations

from torch import Tensor

from reference_impls.disa.plain import PlainDisa
from reference_impls.disan.layer import DisanLayer
from reference_impls.source2token.plain import PlainSource2Token


class PlainDisan(DisanLayer):
    """`DisanLayer` from `PlainDisa` and `PlainSource2Token`."""

    fusion_type = PlainDisa
    pooling_type = PlainSource2Token

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, d_out]; ``rows`` is ignored, there is one output per sequence."""
        return super().forward(x, mask)
