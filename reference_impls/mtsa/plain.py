"""The stable yardstick: eq. 10-12 with the tensor of N x N x d_h scores and its softmax."""

from __future__ import annotations

from torch import Tensor

from reference_impls.masks import allowed, distance_bias
from reference_impls.mtsa.layer import PaperLayer, TensorizedLayer, tensor_weights
from reference_impls.mtsa.released import ReleasedLayer


class PlainAttention(TensorizedLayer):
    """Any of the layers with the tensor of scores."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 10-12, see `TensorizedLayer.attend`."""
        if rows is not None:
            q = q[:, :, rows]  # [H, B, R, d_i]
        r = q @ k.transpose(-1, -2)  # [H, B, R, N], eq. 8
        n = k.shape[2]
        pairs = allowed(self.masks, n, r.device, rows)[:, None]  # [H, 1, R, N]
        if mask is not None:
            pairs = pairs & mask[None, :, None, :]  # [H, B, R, N]
        bias = distance_bias(self.masks, n, r.device, r.dtype, rows)
        bias = None if bias is None else bias[:, None]
        p = tensor_weights(r, s, pairs, bias, self.scale_t)  # [H, B, R, N, d_h]
        v, keep = self.dropped(v)
        if keep is not None:  # the softmax, so its denominator, is left alone
            p = p * keep.pairs(v, rows)[..., None]
        return (p * v[..., None, :, :]).sum(-2)  # eq. 12

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the query positions ``rows`` [R]; None is all N."""
        return self.fuse(x, mask, rows)


class PlainMTSA(PlainAttention, PaperLayer):
    """`PaperLayer` with the tensor of scores; memory B * R * N * d_out."""


class PlainReleasedMTSA(PlainAttention, ReleasedLayer):
    """`ReleasedLayer` with the tensor of scores; memory B * R * N * heads * head_dim."""
