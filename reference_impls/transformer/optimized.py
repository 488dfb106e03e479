"""The Transformer by torch's fused attention."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from reference_impls.transformer.layer import TransformerLayers


def sdpa_attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Eq. 2, fused: [B, H, M, d_h] -> the same."""
    keys = None if mask is None else mask[:, None, None, :]  # [B, 1, 1, M]
    return scaled_dot_product_attention(q, k, v, attn_mask=keys)


class SdpaTransformer(TransformerLayers):
    """`TransformerLayers` with `torch.nn.functional.scaled_dot_product_attention`."""

    attend = staticmethod(sdpa_attend)
