"""What is selected, and the part of a layer that selects: its policies and their weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

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
from reference_impls.resa.policy import POLICIES, THRESHOLD, Decision, share

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
        self, prefixes: tuple[str, ...], d_in: int, *,
        selection: str, rss_hidden: int | None, rss_activation: str, policy: str,
    ) -> None:  # fmt: skip
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
