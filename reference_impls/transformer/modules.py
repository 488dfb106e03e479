"""The Transformer as a sentence encoder (Multi-Scale eq. 4-5), and what it shares with its peer.

The Multi-Scale Transformer has the same embedding, [CLS] and readout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from reference_impls.checks import (
    OneRow,
    check_input,
    core_dtype,
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
from reference_impls.mechanism import BadOption
from reference_impls.merged import MergingModule, itself, side_by_side
from reference_impls.msmsa.modules import not_negative
from reference_impls.multi_head.modules import Positions
from reference_impls.multi_scale_transformer.presets import settle

READOUTS = ("concat", "sum", "max")
CLS_DEVIATION = 0.02
"""Standard deviation of the initial [CLS] vector, as in BERT (ours; the paper does not say)."""


class SentenceModel(MergingModule):
    """Tokens to a sentence vector by layers over [CLS] and the tokens ("Classification node").

    Parameters
    ----------
    d_in : int
        With d_model = d_in there is no input layer.
    d_out : int
        d_model, or 2 d_model with readout "concat".
    depth : int
        Layers.
    readout : {"concat", "sum", "max"}
        [CLS ; max], CLS + max, or max alone, of the last layer's states; max is over real tokens.
    cls : bool
        Whether [CLS] stands before the tokens; False goes with readout "max", and only with that.
    """

    def __init__(self, d_in: int, d_out: int, *, depth: int, readout: str, cls: bool) -> None:
        super().__init__()
        self.d_in, self.depth = d_in, positive_int("layers", depth)
        self.readout = one_of("readout", readout, READOUTS)
        if true_or_false("cls", cls) == (readout == "max"):
            raise BadOption(
                f"readout={readout!r} with cls={cls}; expected concat or sum with [CLS], "
                "max without it"
            )
        self.d_model = (
            width_per_part(d_out, 2, "parts, [CLS] and max") if readout == "concat" else d_out
        )
        self.in_w = glorot(d_in, self.d_model) if d_in != self.d_model else None
        self.cls = nn.Parameter(CLS_DEVIATION * torch.randn(self.d_model)) if cls else None

    def begun(self, h: Tensor) -> Tensor:
        """What the first layer reads: h [B, M, d_model], zero at padding."""
        return h

    def layer(self, i: int, h: Tensor, mask: Tensor | None) -> Tensor:
        """Layer i: h [B, M, d_model], mask [B, M] or None -> the same shape."""
        raise NotImplementedError

    def scores(self, i: int, h: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Scores of layer i, [B, H, M, M], and the pairs that it attends to, broadcast to them."""
        raise NotImplementedError

    def layers(self, h: Tensor, mask: Tensor | None) -> Tensor:
        """All layers: h [B, M, d_model], zero at padding, mask [B, M] or None -> the same shape."""
        h = self.begun(h)
        for i in range(self.depth):
            h = self.layer(i, h, mask)
        return h

    def states(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Final states [B, N, d_model], of [CLS] too where there is one: then [B, 1 + N, d_model].

        For tagging; zero at padding.
        """
        h, mask = self._entered(x, mask)
        return zero_at_padding(self.layers(h, mask), mask)

    def _entered(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        check_input(x, mask, self.d_in)
        h = zero_at_padding(x, mask)
        if self.in_w is not None:
            h = self.dense(h, self.in_w)
        if self.cls is not None:
            h = torch.cat([self.cls.to(h.dtype).expand(len(h), 1, -1), h], dim=1)
            if mask is not None:
                mask = nn.functional.pad(mask, (1, 0), value=True)
        return h, mask

    def attention(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Scores and weights of every layer, for looking at; [CLS], where there is one, is first.

        Returns
        -------
        dict
            ``l0_token2token_scores`` and ``l0_token2token_weights`` (their softmax, 0 outside of
            windows and in padded rows), ``l1_...``; [H, B, M, M] each, queries before keys.
        """
        h, mask = self._entered(x, mask)
        h = self.begun(h)
        found: dict[str, Tensor] = {}
        for i in range(self.depth):
            r, pairs = self.scores(i, h, mask)
            if mask is not None:
                pairs = pairs & mask[:, None, :, None]
            found[f"l{i}_token2token_scores"] = r.transpose(0, 1)
            found[f"l{i}_token2token_weights"] = masked_softmax(r, pairs, dim=-1).transpose(0, 1)
            h = self.layer(i, h, mask)
        return found

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, d_out].

        A sample without a real token gives zeros.
        """
        h = self.states(x, mask)
        tokens = h if self.cls is None else h[:, 1:]
        if mask is not None:
            tokens = tokens.masked_fill(~mask[..., None], -math.inf)
        sentence = tokens.amax(1)  # [B, d_model]
        if self.readout == "concat":
            sentence = torch.cat([h[:, 0], sentence], dim=-1)
        elif self.readout == "sum":
            sentence = h[:, 0] + sentence
        return sentence if mask is None else sentence.masked_fill(~mask.any(1, keepdim=True), 0)


TRANSFORMER_READOUTS = ("concat", "sum")

Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""Eq. 2: ``attend(q, k, v, mask)``.

q, k, v ``[B, H, M, d_h]``, mask ``[B, M]`` or None -> ``[B, H, M, d_h]``, scores divided by
sqrt(d_h). Every sample has a real key, [CLS].
"""


