"""The layers on the kernels: few products, views instead of copies, nothing of N x N.

All projections are one product [B*N, sum of H*d]. A head's part of it is a view, [H, B*N, d] with
the strides of the product, which batched products read as it is; so are the kernels' queries, keys
and values. The attended values come back as a view of [B, N, H, d]: W^o reads it without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from reference_impls.checks import (
    ACTIVATIONS,
    check_input,
    in_dtype,
    in_place,
    least_denominator,
    one_of,
    refuse_rows,
    zero_at_padding,
)
from reference_impls.kernels import core
from reference_impls.kernels.geometry import GeometryByLength
from reference_impls.merged import MergingModule, itself, side_by_side
from reference_impls.mtsa.layer import PaperLayer, TensorizedLayer, absent, scaled
from reference_impls.mtsa.projection import Projection, hidden_layer, padded
from reference_impls.mtsa.released import ReleasedLayer


class FusedAttention(TensorizedLayer, MergingModule):
    """Any of the layers on a kernel.

    Parameters
    ----------
    backend : {"auto", "native", "tiled", "triton", "flex"}
        See `reference_impls.kernels.core`; a named one that can't do a call raises `Unsupported`.
    """

    def __init__(self, d_in: int, d_out: int, *, backend: str = "auto", **options: Any) -> None:
        super().__init__(d_in, d_out, **options)
        self.backend = one_of("backend", backend, core.BACKENDS)
        self._geometries = GeometryByLength(self.masks)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 10-12, see `TensorizedLayer.attend`."""
        refuse_rows(rows)
        v, keep = self.dropped(v)
        geometry = self._geometries.of(q.shape[2], q.device)
        # Autocast and sums in float32 leave them wider: a kernel takes one dtype.
        v, s = in_dtype(v, q.dtype), in_dtype(s, q.dtype)
        scores = s if self.source2token else None
        return core.attend(q, k, v, scores, geometry, mask, self.scale_t, keep, self.backend)


def parts_of(product: Tensor, tokens: torch.Size, heads: int, widths: list[int]) -> list[Tensor]:
    """Split [B*N, sum of H*d] into views [H, B, N, d]."""
    parts = product.split_with_sizes([heads * width for width in widths], 1)
    return [
        part.view(*tokens, heads, width).permute(2, 0, 1, 3)
        for part, width in zip(parts, widths, strict=True)
    ]


def query_key_value(q_w: Tensor, *others: Tensor) -> Tensor:
    """Columns of all; dividing the weight by sqrt(d_i) (eq. 8) is cheaper than the scores."""
    return side_by_side(q_w / math.sqrt(q_w.shape[2]), *others)


def _of_layer(*weights: Tensor) -> tuple[Tensor, ...]:
    """The columns of what multiplies x, and where there are more than three, the last, `padded`."""
    columns, scores = (weights[:-3], weights[-3:]) if len(weights) > 3 else (weights, ())
    merge = query_key_value if len(columns) == 3 else side_by_side
    return merge(*columns), *(padded(*scores) if scores else ())


def _query_key_score(q_w: Tensor, *others: Tensor) -> Tensor:
    """The same of what a head reads from its own values: [H, d_h, d] each -> [H, d_h, sum of d]."""
    return torch.cat([q_w / math.sqrt(q_w.shape[2]), *others], dim=2)


def _nothing_of(bias: Tensor, width: int) -> Tensor:
    """0 for each of so many columns, [H, 1, width], with a gradient of 0 for the bias [H, d]."""
    return pad(0 * bias, (0, width - bias.shape[1]))[:, None]


def _hidden(k: Tensor, s1_w: Tensor, s1_b: Tensor, activation: Callable[..., Tensor]) -> Tensor:
    """`hidden_layer`, which a compiled call computes again in its backward pass."""
    if torch.compiler.is_compiling() and torch.is_grad_enabled():
        found: Tensor = checkpoint(
            hidden_layer, k, s1_w, s1_b, activation, use_reentrant=False, preserve_rng_state=False
        )
        return found
    return hidden_layer(k, s1_w, s1_b, activation)


