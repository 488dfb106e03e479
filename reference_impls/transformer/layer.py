"""The Transformer as a sentence encoder (Multi-Scale eq. 4-5), around its attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from reference_impls.checks import (
    glorot,
    one_of,
    positive_int,
    refuse_unknown,
    true_or_false,
    width_per_part,
    zero_bias,
)
from reference_impls.merged import itself, side_by_side
from reference_impls.msmsa.layer import not_negative
from reference_impls.multi_head.layer import Positions
from reference_impls.multi_scale_transformer.presets import settle
from reference_impls.transformer.sentence import SentenceModel

READOUTS = ("concat", "sum")

Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""Eq. 2: ``attend(q, k, v, mask)``.

q, k, v ``[B, H, M, d_h]``, mask ``[B, M]`` or None -> ``[B, H, M, d_h]``, scores divided by
sqrt(d_h). Every sample has a real key, [CLS].
"""


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

    Raises
    ------
    BadOption
        For a configuration that does not exist.
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
        **unknown: Any,
    ) -> None:
        known = (
            "heads", "layers", "ff_dim", "readout", "positions", "ln_epsilon", "head_dim", "preset",
        )  # fmt: skip
        refuse_unknown("transformer", unknown, known)
        if preset is not None:
            given = {"heads": heads, "layers": layers, "readout": readout, "head_dim": head_dim}
            o = settle(preset, "transformer", given, d_out)
            heads, layers, readout, head_dim = (o[name] for name in given)
        super().__init__(d_in, d_out, readout=one_of("readout", readout, READOUTS), cls=True)
        self.depth, self.heads = positive_int("layers", layers), positive_int("heads", heads)
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
                "ln1_scale": nn.Parameter(torch.ones(d)), "ln1_offset": zero_bias(d),
                "ff1_w": glorot(d, hidden), "ff1_b": zero_bias(hidden),
                "ff2_w": glorot(hidden, d), "ff2_b": zero_bias(d),
                "ln2_scale": nn.Parameter(torch.ones(d)), "ln2_offset": zero_bias(d),
            }  # fmt: skip
            for name, parameter in made.items():
                self.register_parameter(f"l{i}_{name}", parameter)

    def layers(self, h: Tensor, mask: Tensor | None) -> Tensor:
        """Positions, then h = norm(h + MSA(h)), h = norm(h + FFN(h)) in every layer (eq. 4-5)."""
        if self.positions is not None:
            h = self.positions.added_to(h)
        for i in range(self.depth):
            h = self._norm(h + self._attention(h, mask, i), f"l{i}_ln1")
            w, b = self._weight(i, "ff1_w"), self._weight(i, "ff1_b")
            hidden = nn.functional.linear(h, w.T, b).relu_()  # the product adds the bias
            narrow = self.merged.product(hidden, itself, self._weight(i, "ff2_w"))
            h = self._norm((h + narrow).add_(self._weight(i, "ff2_b")), f"l{i}_ln2")
        return h

    def _attention(self, h: Tensor, mask: Tensor | None, i: int) -> Tensor:
        """Eq. 1-3: [B, M, d_model] -> the same."""
        weights = [self._weight(i, name) for name in ("q_w", "k_w", "v_w")]
        qkv = self.merged.product(h, side_by_side, *weights)  # [B, M, 3 * H * d_h]
        qkv = qkv.unflatten(-1, (3, self.heads, self.head_dim))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, M, d_h]
        attended = self.attend(q, k, v, mask)
        return self.dense(attended.transpose(1, 2).flatten(2), self._weight(i, "o_w"))

    def _norm(self, h: Tensor, name: str) -> Tensor:
        scale, offset = getattr(self, f"{name}_scale"), getattr(self, f"{name}_offset")
        return nn.functional.layer_norm(h, (self.d_model,), scale, offset, self.ln_epsilon)

    def _weight(self, i: int, name: str) -> Tensor:
        weight: Tensor = getattr(self, f"l{i}_{name}")
        return weight
