"""The paper's MTSA around its attention: weights, projections, source2token scores, output layer.

All forms (`released` has those of the program) are ``project -> attend -> combine``. How to attend
is left to the subclasses in `plain` and `optimized`. Tensors of one head stand head first,
``[H, B, N, d]``: every product per head is then one batched product without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from reference_impls.checks import (
    activation_by_name,
    check_input,
    glorot,
    layer_of,
    masked_softmax,
    one_of,
    positive_int,
    true_or_false,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.kernels.dropout import PairDropout
from reference_impls.masks import HeadMask, allowed, distance_bias, parse_all
from reference_impls.merged import side_by_side
from reference_impls.mtsa import dropout


def scaled(scores: Tensor, scale: str) -> Tensor:
    """A scale function of appendix A.1: log sigmoid or identity."""
    return logsigmoid(scores) if scale == "log_sigmoid" else scores


def tensor_weights(
    r: Tensor, s: Tensor, allowed_pairs: Tensor, bias: Tensor | None, scale_t: str
) -> Tensor:
    """Eq. 10-11: the weight of every key, for every query and feature.

    Parameters
    ----------
    r : Tensor, shape [..., R, N]
        Token2token scores (eq. 8).
    s : Tensor, shape [..., N, d_h] or [..., N, 1]
        sigma_s of the source2token scores.
    allowed_pairs : Tensor of bool, broadcastable to r
    bias : Tensor or None, broadcastable to r
        Added to sigma_t(r).
    scale_t : {"log_sigmoid", "identity"}

    Returns
    -------
    Tensor, shape [..., R, N, d_h] or [..., R, N, 1]
        0 at forbidden keys; sums to 1 over the keys where one is allowed.
    """
    pairs = scaled(r, scale_t)
    if bias is not None:
        pairs = pairs + bias
    scores = pairs[..., None] + s[..., None, :, :]  # [..., R, N, d_h], eq. 10
    return masked_softmax(scores, allowed_pairs[..., None], dim=-2)  # eq. 11


SCALES = ("log_sigmoid", "identity")


def head_first(values: Tensor, heads: int) -> Tensor:
    """[B, N, H*d] -> [H, B, N, d], contiguous."""
    return values.unflatten(-1, (heads, -1)).permute(2, 0, 1, 3).contiguous()


def per_head(values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A dense layer of each head: [H, B, N, d] by [H, d, e] -> [H, B, N, e]."""
    product = torch.baddbmm(bias[:, None], values.flatten(1, 2), weight)  # [H, B*N, e]
    return product.unflatten(1, values.shape[1:3])  # [H, B, N, e]


def absent(values: Tensor, width: int) -> Tensor:
    """Zeros [H, B, N, width] beside values [H, B, N, d], for a score that a configuration lacks.

    Queries and keys of width 0 have products 0. Source2token scores of width 1 are the same for all
    features.
    """
    return values.new_zeros((*values.shape[:3], width))


def concatenate(values: Tensor) -> Tensor:
    """[H, B, N, d] -> [B, N, H*d]."""
    return values.permute(1, 2, 0, 3).flatten(2)


class TensorizedLayer(nn.Module):
    """What the paper's and the released layer share.

    Attributes
    ----------
    masks : tuple of HeadMask
        One per head.
    scale_t : {"log_sigmoid", "identity"}
        sigma_t of eq. 10.
    source2token : bool
        Whether there are source2token scores.
    layers : int
        How many attentions with weights of their own there are.
    attention_dropout : float
        1 - p_ad of appendix A.3: acts in training mode only.
    """

    masks: tuple[HeadMask, ...]
    scale_t: str
    d_in: int
    source2token: bool = True
    layers: int = 1
    attention_dropout: float = 0.0

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries (divided by sqrt(d_i)), keys, values and sigma_s(s), [H, B, N, d] each.

        An absent score is what `absent` says: queries and keys of width 0, s of width 1.
        """
        raise NotImplementedError

    def dropped(self, v: Tensor) -> tuple[Tensor, PairDropout | None]:
        """Draw what dropout keeps: values [H, B, N, d_h], scaled, and which pairs; all without."""
        if not (self.training and self.attention_dropout):
            return v, None
        return dropout.draw(v, self.attention_dropout)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 10-12: the attended values [H, B, R, d_h], 0 where a query has no allowed key.

        Arguments are what `project` gives, the mask [B, N] and the query positions [R] (None: all;
        only `plain` computes some alone, others refuse them).
        """
        raise NotImplementedError

    def combine(self, attended: Tensor, v: Tensor) -> Tensor:
        """[H, B, R, d_h] twice -> [B, R, d_out]."""
        raise NotImplementedError

    def fuse(self, x: Tensor, mask: Tensor | None, rows: Tensor | None = None) -> Tensor:
        """The layer at the query positions ``rows`` (None: all): [B, N, D] -> [B, R, d_out]."""
        check_input(x, mask, self.d_in)
        q, k, v, s = self.project(zero_at_padding(x, mask))
        attended = self.attend(q, k, v, s, mask, rows)
        if rows is not None:
            v = v[:, :, rows]  # [H, B, R, d_h]
            mask = None if mask is None else mask[:, rows]  # [B, R]
        return zero_at_padding(self.combine(attended, v), mask)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out]."""
        return self.fuse(x, mask)

    def attention(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Scores and weights, for looking at: memory B * N * N * d_out.

        Returns
        -------
        dict
            ``token2token_scores`` r [H, B, N, N] (eq. 8, queries before keys),
            ``source2token_scores`` sigma_s(s) [H, B, N, d_h] (eq. 9), ``token2token_weights``
            [H, B, N, N]: the weights of eq. 11, their mean over the features. Scores that a
            configuration lacks are 0. Never dropped.
        """
        check_input(x, mask, self.d_in)
        return self.shown(*self.project(zero_at_padding(x, mask)), mask)

    def shown(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None
    ) -> dict[str, Tensor]:
        """What `attention` gives, from what `project` gives."""
        r = q @ k.transpose(-1, -2)  # [H, B, N, N]
        n = v.shape[2]
        pairs = allowed(self.masks, n, v.device)[:, None]  # [H, 1, N, N]
        if mask is not None:
            pairs = pairs & mask[None, :, None, :] & mask[None, :, :, None]
        bias = distance_bias(self.masks, n, v.device, r.dtype)
        bias = None if bias is None else bias[:, None]
        weights = tensor_weights(r, s, pairs, bias, self.scale_t)  # [H, B, N, N, d_h]
        return {
            "token2token_scores": r,
            "source2token_scores": s.expand_as(v),
            "token2token_weights": weights.mean(-1),
        }


