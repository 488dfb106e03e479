"""Scalar additive attention pooling: weights and scores, the yardstick, torch's fused softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from reference_impls.checks import (
    ACTIVATIONS,
    check_input,
    glorot,
    masked_softmax,
    one_of,
    positive_int,
    refuse_unknown,
    zero_at_padding,
    zero_bias,
)
from reference_impls.mechanism import BadOption

KNOWN: Mapping[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": ACTIVATIONS["relu"],
    "elu": ACTIVATIONS["elu"],
}


class AdditiveLayer(nn.Module):
    """Pools a sequence: s = f(x s1_w + s1_b) s2_w + s2_b, one score per token for all features.

    Parameters
    ----------
    d_in, d_out : int
        Must be equal: the output is a weighted mean of the tokens.
    score_dim : int or None
        Width A of the hidden layer; None: d_in.
    activation : {"tanh", "relu", "elu"}
        f.

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
        score_dim: int | None = None,
        activation: str = "tanh",
        **unknown: Any,
    ) -> None:
        super().__init__()
        refuse_unknown("additive", unknown, ("score_dim", "activation"))
        if d_in != d_out:
            raise BadOption(f"d_out={d_out}, but additive keeps d_in={d_in}; make them equal")
        self.d_in = d_in
        hidden = d_in if score_dim is None else positive_int("score_dim", score_dim)
        self.activation = KNOWN[one_of("activation", activation, KNOWN)]
        self.s1_w, self.s1_b = glorot(d_in, hidden), zero_bias(hidden)
        self.s2_w, self.s2_b = glorot(hidden, 1), zero_bias(1)

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """Mean of x [B, N, D] over real tokens, weighted by softmax(s), s [B, N]: -> [B, D]."""
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, D] with mask [B, N] (true for real tokens; None: all) -> [B, D].

        A sample without a real token gives zeros.
        """
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        return self.pool(x, self._scores(x), mask)

    def _scores(self, x: Tensor) -> Tensor:
        hidden = self.activation(x @ self.s1_w + self.s1_b)  # [B, N, A]
        return (hidden @ self.s2_w + self.s2_b).squeeze(-1)  # [B, N]

    def attention(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Scores s and weights p (their softmax over real tokens), [B, N], for looking at."""
        check_input(x, mask, self.d_in)
        s = self._scores(zero_at_padding(x, mask))
        real = torch.ones_like(s, dtype=torch.bool) if mask is None else mask
        return {"scores": s, "weights": masked_softmax(s, real, dim=1)}


class PlainAdditive(AdditiveLayer):
    """`AdditiveLayer` with an explicit softmax."""

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """p_j = softmax over real j of s_j; sum over j of p_j x_j."""
        real = torch.ones_like(s, dtype=torch.bool) if mask is None else mask
        p = masked_softmax(s, real, dim=1)  # [B, N]
        return (p[..., None] * x).sum(1)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, D] -> [B, D]; ``rows`` is ignored, there is one output per sequence."""
        return super().forward(x, mask)


class DirectAdditive(AdditiveLayer):
    """`AdditiveLayer` with `torch.softmax`, and the mean taken around the token of highest score.

    The gradient of a score is p_j (x_j - out) g. Around 0 it comes out as the difference of two
    products that nearly cancel where one token has all the weight; around that token it does not.
    """

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """Softmax over real tokens, then c + p (x - c)."""
        if mask is not None:
            # In a sample without a real token nothing is masked: a softmax over nothing is NaN,
            # and x is zero there, so that any weights give zero.
            s = s.masked_fill(~mask & mask.any(1, keepdim=True), -math.inf)
        highest = s.detach().argmax(1)[:, None, None].expand(-1, -1, x.shape[2])  # [B, 1, D]
        centre = x.detach().gather(1, highest)
        # No gradient reaches the centre: the weights' sum is 1, whatever it is.
        return (s.softmax(1)[:, None] @ (x - centre) + centre).squeeze(1)  # [B, D]
