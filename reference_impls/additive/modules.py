"""Scalar additive attention pooling: weights and scores, the yardstick, torch's fused softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from reference_impls.checks import ACTIVATIONS, layer_of, one_of, positive_int
from reference_impls.source2token.modules import PlainPooling, PoolingLayer, closed_at_padding

KNOWN: Mapping[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": ACTIVATIONS["relu"],
    "elu": ACTIVATIONS["elu"],
}


@layer_of("additive")
class AdditiveLayer(PoolingLayer):
    """`PoolingLayer` with one score per token, for all features.

    Parameters
    ----------
    d_in, d_out : int
        Must be equal.
    score_dim : int or None
        Width A of the hidden layer; None: d_in.
    activation : {"tanh", "relu", "elu"}
        f.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        score_dim: int | None = None,
        activation: str = "tanh",
    ) -> None:
        f = KNOWN[one_of("activation", activation, KNOWN)]
        hidden = d_in if score_dim is None else positive_int("score_dim", score_dim)
        super().__init__("additive", d_in, d_out, f, hidden=hidden, scores=1)

    def attention(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Scores s and weights p (their softmax over real tokens), [B, N], for looking at."""
        return {name: t.squeeze(-1) for name, t in super().attention(x, mask).items()}


class PlainAdditive(PlainPooling, AdditiveLayer):
    """`AdditiveLayer` with an explicit softmax."""


class DirectAdditive(AdditiveLayer):
    """`AdditiveLayer` with `torch.softmax`, and the mean taken around the token of highest score.

    The gradient of a score is p_j (x_j - out) g. Around 0 it comes out as the difference of two
    products that nearly cancel where one token has all the weight; around that token it does not.
    """

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """Softmax over real tokens, then c + p (x - c)."""
        s = closed_at_padding(s, mask).squeeze(-1)  # [B, N]
        highest = s.detach().argmax(1)[:, None, None].expand(-1, -1, x.shape[2])  # [B, 1, D]
        centre = x.detach().gather(1, highest)
        # No gradient reaches the centre: the weights' sum is 1, whatever it is.
        return (s.softmax(1)[:, None] @ (x - centre) + centre).squeeze(1)  # [B, D]
