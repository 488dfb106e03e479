"""What is selected: policies, and the part of a layer that has them and their weights.

Reinforced sequence sampling (RSS) and iterative sampling. A policy is a function of its weights,
which live in the layer that uses it. Whether a token is selected is a comparison with a number u:
drawn from [0, 1) it samples, u = .5 is the threshold, and u = 0 selects all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from reference_impls.checks import (
    activation_by_name,
    core_dtype,
    glorot,
    one_of,
    positive_int,
    weight_of,
    zero_at_padding,
    zero_bias,
)
from reference_impls.mechanism import Drawn

Weights: TypeAlias = Mapping[str, Tensor]
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


class Policy:
    """Selects tokens by the context features of `context`; its weights live in a layer."""

    def shapes(self, d_in: int, hidden: int) -> dict[str, tuple[int, ...]]:
        """Weights by name; those with one axis are biases."""
        raise NotImplementedError

    def logits(
        self, w: Weights, z: Tensor, mask: Tensor, uniform: Tensor, activation: str
    ) -> tuple[Tensor, Tensor]:
        """Logits and actions [B, N], of features z [B, N, 3D] in the weights' dtype."""
        raise NotImplementedError

    def decide(
        self, weights: Weights, x: Tensor, mask: Tensor, uniform: Tensor, activation: str = "elu"
    ) -> Decision:
        """Select where u_i <= p_i, in float32 at least, under autocast too.

        The rounding of half precision must not decide what is selected.

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
            w = {name: weight.to(dtype) for name, weight in weights.items()}
            z = context(x.to(dtype), mask)
            return _decision(*self.logits(w, z, mask, uniform, activation), mask)


class Rss(Policy):
    """Reinforced sequence sampling: independent actions, all at once (eq. 5-7).

    p_i = sigmoid(f(z_i w1 + b1) w2 + b2).
    """

    def shapes(self, d_in: int, hidden: int) -> dict[str, tuple[int, ...]]:
        """Two layers with biases."""
        return {"w1": (3 * d_in, hidden), "b1": (hidden,), "w2": (hidden, 1), "b2": (1,)}

    def logits(
        self, w: Weights, z: Tensor, mask: Tensor, uniform: Tensor, activation: str
    ) -> tuple[Tensor, Tensor]:
        """All at once."""
        hidden = activation_by_name(activation)(z @ w["w1"] + w["b1"])
        logits = (hidden @ w["w2"] + w["b2"])[..., 0]  # [B, N]
        return logits, (uniform <= torch.sigmoid(logits)) & mask


class IterativeSelector(Policy):
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

    def logits(
        self, w: Weights, z: Tensor, mask: Tensor, uniform: Tensor, activation: str
    ) -> tuple[Tensor, Tensor]:
        """Token by token; ``activation`` is not used (eq. 22: tanh)."""
        ahead = z @ w["in_w"][:-1] + w["state_b"]  # [B, N, h]
        state = torch.zeros_like(ahead[:, 0])  # [B, h]
        action = torch.zeros_like(mask[:, 0])  # [B]
        logits, actions = [], []
        for i in range(z.shape[1]):
            last = action[:, None].to(z.dtype) * w["in_w"][-1]  # [B, h]
            state = torch.tanh(ahead[:, i] + last + state @ w["state_w"])
            logits.append((state @ w["out_w"] + w["out_b"])[:, 0])  # [B]
            action = (uniform[:, i] <= torch.sigmoid(logits[-1])) & mask[:, i]
            actions.append(action)
        return torch.stack(logits, dim=1), torch.stack(actions, dim=1)


POLICIES: Mapping[str, Policy] = {"rss": Rss(), "iterative": IterativeSelector()}


SELECTIONS = ("threshold", "sampled", "all")
PREFIXES: tuple[tuple[str, ...], ...] = (("head", "dep"), ("sel",), ())
"""Policies that a layer may have: one for heads and one for dependents, one for both, none."""


class Selection(NamedTuple):
    """Which tokens of a batch take part, and how probable that was.

    Attributes
    ----------
    heads, dependents : Tensor of bool, shape [B, N]
        Selected queries and keys; what stands at padding is not read.
    log_probability : Tensor, shape [B]
        Of all actions of both modules; 0 for selections that are not sampled.
    head_share, dependent_share : Tensor, shape [B]
        Selected tokens over real ones.
    """

    heads: Tensor
    dependents: Tensor
    log_probability: Tensor
    head_share: Tensor
    dependent_share: Tensor


def given(heads: Tensor, dependents: Tensor, mask: Tensor | None = None) -> Selection:
    """A selection that no policy made, for tests and for looking.

    Parameters
    ----------
    heads, dependents, mask : Tensor of bool, shape [B, N]
    """
    real = torch.ones_like(heads) if mask is None else mask
    head_share, dependent_share = (
        share(s & real, real, torch.get_default_dtype()) for s in (heads, dependents)
    )
    return Selection(heads, dependents, torch.zeros_like(head_share), head_share, dependent_share)


def real_tokens(x: Tensor, mask: Tensor | None) -> Tensor:
    """The mask, or one that is true everywhere: [B, N]."""
    return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask


class Selecting(nn.Module):
    """The policies of a layer; a base of layers, which call `add_policies` when they are made.

    Attributes
    ----------
    selection : {"threshold", "sampled", "all"}
        Tokens with p >= .5, tokens drawn with probability p, or every real token. May be changed
        at any time.
    generator : torch.Generator or None
        Where sampled actions come from; None is torch's own of the device of x.
    decisions : list of Selection or None
        If a list, every forward pass appends what it selected: the one way to reach
        log-probabilities when the layer is called from inside a model.
    """

    selection: str
    generator: torch.Generator | None
    decisions: list[Selection] | None

    def add_policies(
        self,
        prefixes: tuple[str, ...],
        d_in: int,
        *,
        selection: str,
        rss_hidden: int | None,
        rss_activation: str,
        policy: str,
    ) -> None:
        """Make the weights, ``{prefix}_{name}`` each.

        Raises
        ------
        BadOption
            For a configuration that does not exist.
        """
        self.prefixes: tuple[str, ...] = one_of("prefixes", prefixes, PREFIXES)
        self.selection = one_of("selection", selection, SELECTIONS)
        self.generator = None
        self.decisions = None
        activation_by_name(rss_activation)
        self.policy_activation = rss_activation
        self.policy = POLICIES[one_of("policy", policy, POLICIES)]
        hidden = d_in if rss_hidden is None else positive_int("rss_hidden", rss_hidden)
        self.policy_shapes = self.policy.shapes(d_in, hidden)
        for prefix in prefixes:
            for name, shape in self.policy_shapes.items():
                made = glorot(*shape) if len(shape) > 1 else zero_bias(*shape)
                self.register_parameter(f"{prefix}_{name}", made)

    def policy_parameters(self) -> list[nn.Parameter]:
        """The weights that decide what is selected; no gradient of the output reaches them."""
        names = [f"{prefix}_{name}" for prefix in self.prefixes for name in self.policy_shapes]
        return [self.get_parameter(name) for name in names]

    def decide(self, prefix: str, x: Tensor, real: Tensor, uniform: Tensor) -> Decision:
        """What one policy selects, by the numbers u [B, N]; x is zero at padding."""
        weights = {n: weight_of(self, f"{prefix}_{n}") for n in self.policy_shapes}
        # Eq. 19 is a gradient with respect to the policy's own weights: nothing below it moves.
        return self.policy.decide(weights, x.detach(), real, uniform, self.policy_activation)

    def select(self, x: Tensor, mask: Tensor | None = None) -> Selection:
        """Select heads and dependents as `selection` says.

        Parameters
        ----------
        x : Tensor, shape [B, N, d_in]
        mask : Tensor of bool, shape [B, N], or None
        """
        return self._select(zero_at_padding(x, mask), real_tokens(x, mask))

    def _select(self, x: Tensor, real: Tensor) -> Selection:
        """The same, with x zero at padding."""
        if self.selection == "all" or not self.prefixes:
            return given(real, real, real)
        dtype = core_dtype(x.dtype)
        if self.selection == "threshold":
            with torch.no_grad():
                u = torch.full(real.shape, THRESHOLD, dtype=dtype, device=x.device)
                made = [self.decide(prefix, x, real, u) for prefix in self.prefixes]
            log_probability = torch.zeros(real.shape[:1], dtype=dtype, device=x.device)
        else:
            made = []
            for prefix in self.prefixes:
                u = torch.rand(real.shape, generator=self.generator, dtype=dtype, device=x.device)
                made.append(self.decide(prefix, x, real, u))
            log_probability = torch.stack([d.log_probability for d in made]).sum((0, 2))  # [B]
        # A single policy decides for heads and dependents alike.
        heads, dependents = made[0], made[-1]
        return Selection(
            heads.actions, dependents.actions, log_probability, heads.share, dependents.share
        )

    def chosen(self, x: Tensor, real: Tensor, selection: Selection | None) -> Selection:
        """The selection given, or that of the policies; added to `decisions` if that is a list.

        x is zero at padding.
        """
        made = self._select(x, real) if selection is None else selection
        if self.decisions is not None:
            self.decisions.append(made)
        return made


SAID = ("log_probability", "head_share", "dependent_share")


@contextmanager
def recorded(module: Selecting) -> Iterator[Drawn]:
    """Note what the policies of a layer select [n], by their prefixes, and what it says of that."""
    module.decisions = []

    def of(b: int, n: int) -> dict[str, Any]:
        (made,) = module.decisions or []
        heads, dependents = (s[b, :n].cpu().numpy() for s in (made.heads, made.dependents))
        return {"head": heads, "sel": heads, "dep": dependents}

    def said() -> dict[str, Any]:
        (made,) = module.decisions or []
        return {name: getattr(made, name) for name in SAID}

    try:
        yield Drawn(of, said)
    finally:
        module.decisions = None
