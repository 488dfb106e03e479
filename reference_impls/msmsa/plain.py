"""The stable yardstick: eq. 6 with the N x N scores of every head and their softmax."""

from __future__ import annotations

from torch import Tensor

from reference_impls.checks import core_dtype, masked_softmax
from reference_impls.msmsa.layer import Heads, MsmsaLayer, project, within_windows


def plain_mix(x: Tensor, heads: Heads, mask: Tensor | None, rows: Tensor | None) -> Tensor:
    """Eq. 6 and 9, step by step: [B, N, D] -> [B, R, d_out]; memory B * H * R * N."""
    q, k, v = project(x, heads)
    if rows is not None:
        q = q[:, :, rows]  # [B, H, R, d_h]
    r = q @ k.mT  # [B, H, R, N]
    pairs = within_windows(heads.scales, x.shape[1], mask, x.device, rows)
    p = masked_softmax(r.to(core_dtype(r.dtype)), pairs, dim=-1).to(v.dtype)
    return (p @ v).transpose(1, 2).flatten(2) @ heads.o_w


class PlainMsmsa(MsmsaLayer):
    """`MsmsaLayer` with an explicit softmax."""

    mix = staticmethod(plain_mix)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the query positions ``rows`` [R]; None is all N."""
        return self.fuse(x, mask, rows)
