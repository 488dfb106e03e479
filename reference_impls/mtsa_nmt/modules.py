"""MTSA as in the translation program: one source2token layer from values or keys, scaled scores.

Its attentions are those of `reference_impls.mtsa`: the yardstick with the tensor of N x N x d_h
scores, stabilised Algorithm 1 by matrix products only, and the kernels (one projection, views of
it, nothing of N x N).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reference_impls.checks import (
    activation_by_name,
    glorot,
    in_place,
    layer_of,
    one_of,
    positive_int,
    true_or_false,
    width_per_part,
    zero_bias,
)
from reference_impls.masks import parse_all
from reference_impls.mechanism import BadOption
from reference_impls.mtsa.fused import FusedAttention, parts_of, query_key_value
from reference_impls.mtsa.layer import (
    SCALES,
    TensorizedLayer,
    concatenate,
    head_first,
    per_head,
    scaled,
)
from reference_impls.mtsa.optimized import Algorithm1Attention
from reference_impls.mtsa.plain import PlainAttention


@layer_of("mtsa_nmt")
class TranslationLayer(TensorizedLayer):
    """The self-attention of the authors' Transformer encoder, with its options.

    Parameters
    ----------
    d_in, d_out : int
    heads : int
    scale_t, scale_s : {"log_sigmoid", "identity"}
    source2token_scaled : bool
        s is divided by sqrt(d_h).
    source2token_from_keys : bool
        s reads the keys, else the values.
    hidden_activation : {None, "relu", "elu", "selu"}
        Of a first layer of s; None: s has one layer.
    bi_direction : bool
        The first half of the heads allows j <= i, the second j >= i; else every j.
    output_layer : bool
        Whether there is a W^o; without it d_out is heads * head_dim.
    head_dim : int, optional
        d_h; d_out / heads by default.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        heads: int,
        scale_t: str = "identity",
        scale_s: str = "log_sigmoid",
        source2token_scaled: bool = True,
        source2token_from_keys: bool = False,
        hidden_activation: str | None = None,
        bi_direction: bool = False,
        output_layer: bool = True,
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.d_in, self.heads = d_in, positive_int("heads", heads)
        if head_dim is None:
            head_dim = width_per_part(d_out, heads, "heads")
        d_h = positive_int("head_dim", head_dim)
        if not true_or_false("output_layer", output_layer) and heads * d_h != d_out:
            raise BadOption(
                f"d_out={d_out}, but heads * head_dim is {heads * d_h} and there is no output "
                "layer; make them equal"
            )
        self.scale_t = one_of("scale_t", scale_t, SCALES)
        self.scale_s = one_of("scale_s", scale_s, SCALES)
        self.source2token_scaled = true_or_false("source2token_scaled", source2token_scaled)
        self.from_keys = true_or_false("source2token_from_keys", source2token_from_keys)
        texts = ["none"] * heads
        if true_or_false("bi_direction", bi_direction):
            if heads % 2:
                raise BadOption(
                    f"{heads} heads can't be halved; give an even number, or bi_direction=False"
                )
            half = heads // 2
            texts = ["forward_inclusive"] * half + ["backward_inclusive"] * half
        self.masks = parse_all(texts, heads)
        self.hidden_activation = None
        self.q_w, self.k_w, self.v_w = (glorot(heads, d_in, d_h) for _ in range(3))
        self.s1_w, self.s1_b = glorot(heads, d_h, d_h), zero_bias(heads, d_h)
        if hidden_activation is not None:
            self.hidden_activation = activation_by_name(hidden_activation)
            self.s2_w, self.s2_b = glorot(heads, d_h, d_h), zero_bias(heads, d_h)
        self.o_w = glorot(heads * d_h, d_out) if output_layer else None

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries (divided by sqrt(d_h)), keys and values from x; s from values or keys."""
        root = math.sqrt(self.q_w.shape[2])
        weight = query_key_value(self.q_w, self.k_w, self.v_w)
        q, k, v = (head_first(part, self.heads) for part in (x @ weight).chunk(3, dim=-1))
        s = per_head(k if self.from_keys else v, self.s1_w, self.s1_b)  # [H, B, N, d_h]
        if self.hidden_activation is not None:
            s = per_head(self.hidden_activation(s), self.s2_w, self.s2_b)
        if self.source2token_scaled:
            s = s / root
        return q, k, v, scaled(s, self.scale_s)

    def combine(self, attended: Tensor, v: Tensor) -> Tensor:
        """Concatenation of the heads, output layer."""
        out = concatenate(attended)
        return out if self.o_w is None else out @ self.o_w


class PlainTranslationMTSA(PlainAttention, TranslationLayer):
    """`TranslationLayer` with the tensor of scores; memory B * R * N * heads * head_dim."""


class Algorithm1TranslationMTSA(Algorithm1Attention, TranslationLayer):
    """`TranslationLayer` by stabilised Algorithm 1; memory B * H * N * N."""


class FusedTranslationMTSA(FusedAttention, TranslationLayer):
    """`TranslationLayer` on a kernel; memory B * N * heads * head_dim."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `TranslationLayer.project`, with views; dividing s is left to its last weight."""
        tokens = x.shape[:2]
        weight = self.merged.of(query_key_value, self.q_w, self.k_w, self.v_w)
        widths = [w.shape[2] for w in (self.q_w, self.k_w, self.v_w)]
        q, k, v = parts_of(x.reshape(-1, self.d_in) @ weight, tokens, self.heads, widths)
        root = math.sqrt(self.q_w.shape[2]) if self.source2token_scaled else 1.0
        s, s_w, s_b = (k if self.from_keys else v).flatten(1, 2), self.s1_w, self.s1_b
        if self.hidden_activation is not None:
            s = in_place(self.hidden_activation)(torch.baddbmm(s_b[:, None], s, s_w))
            s_w, s_b = self.s2_w, self.s2_b
        s = scaled(torch.baddbmm(s_b[:, None] / root, s, s_w / root), self.scale_s)
        return q, k, v, s.unflatten(1, tokens)
