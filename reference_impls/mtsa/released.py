"""The layer of the authors' program: values first, scores from them, a fusion gate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from reference_impls.checks import (
    activation_by_name,
    glorot,
    layer_of,
    one_of,
    positive_int,
    true_or_false,
    width_per_part,
    zero_bias,
)
from reference_impls.masks import HeadMask, parse_all
from reference_impls.mechanism import BadOption
from reference_impls.merged import side_by_side
from reference_impls.mtsa.dropout import dropped_share
from reference_impls.mtsa.layer import (
    SCALES,
    TensorizedLayer,
    absent,
    concatenate,
    head_first,
    per_head,
)


@layer_of("mtsa_released")
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
    token2token, source2token : bool
        Whether r and s are there (the paper's Table 3). An absent score is 0 and has no weights.
    attention_dropout : float
        1 - p_ad of the paper's appendix A.3.
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
        token2token: bool = True,
        source2token: bool = True,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
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
        self.token2token = true_or_false("token2token", token2token)
        self.source2token = true_or_false("source2token", source2token)
        self.attention_dropout = dropped_share(attention_dropout)
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
        if token2token:
            self.q_w, self.k_w = glorot(heads, d_u, d_h), glorot(heads, d_u, d_h)
        hidden_layer = true_or_false("source2token_hidden_layer", source2token_hidden_layer)
        if source2token:
            d_s = d_u
            if hidden_layer:
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
        read: list[Tensor] = []
        if self.token2token:
            read += [self.q_w / math.sqrt(d_h), self.k_w]
        if self.source2token:
            read.append(self.s2_w if self.s1_w is None else self.s1_w)
        scored: Sequence[Tensor] = ()
        if self.scores_from_input:
            parts = (x @ side_by_side(*read, self.v_w)).split(h * d_h, dim=-1)
            *scored, v = (head_first(part, h) for part in parts)  # [H, B, N, d_h]
            v = self._values(v)
        else:
            v = self._values(head_first(x @ side_by_side(self.v_w), h))
            if read:
                product = torch.bmm(v.flatten(1, 2), torch.cat(read, dim=2))  # [H, B*N, 3*d_h]
                scored = product.unflatten(1, v.shape[1:3]).split(d_h, dim=-1)  # [H, B, N, d_h]
        s = self._source_scores(scored[-1]) if self.source2token else absent(v, 1)
        q, k = scored[:2] if self.token2token else (absent(v, 0), absent(v, 0))
        return q, k, v, s

    def _source_scores(self, t: Tensor) -> Tensor:
        """The rest of s, behind the product of its first layer: [H, B, N, d_h]."""
        if self.s1_w is None or self.s1_b is None:
            return t + self.s2_b[:, None, None]
        return per_head(self.activation(t + self.s1_b[:, None, None]), self.s2_w, self.s2_b)

    def _values(self, v: Tensor) -> Tensor:
        if self.v_b is not None:
            v = v + self.v_b[:, None, None]
        for _ in range(self.value_activations):
            v = self.activation(v)
        return v

    def combine(self, attended: Tensor, v: Tensor) -> Tensor:
        """Fusion gate, then `joined`."""
        if self.g_w is not None and self.g_b is not None:
            gate = torch.sigmoid(per_head(torch.cat([v, attended], dim=-1), self.g_w, self.g_b))
            attended = gate * v + (1 - gate) * attended
        return self.joined(attended)

    def joined(self, attended: Tensor) -> Tensor:
        """Concatenation of the heads, output layer: [H, B, R, d_h] -> [B, R, d_out]."""
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
