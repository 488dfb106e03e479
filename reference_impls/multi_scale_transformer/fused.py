"""The Multi-Scale Transformer by the kernels for ranges of keys."""

from __future__ import annotations

from reference_impls.msmsa.fused import Fused
from reference_impls.multi_scale_transformer.layer import MultiScaleLayers


class FusedMultiScaleTransformer(Fused, MultiScaleLayers):
    """`MultiScaleLayers` in memory M * d_model, see `reference_impls.msmsa.fused`."""
