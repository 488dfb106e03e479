"""Multi-scale self-attention around its attention: weights, windows, eq. 10; and over all pairs.

The yardstick is eq. 6 with the N x N scores of every head and their softmax; the other is torch's
fused attention with the windows in its mask. `windowed` does less than all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from reference_impls.checks import (
    check_input,
    core_dtype,
    glorot,
    layer_of,
    masked_softmax,
    one_of,
    positive_int,
    refuse_rows,
    true_or_false,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.mechanism import BadOption
from reference_impls.merged import Merged, MergingModule, itself, side_by_side
from reference_impls.msmsa.scales import READINGS, SCALINGS, GivenScale, Scale, parse_all


class Heads(NamedTuple):
    """The heads of one layer.

    Attributes
    ----------
    q_w, k_w, v_w : Tensor, shape [H, D, d_h]
    o_w : Tensor, shape [H * d_h, d_out]
    scales : tuple of Scale
        One per head.
    divisor : float
        Scores are q k^T / divisor.
    merged : Merged
        Puts weights together.
    """

    q_w: Tensor
    k_w: Tensor
    v_w: Tensor
    o_w: Tensor
    scales: tuple[Scale, ...]
    divisor: float
    merged: Merged


Mix: TypeAlias = Callable[[Tensor, Heads, Tensor | None, Tensor | None], Tensor]
"""Eq. 9: ``mix(x, heads, mask, rows)``.

