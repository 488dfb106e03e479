"""Multi-dimensional source2token attention: weights and scores, the yardstick, torch's softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from reference_impls.checks import (
    activation_by_name,
    check_input,
    glorot,
    masked_softmax,
    refuse_unknown,
    zero_at_padding,
    zero_bias,
)
from reference_impls.mechanism import BadOption


class Source2TokenLayer(nn.Module):
    """Pools a sequence: s = f(x s1_w + s1_b) s2_w + s2_b, one score per token and feature.

    Parameters
    ----------
    d_in, d_out : int
        Must be equal: the output is a weighted mean of the tokens.
    activation : {"relu", "elu", "selu"}
        f.

    Raises
    ------
    BadOption
        For a configuration that does not exist.
    """

    def __init__(self, d_in: int, d_out: int, *, activation: str = "relu", **unknown: Any) -> None:
        super().__init__()
        refuse_unknown("source2token", unknown, ("activation",))
        if d_in != d_out:
            raise BadOption(f"d_out={d_out}, but source2token keeps d_in={d_in}; make them equal")
        self.d_in = d_in
        self.activation = activation_by_name(activation)
        self.s1_w, self.s1_b = glorot(d_in, d_in), zero_bias(d_in)
        self.s2_w, self.s2_b = glorot(d_in, d_in), zero_bias(d_in)

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """Mean of x over real tokens, weighted by softmax(s): [B, N, D] twice -> [B, D]."""
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, D] with mask [B, N] (true for real tokens; None: all) -> [B, D].

        A sample without a real token gives zeros.
        """
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        return self.pool(x, self._scores(x), mask)

    def _scores(self, x: Tensor) -> Tensor:
        return self.activation(x @ self.s1_w + self.s1_b) @ self.s2_w + self.s2_b  # [B, N, D]

    def attention(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Scores s and weights p (their softmax over real tokens), [B, N, D], for looking at."""
        check_input(x, mask, self.d_in)
        s = self._scores(zero_at_padding(x, mask))
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
        return {"scores": s, "weights": masked_softmax(s, real[..., None], dim=1)}


class PlainSource2Token(Source2TokenLayer):
    """`Source2TokenLayer` with an explicit softmax."""

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """p_jl = softmax over real j of s_jl; sum over j of p_jl x_jl."""
        real = torch.ones_like(s[..., 0], dtype=torch.bool) if mask is None else mask
        p = masked_softmax(s, real[..., None], dim=1)  # [B, N, D]
        return (p * x).sum(1)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, D] -> [B, D]; ``rows`` is ignored, there is one output per sequence."""
        return super().forward(x, mask)


class DirectSource2Token(Source2TokenLayer):
    """`Source2TokenLayer` with `torch.softmax`."""

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """Softmax over real tokens, then the weighted sum."""
        if mask is not None:
            # In a sample without a real token nothing is masked: a softmax over nothing is NaN,
            # and x is zero there, so that any weights give zero.
            padded = ~mask & mask.any(1, keepdim=True)  # [B, N]
            s = s.masked_fill(padded[..., None], -math.inf)
        return (s.softmax(1) * x).sum(1)
