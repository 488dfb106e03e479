"""The translation form by stabilised Algorithm 1: matrix products only."""

from __future__ import annotations

from reference_impls.mtsa.optimized import Algorithm1Attention
from reference_impls.mtsa_nmt.layer import TranslationLayer


class Algorithm1TranslationMTSA(Algorithm1Attention, TranslationLayer):
    """`TranslationLayer` by stabilised Algorithm 1; memory B * H * N * N."""
