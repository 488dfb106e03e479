"""The stack by stabilised Algorithm 1: matrix products only."""

from __future__ import annotations

from reference_impls.mtsa.optimized import Algorithm1Attention
from reference_impls.mtsa_stack.layer import Centred, StackedLayer


class Algorithm1StackedMTSA(Centred, Algorithm1Attention, StackedLayer):
    """`StackedLayer` by stabilised Algorithm 1; memory B * H * N * N for each layer."""