@layer_of("mtsa")
class PaperLayer(TensorizedLayer):
    """Eq. 7-13 as printed.

    Parameters
    ----------
    d_in, d_out : int
    heads : int
        H; d_h = d_out / H.
    masks : list of str, optional
        One per head, see `reference_impls.masks`; None is forward for the first half of the heads,
        backward for the others (section 3.2).
    scale_t, scale_s : {"log_sigmoid", "identity"}
        Scale functions (appendix A.1); the defaults are those of appendices B and A.2.
    activation : {"relu", "elu", "selu"}
        sigma_m of eq. 9.
    key_dim, score_dim : int, optional
        d_i and d_a; d_h by default.
    token2token, source2token : bool
        Whether r and s are there (Table 3). An absent score is 0 and has no weights; the keys stay
        for s, which reads them (eq. 9).
    attention_dropout : float
        1 - p_ad of appendix A.3.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        heads: int,
        masks: Sequence[str] | None = None,
        scale_t: str = "log_sigmoid",
        scale_s: str = "identity",
        activation: str = "relu",
        key_dim: int | None = None,
        score_dim: int | None = None,
        token2token: bool = True,
        source2token: bool = True,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.d_in, self.heads = d_in, positive_int("heads", heads)
        d_h = width_per_part(d_out, heads, "heads")
        d_i = d_h if key_dim is None else positive_int("key_dim", key_dim)
        d_a = d_h if score_dim is None else positive_int("score_dim", score_dim)
        self.masks = parse_all(masks, heads)
        self.scale_t = one_of("scale_t", scale_t, SCALES)
        self.scale_s = one_of("scale_s", scale_s, SCALES)
        self.activation = activation_by_name(activation)
        self.token2token = true_or_false("token2token", token2token)
        self.source2token = true_or_false("source2token", source2token)
        self.attention_dropout = dropout.dropped_share(attention_dropout)
        if token2token:
            self.q_w = glorot(heads, d_in, d_i)
        if token2token or source2token:
            self.k_w = glorot(heads, d_in, d_i)
        self.v_w = glorot(heads, d_in, d_h)
        if source2token:
            self.s1_w, self.s1_b = glorot(heads, d_i, d_a), zero_bias(heads, d_a)
            self.s2_w, self.s2_b = glorot(heads, d_a, d_h), zero_bias(heads, d_h)
        self.o_w = glorot(heads * d_h, d_out)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Eq. 7 and 9."""
        h = self.heads
        weights: list[Tensor] = []
        if self.token2token:
            # Dividing the weight by sqrt(d_i) (eq. 8) is cheaper than dividing N*N scores.
            weights.append(self.q_w / math.sqrt(self.q_w.shape[2]))
        if self.token2token or self.source2token:
            weights.append(self.k_w)
        weights.append(self.v_w)
        widths = [h * weight.shape[2] for weight in weights]
        parts = (x @ side_by_side(*weights)).split(widths, dim=-1)
        *scored, v = (head_first(part, h) for part in parts)  # [H, B, N, d]
        s = absent(v, 1)
        if self.source2token:
            hidden = self.activation(per_head(scored[-1], self.s1_w, self.s1_b))
            s = scaled(per_head(hidden, self.s2_w, self.s2_b), self.scale_s)
        q, k = scored if self.token2token else (absent(v, 0), absent(v, 0))
        return q, k, v, s

    def combine(self, attended: Tensor, v: Tensor) -> Tensor:
        """Eq. 13."""
        return concatenate(attended) @ self.o_w
