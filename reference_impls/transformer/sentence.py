"""What the Multi-Scale Transformer and its peer share: embedding, [CLS], readout."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from reference_impls.checks import (
    check_input,
    glorot,
    masked_softmax,
    one_of,
    positive_int,
    true_or_false,
    width_per_part,
    zero_at_padding,
)
from reference_impls.mechanism import BadOption
from reference_impls.merged import MergingModule

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

    Raises
    ------
    BadOption
        For a configuration that does not exist.
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
