"""MTSA around its attention: weights, projections, source2token scores, gate, output layer.

Both configurations have the form ``project -> attend -> combine``. How to attend is left to the
subclasses in `plain` and `optimized`. Tensors of one head stand head first, ``[H, B, N, d]``:
every product per head is then one batched product without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from reference_impls.checks import (
    activation_by_name,
    check_input,
    glorot,
    one_of,
    positive_int,
    refuse_unknown,
    true_or_false,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.masks import HeadMask, allowed, distance_bias, parse_all
from reference_impls.mechanism import BadOption
from reference_impls.mtsa.softmax import scaled, tensor_weights

SCALES = ("log_sigmoid", "identity")


def side_by_side(*weights: Tensor) -> Tensor:
    """Stack per-head weights [H, D, d] as columns [D, sum of H*d]: one product for all of them."""
    return torch.cat([w.transpose(0, 1).flatten(1) for w in weights], dim=1)


def head_first(values: Tensor, heads: int) -> Tensor:
    """[B, N, H*d] -> [H, B, N, d], contiguous."""
    return values.unflatten(-1, (heads, -1)).permute(2, 0, 1, 3).contiguous()


def per_head(values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A dense layer of each head: [H, B, N, d] by [H, d, e] -> [H, B, N, e]."""
    product = torch.baddbmm(bias[:, None], values.flatten(1, 2), weight)  # [H, B*N, e]
    return product.unflatten(1, values.shape[1:3])  # [H, B, N, e]


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
    """

    masks: tuple[HeadMask, ...]
    scale_t: str
    d_in: int

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries (divided by sqrt(d_i)), keys, values and sigma_s(s), [H, B, N, d] each."""
        raise NotImplementedError

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 10-12: the attended values [H, B, R, d_h], 0 where a query has no allowed key."""
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
            [H, B, N, N]: the weights of eq. 11, their mean over the features.
        """
        check_input(x, mask, self.d_in)
        q, k, _, s = self.project(zero_at_padding(x, mask))
        r = q @ k.transpose(-1, -2)  # [H, B, N, N]
        n = x.shape[1]
        pairs = allowed(self.masks, n, x.device)[:, None]  # [H, 1, N, N]
        if mask is not None:
            pairs = pairs & mask[None, :, None, :] & mask[None, :, :, None]
        bias = distance_bias(self.masks, n, x.device, r.dtype)
        bias = None if bias is None else bias[:, None]
        weights = tensor_weights(r, s, pairs, bias, self.scale_t)  # [H, B, N, N, d_h]
        return {
            "token2token_scores": r,
            "source2token_scores": s,
            "token2token_weights": weights.mean(-1),
        }


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

    Raises
    ------
    BadOption
        For a configuration that does not exist.
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
        **unknown: Any,
    ) -> None:
        super().__init__()
        refuse_unknown(
            "mtsa",
            unknown,
            ("heads", "masks", "scale_t", "scale_s", "activation", "key_dim", "score_dim"),
        )
        self.d_in, self.heads = d_in, positive_int("heads", heads)
        d_h = width_per_part(d_out, heads, "heads")
        d_i = d_h if key_dim is None else positive_int("key_dim", key_dim)
        d_a = d_h if score_dim is None else positive_int("score_dim", score_dim)
        self.masks = parse_all(masks, heads)
        self.scale_t = one_of("scale_t", scale_t, SCALES)
        self.scale_s = one_of("scale_s", scale_s, SCALES)
        self.activation = activation_by_name(activation)
        self.q_w = glorot(heads, d_in, d_i)
        self.k_w = glorot(heads, d_in, d_i)
        self.v_w = glorot(heads, d_in, d_h)
        self.s1_w, self.s1_b = glorot(heads, d_i, d_a), zero_bias(heads, d_a)
        self.s2_w, self.s2_b = glorot(heads, d_a, d_h), zero_bias(heads, d_h)
        self.o_w = glorot(heads * d_h, d_out)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Eq. 7 and 9."""
        h, d_i = self.heads, self.q_w.shape[2]
        # Dividing the weight by sqrt(d_i) (eq. 8) is cheaper than dividing N*N scores.
        weight = side_by_side(self.q_w / math.sqrt(d_i), self.k_w, self.v_w)
        parts = (x @ weight).split([h * d_i, h * d_i, h * self.v_w.shape[2]], dim=-1)
        q, k, v = (head_first(part, h) for part in parts)  # [H, B, N, d]
        hidden = self.activation(per_head(k, self.s1_w, self.s1_b))
        s = per_head(hidden, self.s2_w, self.s2_b)
        return q, k, v, scaled(s, self.scale_s)

    def combine(self, attended: Tensor, v: Tensor) -> Tensor:
        """Eq. 13."""
        return concatenate(attended) @ self.o_w


class ReleasedLayer(TensorizedLayer):
    """The layer of the authors' program (taoshen58/mtsa), with its options.

    Parameters
    ----------
    d_in, d_out : int
        d_out is heads * head_dim, or output_hidden where that is given.
    heads : int
    head_dim : int, optional
        d_h; d_out / heads by default.
    scale_t : {"log_sigmoid", "identity"}
    activation : {"relu", "elu", "selu"}
        f, of the values, the scores' hidden layer and the dense layers before and after.
    activation_on_values : bool
        v = f(x v_w + v_b).
    scores_from_input : bool
        Queries, keys and scores are computed from x, else from v.
    source2token_hidden_layer : bool
        s has two layers, else one.
    fusion_gate : bool
        The output of a head is g*v + (1-g)*a, else a.
    directional : bool
        Half of the heads forward, half backward; else every head allows all j other than i.
    include_self : bool
        Inclusive directions.
    accelerate : bool
        The authors' fused path: no value bias with `scores_from_input`; f twice on the values
        with `activation_on_values` without it.
    input_hidden, output_hidden : int, optional
        Widths of a dense layer with f in front and behind.

    Raises
    ------
    BadOption
        For a configuration that does not exist.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        heads: int,
        head_dim: int | None = None,
        scale_t: str = "log_sigmoid",
        activation: str = "relu",
        activation_on_values: bool = True,
        scores_from_input: bool = False,
        source2token_hidden_layer: bool = True,
        fusion_gate: bool = True,
        directional: bool = True,
        include_self: bool = False,
        accelerate: bool = False,
        input_hidden: int | None = None,
        output_hidden: int | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        refuse_unknown(
            "mtsa_released",
            unknown,
            ("heads", "head_dim", "scale_t", "activation", "activation_on_values",
             "scores_from_input", "source2token_hidden_layer", "fusion_gate", "directional",
             "include_self", "accelerate", "input_hidden", "output_hidden"),
        )  # fmt: skip
        self.d_in, self.heads = d_in, positive_int("heads", heads)
        if head_dim is None:
            head_dim = width_per_part(d_out, heads, "heads")
        d_h = positive_int("head_dim", head_dim)
        width = (
            heads * d_h if output_hidden is None else positive_int("output_hidden", output_hidden)
        )
        if width != d_out:
            what = "heads * head_dim" if output_hidden is None else "output_hidden"
            raise BadOption(f"d_out={d_out}, but {what} is {width}; make them equal")
        self.scale_t = one_of("scale_t", scale_t, SCALES)
        self.activation = activation_by_name(activation)
        self.scores_from_input = true_or_false("scores_from_input", scores_from_input)
        accelerate = true_or_false("accelerate", accelerate)
        self.value_activations = 0
        if true_or_false("activation_on_values", activation_on_values):
            self.value_activations = 2 if accelerate and not scores_from_input else 1
        self.masks = _released_masks(heads, directional, include_self)

        d_x = d_in
        self.in_w = self.in_b = self.v_b = self.s1_w = self.s1_b = None
        self.g_w = self.g_b = self.o_w = self.o_b = None
        if input_hidden is not None:
            d_x = positive_int("input_hidden", input_hidden)
            self.in_w, self.in_b = glorot(d_in, d_x), zero_bias(d_x)
        self.v_w = glorot(heads, d_x, d_h)
        if not (accelerate and scores_from_input):
            self.v_b = zero_bias(heads, d_h)
        d_u = d_x if scores_from_input else d_h
        self.q_w, self.k_w = glorot(heads, d_u, d_h), glorot(heads, d_u, d_h)
        d_s = d_u
        if true_or_false("source2token_hidden_layer", source2token_hidden_layer):
            d_s = d_h
            self.s1_w, self.s1_b = glorot(heads, d_u, d_h), zero_bias(heads, d_h)
        self.s2_w, self.s2_b = glorot(heads, d_s, d_h), zero_bias(heads, d_h)
        if true_or_false("fusion_gate", fusion_gate):
            self.g_w, self.g_b = glorot(heads, 2 * d_h, d_h), zero_bias(heads, d_h)
        if output_hidden is not None:
            self.o_w, self.o_b = glorot(heads * d_h, d_out), zero_bias(d_out)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Values, then queries, keys and scores from x or from the values."""
        if self.in_w is not None and self.in_b is not None:
            x = self.activation(x @ self.in_w + self.in_b)
        h, d_h = self.heads, self.v_w.shape[2]
        first_w, first_b = self.s2_w, self.s2_b
        if self.s1_w is not None and self.s1_b is not None:
            first_w, first_b = self.s1_w, self.s1_b
        read = (self.q_w / math.sqrt(d_h), self.k_w, first_w)
        if self.scores_from_input:
            parts = (x @ side_by_side(*read, self.v_w)).split(h * d_h, dim=-1)
            q, k, t, v = (head_first(part, h) for part in parts)  # [H, B, N, d_h]
            v = self._values(v)
        else:
            v = self._values(head_first(x @ side_by_side(self.v_w), h))
            product = torch.bmm(v.flatten(1, 2), torch.cat(read, dim=2))  # [H, B*N, 3*d_h]
            q, k, t = product.unflatten(1, v.shape[1:3]).split(d_h, dim=-1)  # [H, B, N, d_h]
        s = t + first_b[:, None, None]
        if self.s1_w is not None:
            s = per_head(self.activation(s), self.s2_w, self.s2_b)
        return q, k, v, s

    def _values(self, v: Tensor) -> Tensor:
        if self.v_b is not None:
            v = v + self.v_b[:, None, None]
        for _ in range(self.value_activations):
            v = self.activation(v)
        return v

    def combine(self, attended: Tensor, v: Tensor) -> Tensor:
        """Fusion gate, concatenation of the heads, output layer."""
        if self.g_w is not None and self.g_b is not None:
            gate = torch.sigmoid(per_head(torch.cat([v, attended], dim=-1), self.g_w, self.g_b))
            attended = gate * v + (1 - gate) * attended
        out = concatenate(attended)
        if self.o_w is not None and self.o_b is not None:
            out = self.activation(out @ self.o_w + self.o_b)
        return out


def _released_masks(heads: int, directional: bool, include_self: bool) -> tuple[HeadMask, ...]:
    true_or_false("include_self", include_self)
    if not true_or_false("directional", directional):
        if include_self:
            raise BadOption(
                "include_self without directional; the released program refuses it too, give one"
            )
        return parse_all(["diagonal"] * heads, heads)
    if not include_self:
        return parse_all(None, heads)
    if heads % 2:
        raise BadOption(f"{heads} heads can't be halved; give an even number, or directional=False")
    half = heads // 2
    return parse_all(["forward_inclusive"] * half + ["backward_inclusive"] * half, heads)