@layer_of("transformer")
class TransformerLayers(SentenceModel):
    """Layers of multi-head attention and feed-forward block, each with norm(h + .) (post-norm).

    Parameters
    ----------
    d_in, d_out : int
    heads : int
    layers : int
    ff_dim : int, optional
        Hidden width of the feed-forward block; 4 d_model by default.
    readout : {"concat", "sum"}
    positions : bool
        Sinusoids added after the input layer; [CLS] is position 0.
    ln_epsilon : float
    head_dim : int, optional
        d_h; d_model / heads by default.
    preset : str, optional
        A model of the paper's experiments, see `multi_scale_transformer.presets`. Options that have
        their defaults give way to it, others must agree with it.
    """

    attend: Attend

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        heads: int | None = None,
        layers: int = 2,
        ff_dim: int | None = None,
        readout: str = "concat",
        positions: bool = True,
        ln_epsilon: float = 1e-5,
        head_dim: int | None = None,
        preset: str | None = None,
    ) -> None:
        if preset is not None:
            given = {"heads": heads, "layers": layers, "readout": readout, "head_dim": head_dim}
            o = settle(preset, "transformer", given, d_out)
            heads, layers, readout, head_dim = (o[name] for name in given)
        one_of("readout", readout, TRANSFORMER_READOUTS)
        super().__init__(d_in, d_out, depth=layers, readout=readout, cls=True)
        self.heads = positive_int("heads", heads)
        d = self.d_model
        if head_dim is None:
            head_dim = width_per_part(d, self.heads, "heads")
        self.head_dim = positive_int("head_dim", head_dim)
        hidden = positive_int("ff_dim", 4 * d if ff_dim is None else ff_dim)
        self.ln_epsilon = not_negative("ln_epsilon", ln_epsilon)
        self.positions = Positions(d, "paper") if true_or_false("positions", positions) else None
        for i in range(self.depth):
            made = {name: glorot(self.heads, d, head_dim) for name in ("q_w", "k_w", "v_w")}
            made |= {
                "o_w": glorot(self.heads * head_dim, d),
                "ln1_scale": nn.Parameter(torch.ones(d)),
                "ln1_offset": zero_bias(d),
                "ff1_w": glorot(d, hidden),
                "ff1_b": zero_bias(hidden),
                "ff2_w": glorot(hidden, d),
                "ff2_b": zero_bias(d),
                "ln2_scale": nn.Parameter(torch.ones(d)),
                "ln2_offset": zero_bias(d),
            }
            for name, parameter in made.items():
                self.register_parameter(f"l{i}_{name}", parameter)

    def begun(self, h: Tensor) -> Tensor:
        """With positions, where there are any."""
        return h if self.positions is None else self.positions.added_to(h)

    def layer(self, i: int, h: Tensor, mask: Tensor | None) -> Tensor:
        """H = norm(h + MSA(h)), h = norm(h + FFN(h)) (eq. 4-5)."""
        attended = self.attend(*self._projected(i, h), mask)  # eq. 1-3
        mixed = self.dense(attended.transpose(1, 2).flatten(2), self._weight(i, "o_w"))
        h = self._norm(h + mixed, f"l{i}_ln1")
        w, b = self._weight(i, "ff1_w"), self._weight(i, "ff1_b")
        hidden = nn.functional.linear(h, w.T, b).relu_()  # the product adds the bias
        narrow = self.merged.product(hidden, itself, self._weight(i, "ff2_w"))
        return self._norm((h + narrow).add_(self._weight(i, "ff2_b")), f"l{i}_ln2")

    def scores(self, i: int, h: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Eq. 2: q k^T / sqrt(d_h), over all real keys."""
        q, k, _ = self._projected(i, h)
        real = torch.ones(h.shape[:2], dtype=torch.bool, device=h.device) if mask is None else mask
        return q @ k.mT / math.sqrt(self.head_dim), real[:, None, None, :]

    def _projected(self, i: int, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of layer i, [B, H, M, d_h] each."""
        weights = [self._weight(i, name) for name in ("q_w", "k_w", "v_w")]
        qkv = self.merged.product(h, side_by_side, *weights)  # [B, M, 3 * H * d_h]
        qkv = qkv.unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def _norm(self, h: Tensor, name: str) -> Tensor:
        scale, offset = getattr(self, f"{name}_scale"), getattr(self, f"{name}_offset")
        return nn.functional.layer_norm(h, (self.d_model,), scale, offset, self.ln_epsilon)

    def _weight(self, i: int, name: str) -> Tensor:
        weight: Tensor = getattr(self, f"l{i}_{name}")
        return weight


def plain_attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Eq. 2, step by step: [B, H, M, d_h] -> the same; memory B * H * M * M."""
    r = q @ k.mT / math.sqrt(q.shape[-1])  # [B, H, M, M]
    keys = torch.ones(r.shape[-1], dtype=torch.bool, device=r.device)
    if mask is not None:
        keys = mask[:, None, None, :]  # [B, 1, 1, M]
    return masked_softmax(r.to(core_dtype(r.dtype)), keys, dim=-1).to(v.dtype) @ v


class PlainTransformer(OneRow, TransformerLayers):
    """`TransformerLayers` with an explicit softmax."""

    attend = staticmethod(plain_attend)


def sdpa_attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Eq. 2, fused: [B, H, M, d_h] -> the same."""
    keys = None if mask is None else mask[:, None, None, :]  # [B, 1, 1, M]
    return scaled_dot_product_attention(q, k, v, attn_mask=keys)


class SdpaTransformer(TransformerLayers):
    """`TransformerLayers` with `torch.nn.functional.scaled_dot_product_attention`."""

    attend = staticmethod(sdpa_attend)
