"""The Multi-Scale Transformer over all pairs, and over windows alone."""

from __future__ import annotations

from reference_impls.msmsa.optimized import masked_mix
from reference_impls.msmsa.windowed import windowed_mix
from reference_impls.multi_scale_transformer.layer import MultiScaleLayers


class MaskedMultiScaleTransformer(MultiScaleLayers):
    """`MultiScaleLayers` by fused attention with the windows in its mask."""

    mix = staticmethod(masked_mix)


class WindowedMultiScaleTransformer(MultiScaleLayers):
    """`MultiScaleLayers` in tiles."""

    mix = staticmethod(windowed_mix)
