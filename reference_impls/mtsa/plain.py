"""The stable yardstick: eq. 10-12 with the tensor of N x N x d_h scores and its softmax."""

from __future__ import annotations

from torch import Tensor

from reference_impls.checks import masked_softmax
from reference_impls.masks import allowed, distance_bias
from reference_impls.mtsa.layer import PaperLayer, ReleasedLayer, TensorizedLayer, scaled


def tensor_softmax(
    r: Tensor, s: Tensor, v: Tensor, allowed_pairs: Tensor, bias: Tensor | None, scale_t: str
) -> Tensor:
    """Eq. 10-12 with the whole tensor of scores, the maximum over the keys subtracted.

    Parameters
    ----------
    r : Tensor, shape [..., R, N]
        Token2token scores (eq. 8).
    s, v : Tensor, shape [..., N, d_h]
        sigma_s of the source2token scores, and values.
    allowed_pairs : Tensor of bool, broadcastable to r
    bias : Tensor or None, broadcastable to r
        Added to sigma_t(r).
    scale_t : {"log_sigmoid", "identity"}

    Returns
    -------
    Tensor, shape [..., R, d_h]
        0 where a query has no allowed key.
    """
    pairs = scaled(r, scale_t)
    if bias is not None:
        pairs = pairs + bias
    scores = pairs[..., None] + s[..., None, :, :]  # [..., R, N, d_h], eq. 10
    p = masked_softmax(scores, allowed_pairs[..., None], dim=-2)  # eq. 11
    return (p * v[..., None, :, :]).sum(-2)  # [..., R, d_h], eq. 12


class _Plain(TensorizedLayer):
    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        if rows is not None:
            q = q[:, :, rows]  # [H, B, R, d_i]
        r = q @ k.transpose(-1, -2)  # [H, B, R, N], eq. 8
        n = k.shape[2]
        pairs = allowed(self.masks, n, r.device, rows)[:, None]  # [H, 1, R, N]
        if mask is not None:
            pairs = pairs & mask[None, :, None, :]  # [H, B, R, N]
        bias = distance_bias(self.masks, n, r.device, r.dtype, rows)
        return tensor_softmax(r, s, v, pairs, None if bias is None else bias[:, None], self.scale_t)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the query positions ``rows`` [R]; None is all N."""
        return self.fuse(x, mask, rows)


class PlainMTSA(_Plain, PaperLayer):
    """`PaperLayer` with the tensor of scores; memory B * R * N * d_out."""


class PlainReleasedMTSA(_Plain, ReleasedLayer):
    """`ReleasedLayer` with the tensor of scores; memory B * R * N * heads * head_dim."""
