"""The stable yardstick: the tensor of N x N x d_h scores and its softmax."""

from __future__ import annotations

from reference_impls.mtsa.plain import PlainAttention
from reference_impls.mtsa_nmt.layer import TranslationLayer


class PlainTranslationMTSA(PlainAttention, TranslationLayer):
    """`TranslationLayer` with the tensor of scores; memory B * R * N * heads * head_dim."""
