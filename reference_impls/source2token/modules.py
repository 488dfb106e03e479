"""Multi-dimensional source2token attention: weights and scores, the yardstick, torch's softmax.

Additive attention pools alike, with one score per token.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from reference_impls.checks import (
    OneRow,
    activation_by_name,
    check_input,
    glorot,
    layer_of,
    masked_softmax,
    zero_at_padding,
    zero_bias,
)
from reference_impls.mechanism import BadOption


class PoolingLayer(nn.Module):
    """Pools a sequence: s = f(x s1_w + s1_b) s2_w + s2_b, and the mean of x weighted by softmax(s).

    Parameters
    ----------
    name : str
        Of the mechanism.
    d_in, d_out : int
        Must be equal: the output is a weighted mean of the tokens.
    activation : callable
        f.
    hidden, scores : int
        Features of the hidden layer; scores of a token, D or 1.

    Raises
    ------
    BadOption
        For widths that differ.
    """

    def __init__(
        self,
        name: str,
        d_in: int,
        d_out: int,
        activation: Callable[[Tensor], Tensor],
        hidden: int,
        scores: int,
    ) -> None:
        super().__init__()
        if d_in != d_out:
            raise BadOption(f"d_out={d_out}, but {name} keeps d_in={d_in}; make them equal")
        self.d_in, self.activation = d_in, activation
        self.s1_w, self.s1_b = glorot(d_in, hidden), zero_bias(hidden)
        self.s2_w, self.s2_b = glorot(hidden, scores), zero_bias(scores)

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """Mean of x [B, N, D] over real tokens, weighted by softmax(s), [B, N, D or 1]: [B, D]."""
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, D] with mask [B, N] (true for real tokens; None: all) -> [B, D].

        A sample without a real token gives zeros.
        """
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        return self.pool(x, self._scores(x), mask)

    def _scores(self, x: Tensor) -> Tensor:
        return self.activation(x @ self.s1_w + self.s1_b) @ self.s2_w + self.s2_b

    def attention(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Scores s and weights p (their softmax over real tokens), like s, for looking at."""
        check_input(x, mask, self.d_in)
        s = self._scores(zero_at_padding(x, mask))
        return {"scores": s, "weights": weights_of(s, mask)}


def weights_of(s: Tensor, mask: Tensor | None) -> Tensor:
    """p_jl = softmax over real j of s_jl: [B, N, D or 1] -> the same."""
    real = torch.ones_like(s[..., 0], dtype=torch.bool) if mask is None else mask
    return masked_softmax(s, real[..., None], dim=1)


def closed_at_padding(s: Tensor, mask: Tensor | None) -> Tensor:
    """Scores [..., N, D], -inf where ``mask`` [..., N] is false, for `torch.softmax`.

    Where it is false everywhere nothing changes: a softmax over nothing is NaN, and what is
    weighted is zero there, so that any weights give zero.
    """
    if mask is None:
        return s
    padded = ~mask & mask.any(-1, keepdim=True)
    return s.masked_fill(padded[..., None], -math.inf)


@layer_of("source2token")
class Source2TokenLayer(PoolingLayer):
    """`PoolingLayer` with one score per token and feature.

    Parameters
    ----------
    d_in, d_out : int
        Must be equal.
    activation : {"relu", "elu", "selu"}
        f.
    """

    def __init__(self, d_in: int, d_out: int, *, activation: str = "relu") -> None:
        f = activation_by_name(activation)
        super().__init__("source2token", d_in, d_out, f, hidden=d_in, scores=d_in)


class PlainPooling(OneRow, PoolingLayer):
    """`PoolingLayer` with an explicit softmax."""

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """The sum over j of p_j x_j."""
        return (weights_of(s, mask) * x).sum(1)


class PlainSource2Token(PlainPooling, Source2TokenLayer):
    """`Source2TokenLayer` with an explicit softmax."""


class DirectSource2Token(Source2TokenLayer):
    """`Source2TokenLayer` with `torch.softmax`."""

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """Softmax over real tokens, then the weighted sum."""
        return (closed_at_padding(s, mask).softmax(1) * x).sum(1)