class FusedMTSA(FusedAttention, PaperLayer):
    """`PaperLayer` on a kernel; memory B * N * d_out."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Eq. 7 and 9, as views of one product, see `TensorizedLayer.project`."""
        tokens = x.shape[:2]
        flat = x.reshape(-1, self.d_in)
        if self._by_hand(x):
            self.merged.clear()  # its weights are about to change
            found = Projection.apply(
                flat,
                self.q_w,
                self.k_w,
                self.v_w,
                self.s1_w,
                self.s1_b,
                self.s2_w,
                self.s2_b,
                self.activation,
            )
            q, k, v, s = (t.view(self.heads, *tokens, t.shape[2]) for t in found)
            return q, k, v, s
        read: list[Tensor] = [self.q_w, self.k_w] if self.token2token else []
        if self.source2token and not self.token2token:
            read = [self.k_w]
        widths = [w.shape[2] for w in (*read, self.v_w)]
        scores: list[Tensor] = [self.s1_w, self.s1_b, self.s2_w] if self.source2token else []
        weight, *scores = self.merged.of(_of_layer, *read, self.v_w, *scores)
        *scored, v = parts_of(flat @ weight, tokens, self.heads, widths)
        if self.source2token:
            s = self._source_scores(scored[-1].flatten(1, 2), *scores).view(v.shape)
        else:
            s = absent(v, 1)
        if not self.token2token:
            return absent(v, 0), absent(v, 0), v, s
        q, k = scored
        return q, k, v, s

    def _source_scores(self, k: Tensor, s1_w: Tensor, s1_b: Tensor, s2_w: Tensor) -> Tensor:
        """Eq. 9 of keys [H, B*N, d_i], weights padded; no last bias if sigma_s is the identity.

        What is added to all keys alike changes no weight of any: it has a gradient, which is 0.
        `attention` shows it all the same.
        """
        if self.scale_s == "identity" and torch.is_grad_enabled():
            s2_w = s2_w + _nothing_of(self.s2_b, s2_w.shape[2])
        s = torch.bmm(_hidden(k, s1_w, s1_b, self.activation), s2_w)
        s = s[..., : self.s2_b.shape[1]]
        return s if self.scale_s == "identity" else scaled(s + self.s2_b[:, None], self.scale_s)

    def fuse(self, x: Tensor, mask: Tensor | None, rows: Tensor | None = None) -> Tensor:
        """See `TensorizedLayer.fuse`; by one operator where there is one for it."""
        whole = None
        if self._default and not self.training and self.activation is ACTIVATIONS["relu"]:
            whole = core.whole_layers(x, self.backend)
        if whole is None:
            return super().fuse(x, mask, rows)
        check_input(x, mask, self.d_in)
        refuse_rows(rows)
        out: Tensor = whole.mtsa.default(
            zero_at_padding(x, mask),
            *self.merged.of(
                _of_layer, self.q_w, self.k_w, self.v_w, self.s1_w, self.s1_b, self.s2_w
            ),
            self.o_w,
            self.v_w.shape[2],
            *self._geometries.of(x.shape[1], x.device),
            mask,
            self.scale_t == "log_sigmoid",
            least_denominator(x.dtype, x.shape[1]),
        )
        return zero_at_padding(out, mask)

    def attention(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """See `TensorizedLayer.attention`."""
        check_input(x, mask, self.d_in)
        self.merged.clear()  # gradients may be wanted, and nothing below asks
        return self.shown(*PaperLayer.project(self, zero_at_padding(x, mask)), mask)

    @property
    def _default(self) -> bool:
        """Whether both scores are there, those of source2token as they are."""
        return self.token2token and self.source2token and self.scale_s == "identity"

    def _by_hand(self, x: Tensor) -> bool:
        """Whether the backward pass written by hand serves: training, of the default form."""
        if not torch.is_grad_enabled() or not (x.requires_grad or self.v_w.requires_grad):
            return False
        if not self._default:
            return False
        return not (torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type))


class FusedReleasedMTSA(FusedAttention, ReleasedLayer):
    """`ReleasedLayer` on a kernel; memory B * N * heads * head_dim."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Values, then queries, keys and scores, see `TensorizedLayer.project`."""
        tokens, h, d_h = x.shape[:2], self.heads, self.v_w.shape[2]
        activate = in_place(self.activation)
        flat = x.reshape(-1, self.d_in)
        if self.in_w is not None and self.in_b is not None:
            flat = activate(torch.addmm(self.in_b, flat, self.in_w))
        read: list[Tensor] = [self.q_w, self.k_w] if self.token2token else []
        if self.source2token:
            read.append(self.s2_w if self.s1_w is None else self.s1_w)
        scored: list[Tensor] = []
        if self.scores_from_input:
            merge = query_key_value if self.token2token else side_by_side
            product = flat @ self.merged.of(merge, *read, self.v_w)
            *scored, v = parts_of(product, tokens, h, [d_h] * (len(read) + 1))  # [H, B, N, d_h]
            v = self._values(v)
        else:
            v = self._values_alone(flat).unflatten(1, tokens)  # [H, B, N, d_h]
            if read:
                weight = self.merged.of(_query_key_score if self.token2token else itself, *read)
                product = torch.bmm(v.flatten(1, 2), weight)  # [H, B*N, 3*d_h]
                scored = list(product.unflatten(1, tokens).split(d_h, dim=-1))
        s = self._source_scores(scored[-1]) if self.source2token else absent(v, 1)
        if not self.token2token:
            return absent(v, 0), absent(v, 0), v, s
        q, k, *_ = scored
        return q, k, v, s

    def _values_alone(self, flat: Tensor) -> Tensor:
        """The values [H, B*N, d_h] where nothing else is read from x."""
        weight = self.merged.of(side_by_side, self.v_w)
        v = flat @ weight if self.v_b is None else torch.addmm(self.v_b.flatten(), flat, weight)
        for i in range(self.value_activations):
            # What the second one overwrote, the first one's gradient would want.
            v = self.activation(v) if i else in_place(self.activation)(v)
        return v.unflatten(1, (self.heads, -1)).transpose(0, 1)

    def combine(self, attended: Tensor, v: Tensor) -> Tensor:
        """As the released layer, its gate's weight in two: v and a need not be put together."""
        if self.g_w is not None and self.g_b is not None:
            of_v, of_a = self.g_w.split(v.shape[3], dim=1)
            gate = torch.baddbmm(self.g_b[:, None], v.flatten(1, 2), of_v)  # [H, B*N, d_h]
            gate = torch.baddbmm(gate, attended.flatten(1, 2), of_a).sigmoid_()
            attended = attended + (v - attended) * gate.unflatten(1, v.shape[1:3])
        return self.joined(attended)
