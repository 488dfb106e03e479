"""The Transformer as a sentence encoder (Multi-Scale eq. 4-5), around its attention."""

from __future__ import annotations

import math
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
        one_of("readout", readout, READOUTS)
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
                "ln1_scale": nn.Parameter(torch.ones(d)), "ln1_offset": zero_bias(d),
                "ff1_w": glorot(d, hidden), "ff1_b": zero_bias(hidden),
                "ff2_w": glorot(hidden, d), "ff2_b": zero_bias(d),
                "ln2_scale": nn.Parameter(torch.ones(d)), "ln2_offset": zero_bias(d),
            }  # fmt: skip
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
