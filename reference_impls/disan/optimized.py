"""DiSAN from the optimised parts."""

from __future__ import annotations

from reference_impls.disa.optimized import BroadcastDisa
from reference_impls.disan.layer import DisanLayer
from reference_impls.source2token.optimized import DirectSource2Token


class BroadcastDisan(DisanLayer):
    """`DisanLayer` from `BroadcastDisa` and `DirectSource2Token`."""

    fusion_type = BroadcastDisa
    pooling_type = DirectSource2Token