``x [B, N, D]``, zero at padding, ``mask [B, N]`` or None, query positions ``rows [R]`` or None
(all) -> ``[B, R, d_out]``, finite at padding. All but the plain one refuse ``rows``.
"""


def score_divisor(scaling: str, model_width: int, head_width: int) -> float:
    """sqrt(D') of eq. 2 (scaling "head_width") or sqrt(D) of eq. 6 ("model_width").

    Raises
    ------
    BadOption
        For any other scaling.
    """
    head = one_of("scaling", scaling, SCALINGS) == "head_width"
    return math.sqrt(head_width if head else model_width)


def project(x: Tensor, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (divided as their scores are to be), keys and values, [B, H, N, d_h] (eq. 8)."""
    h, _, d = heads.q_w.shape

    def columns(q_w: Tensor, k_w: Tensor, v_w: Tensor) -> Tensor:
        # Dividing a weight is cheaper than dividing the queries of all tokens.
        return side_by_side(q_w / heads.divisor, k_w, v_w)

    weights = (heads.q_w, heads.k_w, heads.v_w)
    qkv = heads.merged.product(x, columns, *weights, key="qkv").unflatten(-1, (3, h, d))
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # of [B, N, 3, H, d_h]
    return q, k, v


def within_windows(
    scales: Sequence[Scale],
    length: int,
    mask: Tensor | None,
    device: torch.device,
    rows: Tensor | None = None,
) -> Tensor:
    """Pairs (i, j) with j real and no further from i than the head's scale reaches (eq. 7).

    Windows are cut at the ends. Shares of n are of each sample's real length.

    Returns
    -------
    Tensor of bool, shape [B, H, R, N], or [1, H, R, N] without a mask
    """
    j = torch.arange(length, device=device)
    i = j if rows is None else rows
    distance = (i[:, None] - j).abs()  # [R, N]
    if mask is None:
        halves = [scale.half(length) for scale in scales]
        return torch.stack([distance <= half for half in halves])[None]
    real = mask.sum(1)[:, None, None]  # [B, 1, 1]
    pairs = torch.stack(
        [(distance <= scale.half(real)).expand(len(mask), -1, -1) for scale in scales], dim=1
    )
    return pairs & mask[:, None, None, :]


def add_and_norm(x: Tensor, mixed: Tensor, scale: Tensor, offset: Tensor, epsilon: float) -> Tensor:
    """Eq. 10: norm(x + relu(mixed)), last axis, biased variance; `mixed` is overwritten."""
    return nn.functional.layer_norm(x + mixed.relu_(), (x.shape[-1],), scale, offset, epsilon)


def not_negative(option: str, value: Any) -> float:
    """Return a finite number of at least 0, else raise `BadOption`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise BadOption(f"{option}={value!r}; expected a number of at least 0")
    return float(value)


@layer_of("msmsa")
class MsmsaLayer(MergingModule):
    """Multi-scale multi-head self-attention (eq. 6-9), alone or as a layer (eq. 10).

    Parameters
    ----------
    d_in, d_out : int
        Equal with `layer`.
    heads : int
    scales : list, optional
        One per head: a number, or "n/16" of the sample's real length n. None: 1, 3, n/16, n/8, n/4,
        over and over.
    width_reading : {"total", "radius"}
        The odd-forced w is the whole window, or (eq. 7 as printed) its reach to either side.
    scaling : {"head_width", "model_width"}
        Scores divided by sqrt(d_h) (eq. 2) or by sqrt(d_in) (eq. 6).
    layer : bool
        Whether the output is norm(x + relu(.)) (eq. 10).
    ln_epsilon : float
        Under the root of the norm.
    head_dim : int, optional
        d_h; d_out / heads by default.

    Notes
    -----
    Distances are those of positions in x: padding belongs behind the real tokens, or before them.
    """

    mix: Mix

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        heads: int,
        scales: Sequence[GivenScale] | None = None,
        width_reading: str = "total",
        scaling: str = "head_width",
        layer: bool = False,
        ln_epsilon: float = 1e-5,
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.d_in, self.heads = d_in, positive_int("heads", heads)
        if head_dim is None:
            head_dim = width_per_part(d_out, heads, "heads")
        positive_int("head_dim", head_dim)
        self.scales = parse_all(scales, heads, one_of("width_reading", width_reading, READINGS))
        self.divisor = score_divisor(scaling, d_in, head_dim)
        self.ln_epsilon = not_negative("ln_epsilon", ln_epsilon)
        self.q_w = glorot(heads, d_in, head_dim)
        self.k_w = glorot(heads, d_in, head_dim)
        self.v_w = glorot(heads, d_in, head_dim)
        self.o_w = glorot(heads * head_dim, d_out)
        self.ln_scale: nn.Parameter | None = None
        self.ln_offset: nn.Parameter | None = None
        if true_or_false("layer", layer):
            if d_in != d_out:
                raise BadOption(
                    f"d_out={d_out}, but layer=True adds the output to x of d_in={d_in}; "
                    "make them equal"
                )
            self.ln_scale, self.ln_offset = nn.Parameter(torch.ones(d_out)), zero_bias(d_out)

    def _heads(self) -> Heads:
        weights = (self.q_w, self.k_w, self.v_w, self.o_w)
        return Heads(*weights, self.scales, self.divisor, self.merged)

    def fuse(self, x: Tensor, mask: Tensor | None, rows: Tensor | None = None) -> Tensor:
        """The layer at the query positions ``rows`` (None: all): [B, N, D] -> [B, R, d_out]."""
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        out = self.mix(x, self._heads(), mask, rows)  # [B, R, d_out]
        if self.ln_scale is not None and self.ln_offset is not None:
            at_rows = x if rows is None else x[:, rows]
            out = add_and_norm(at_rows, out, self.ln_scale, self.ln_offset, self.ln_epsilon)
        return zero_at_padding(out, mask if mask is None or rows is None else mask[:, rows])

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out]."""
        return self.fuse(x, mask)

    def attention(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Scores and weights, for looking at.

        Returns
        -------
        dict
            ``token2token_scores`` and ``token2token_weights`` (their softmax over each window, 0
            outside and in padded rows), [H, B, N, N] each, queries before keys.
        """
        check_input(x, mask, self.d_in)
        q, k, _ = project(zero_at_padding(x, mask), self._heads())
        r = q @ k.mT  # [B, H, N, N]
        pairs = within_windows(self.scales, x.shape[1], mask, x.device)
        if mask is not None:
            pairs = pairs & mask[:, None, :, None]
        weights = masked_softmax(r, pairs, dim=-1)
        return {
            "token2token_scores": r.transpose(0, 1),
            "token2token_weights": weights.transpose(0, 1),
        }


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


def open_pairs(
    scales: Sequence[Scale], length: int, mask: Tensor | None, device: torch.device
) -> Tensor:
    """`within_windows`, and every query's own key.

    A padded query may have no key, and a softmax over nothing is NaN: it gets itself, a zero.
    """
    own = torch.eye(length, dtype=torch.bool, device=device)
    return within_windows(scales, length, mask, device) | own


def all_pairs(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Torch's fused attention, scores as they are: [B, H, N, d_h] each -> [B, N, H * d_h]."""
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)  # [B, H, N, d_h]
    return out.transpose(1, 2).flatten(2)


def masked_mix(x: Tensor, heads: Heads, mask: Tensor | None, rows: Tensor | None) -> Tensor:
    """Eq. 6 and 9: [B, N, D] -> [B, N, d_out]; time B * N * N * H * d_h, a mask B * H * N * N."""
    refuse_rows(rows)
    pairs = open_pairs(heads.scales, x.shape[1], mask, x.device)
    out = all_pairs(*project(x, heads), pairs)
    return heads.merged.dense(out, itself, heads.o_w)


class MaskedMsmsa(MsmsaLayer):
    """`MsmsaLayer` over all pairs."""

    mix = staticmethod(masked_mix)
