"""Policies that select tokens: reinforced sequence sampling (RSS) and iterative sampling.

A policy is a function of its weights, which live in the layer that uses it. Whether a token is
selected is a comparison with a number u: drawn from [0, 1) it samples, u = .5 is the threshold, and
u = 0 selects all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from reference_impls.checks import activation_by_name, core_dtype

THRESHOLD = 0.5
LEAST_LOG = math.log(1e-10)
"""Log-probabilities are clipped here (released program)."""


class Decision(NamedTuple):
    """What a policy did with a batch.

    Attributes
    ----------
    actions : Tensor of bool, shape [B, N]
        True for selected tokens; false at padding.
    probability : Tensor, shape [B, N]
        Of being selected, p (eq. 7).
    log_probability : Tensor, shape [B, N]
        Of the action taken: log p or log(1 - p), at least log(1e-10); 0 at padding.
    share : Tensor, shape [B]
        Selected tokens over real ones; 0 without a real token.
    """

    actions: Tensor
    probability: Tensor
    log_probability: Tensor
    share: Tensor


class Policy(Protocol):
    """Selects tokens; both policies read the context features of `context`."""

    def shapes(self, d_in: int, hidden: int) -> dict[str, tuple[int, ...]]:
        """Weights by name; those with one axis are biases."""

    def decide(
        self,
        weights: Mapping[str, Tensor],
        x: Tensor,
        mask: Tensor,
        uniform: Tensor,
        activation: str = "elu",
    ) -> Decision:
        """Select among the tokens x [B, N, D], zero at padding, by the numbers u [B, N]."""


def context(x: Tensor, mask: Tensor) -> Tensor:
    """z_i = [x_i ; m ; x_i * m], m the mean over real tokens (eq. 6): [B, N, D] -> [B, N, 3D]."""
    count = mask.sum(1, keepdim=True).clamp(min=1)  # [B, 1]
    mean = (x.sum(1) / count)[:, None].expand_as(x)  # [B, N, D]
    return torch.cat([x, mean, x * mean], dim=-1)


def share(actions: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Selected tokens over real ones: [B, N] twice -> [B]."""
    return actions.sum(1).to(dtype) / mask.sum(1).clamp(min=1)


def _decision(logits: Tensor, actions: Tensor, mask: Tensor) -> Decision:
    # log(1 - p) from the logit: 1 - p itself has no digits left where p is near 1.
    log = logsigmoid(torch.where(actions, logits, -logits)).clamp(min=LEAST_LOG)
    return Decision(
        actions,
        torch.sigmoid(logits),
        log.masked_fill(~mask, 0),
        share(actions, mask, logits.dtype),
    )


class Rss:
    """Reinforced sequence sampling: independent actions, all at once (eq. 5-7).

    p_i = sigmoid(f(z_i w1 + b1) w2 + b2). Computed in float32 at least, under autocast too: the
    rounding of half precision must not decide what is selected.
    """

    def shapes(self, d_in: int, hidden: int) -> dict[str, tuple[int, ...]]:
        """Two layers with biases."""
        return {"w1": (3 * d_in, hidden), "b1": (hidden,), "w2": (hidden, 1), "b2": (1,)}

    def decide(
        self,
        weights: Mapping[str, Tensor],
        x: Tensor,
        mask: Tensor,
        uniform: Tensor,
        activation: str = "elu",
    ) -> Decision:
        """Select where u_i <= p_i.

        Parameters
        ----------
        weights : mapping
            See `shapes`.
        x : Tensor, shape [B, N, D]
            Zero at padding.
        mask : Tensor of bool, shape [B, N]
        uniform : Tensor, shape [B, N]
        activation : {"relu", "elu", "selu"}
            f.
        """
        with torch.autocast(x.device.type, enabled=False):
            dtype = core_dtype(x.dtype)
            w1, b1, w2, b2 = (weights[name].to(dtype) for name in ("w1", "b1", "w2", "b2"))
            hidden = activation_by_name(activation)(context(x.to(dtype), mask) @ w1 + b1)
            logits = (hidden @ w2 + b2)[..., 0]  # [B, N]
            actions = (uniform <= torch.sigmoid(logits)) & mask
            return _decision(logits, actions, mask)


class IterativeSelector:
    """Iterative sampling: each action depends on those before it (App. A, eq. 21-25).

    h_i = tanh([c_i ; a_{i-1}] in_w + h_{i-1} state_w + b), p_i = sigmoid(h_i out_w + out_b), with
    the action a_{i-1} in {0, 1} and h_0 = a_0 = 0. Formulas and sizes are lost in the text: c_i is
    taken as the context features of RSS, so that the two policies differ in the recurrence alone.
    """

    def shapes(self, d_in: int, hidden: int) -> dict[str, tuple[int, ...]]:
        """The recurrent layer, and the one behind it."""
        return {
            "in_w": (3 * d_in + 1, hidden),
            "state_w": (hidden, hidden),
            "state_b": (hidden,),
            "out_w": (hidden, 1),
            "out_b": (1,),
        }

    def decide(
        self,
        weights: Mapping[str, Tensor],
        x: Tensor,
        mask: Tensor,
        uniform: Tensor,
        activation: str = "elu",
    ) -> Decision:
        """Select where u_i <= p_i, token by token; ``activation`` is not used (eq. 22: tanh)."""
        with torch.autocast(x.device.type, enabled=False):
            dtype = core_dtype(x.dtype)
            w = {name: weight.to(dtype) for name, weight in weights.items()}
            features = context(x.to(dtype), mask)  # [B, N, 3D]
            ahead = features @ w["in_w"][:-1] + w["state_b"]  # [B, N, h]
            state = torch.zeros_like(ahead[:, 0])  # [B, h]
            action = torch.zeros_like(mask[:, 0])  # [B]
            logits, actions = [], []
            for i in range(x.shape[1]):
                last = action[:, None].to(dtype) * w["in_w"][-1]  # [B, h]
                state = torch.tanh(ahead[:, i] + last + state @ w["state_w"])
                logits.append((state @ w["out_w"] + w["out_b"])[:, 0])  # [B]
                action = (uniform[:, i] <= torch.sigmoid(logits[-1])) & mask[:, i]
                actions.append(action)
            return _decision(torch.stack(logits, dim=1), torch.stack(actions, dim=1), mask)


POLICIES: Mapping[str, Policy] = {"rss": Rss(), "iterative": IterativeSelector()}
