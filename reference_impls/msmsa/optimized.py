"""All pairs by torch's fused attention, the windows in its mask."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from reference_impls.checks import refuse_rows
from reference_impls.merged import itself
from reference_impls.msmsa.layer import Heads, MsmsaLayer, project, within_windows


def masked_mix(x: Tensor, heads: Heads, mask: Tensor | None, rows: Tensor | None) -> Tensor:
    """Eq. 6 and 9: [B, N, D] -> [B, N, d_out]; time B * N * N * H * d_h, a mask B * H * N * N."""
    refuse_rows(rows)
    q, k, v = project(x, heads)
    n = x.shape[1]
    pairs = within_windows(heads.scales, n, mask, x.device)
    # A padded query may have no key, and a softmax over nothing is NaN: it gets itself, a zero.
    pairs = pairs | torch.eye(n, dtype=torch.bool, device=x.device)
    out = scaled_dot_product_attention(q, k, v, attn_mask=pairs, scale=1.0)  # [B, H, N, d_h]
    out = out.transpose(1, 2).flatten(2)
    return heads.merged.product(out, itself, heads.o_w).contiguous()


class MaskedMsmsa(MsmsaLayer):
    """`MsmsaLayer` over all pairs."""

    mix = staticmethod(masked_mix)
