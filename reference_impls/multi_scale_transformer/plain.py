"""The stable yardstick: all scores of every head in every layer."""

from __future__ import annotations

from torch import Tensor

from reference_impls.msmsa.plain import plain_mix
from reference_impls.multi_scale_transformer.layer import MultiScaleLayers


class PlainMultiScaleTransformer(MultiScaleLayers):
    """`MultiScaleLayers` with an explicit softmax."""

    mix = staticmethod(plain_mix)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, d_out]; ``rows`` is ignored, there is one output per sequence."""
        return super().forward(x, mask)
