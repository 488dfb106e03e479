"""Reinforced self-attention around DiSA's attention: selections, and what unselected tokens get.

The yardstick scores all N x N x d pairs and masks unselected keys; the others mask unselected
pairs, or never compute them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from reference_impls.checks import (
    check_input,
    core_dtype,
    host_can_decide,
    layer_of,
    one_of,
    refuse_rows,
    zero_at_padding,
)
from reference_impls.disa.modules import (
    BroadcastDisa,
    DisaLayer,
    Pairs,
    PlainDisa,
    broadcast_attend,
)
from reference_impls.masks import allowed
from reference_impls.resa.selecting import Selecting, Selection, real_tokens

UNSELECTED = ("all_real", "dependents", "others")


@dataclass(frozen=True, kw_only=True)
class Roles(Pairs):
    """What each token is; the keys are the selected dependents.

    Attributes
    ----------
    real, heads : Tensor of bool, shape [B, N]
        Real tokens, and those of them that are selected queries.
    """

    real: Tensor
    heads: Tensor


@layer_of("resa")
class ResaLayer(DisaLayer, Selecting):
    """`DisaLayer` in which only selected queries (heads) attend, to selected keys (dependents).

    A query that is not selected gets the mean of h over other tokens instead (eq. 8-15). Both
    directions share the selections. No gradient flows through a selection; the weights of the two
    policies are trained by the log-probability of what they drew (`harness.train.reinforce`).

    Parameters
    ----------
    d_in, d_out, direction, activation, tanh_scale
        As for `DisaLayer`.
    unselected : {"all_real", "dependents", "others"}
        What an unselected query's mean is taken over: all real tokens (the paper's words: a softmax
        of equal scores), the selected dependents, or all other real tokens whatever the direction
        (released program).
    selection : {"threshold", "sampled", "all"}
        See `Selecting`.
    rss_hidden : int or None
        Hidden features of both policies; None is d_in.
    rss_activation : {"relu", "elu", "selu"}
        f of eq. 7.
    policy : {"rss", "iterative"}
        Parallel sampling, or that of appendix A.
    prefixes : tuple of str
        Of the policies' weights; only a sentence encoder may have another than these two.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        direction: str = "both",
        activation: str = "elu",
        tanh_scale: float = 5.0,
        unselected: str = "all_real",
        selection: str = "threshold",
        rss_hidden: int | None = None,
        rss_activation: str = "elu",
        policy: str = "rss",
        prefixes: tuple[str, ...] = ("head", "dep"),
    ) -> None:
        super().__init__(
            d_in, d_out, direction=direction, activation=activation, tanh_scale=tanh_scale
        )
        self.unselected = one_of("unselected", unselected, UNSELECTED)
        self.add_policies(
            prefixes,
            d_in,
            selection=selection,
            rss_hidden=rss_hidden,
            rss_activation=rss_activation,
            policy=policy,
        )

    def attended(self, h: Tensor, dependent: Tensor, head: Tensor, roles: Roles) -> Tensor:
        """a_i = sum_j p_ij * h_j over selected j, for selected i (eq. 11-13).

        DiSA with the dependents as the only keys: anything finite where i is not selected.
        """
        return super().attend(h, dependent, head, roles)

    def attend(self, h: Tensor, dependent: Tensor, head: Tensor, pairs: Pairs) -> Tensor:
        """Attention for selected queries, a mean for the others: [B, R, d]."""
        assert isinstance(pairs, Roles)
        assert pairs.keys is not None
        a = self.attended(h, dependent, head, pairs)  # [B, R, d]
        mean, heads = self._mean(h, pairs.real, pairs.keys), pairs.heads  # [B, 1 or N, d]
        if pairs.rows is not None:
            heads, mean = heads[:, pairs.rows], mean.expand_as(h)[:, pairs.rows]
        return torch.where(heads[..., None], a, mean)

    def _mean(self, h: Tensor, real: Tensor, dependents: Tensor) -> Tensor:
        """What an unselected query gets: [B, 1 or N, d]; 0 where there is nothing to average."""
        dtype = core_dtype(h.dtype)
        among = (dependents if self.unselected == "dependents" else real)[..., None].to(dtype)
        values = h.to(dtype)
        total, count = (values * among).sum(1, keepdim=True), among.sum(1, keepdim=True)
        if self.unselected == "others":
            total, count = total - values, count - 1
        return (total / count.clamp(min=1)).to(h.dtype)

    def fuse(
        self,
        x: Tensor,
        mask: Tensor | None,
        rows: Tensor | None = None,
        selection: Selection | None = None,
    ) -> Tensor:
        """The layer at the query positions ``rows`` (None: all): [B, N, D] -> [B, R, d_out]."""
        check_input(x, mask, self.d_in)
        x, real = zero_at_padding(x, mask), real_tokens(x, mask)
        out = self.among(x, real, self.chosen(x, real, selection), rows)
        return zero_at_padding(out, real if rows is None else real[:, rows])

    def among(
        self, x: Tensor, real: Tensor, selection: Selection, rows: Tensor | None = None
    ) -> Tensor:
        """Both blocks side by side: [B, N, D], zero at padding -> [B, R, d_out], not zeroed."""
        heads, dependents = selection.heads & real, selection.dependents & real
        roles = partial(Roles, keys=dependents, rows=rows, real=real, heads=heads)
        return self.side_by_side(x, roles)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, selection: Selection | None = None
    ) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out].

        Parameters
        ----------
        selection : Selection, optional
            Takes the place of the policies' own; see `given`.
        """
        return self.fuse(x, mask, None, selection)

    def attention(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Weights of selected queries on selected keys, for looking at; see `DisaLayer.attention`.

        The rows of queries that are not selected are 0: they get a mean, without weights. Where
        selections are drawn, these are a draw of their own.
        """
        check_input(x, mask, self.d_in)
        x, real = zero_at_padding(x, mask), real_tokens(x, mask)
        selection = self._select(x, real)
        chosen = selection.heads & real, selection.dependents & real
        return {"token2token_weights": self.shown(x, *chosen)}


class PlainResa(ResaLayer, PlainDisa):
    """`ResaLayer` with an explicit softmax; memory B * R * N * d_out, several times."""

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        rows: Tensor | None = None,
        *,
        selection: Selection | None = None,
    ) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the query positions ``rows`` [R]; None is all N."""
        return self.fuse(x, mask, rows, selection)


class MaskedResa(ResaLayer, BroadcastDisa):
    """All N x N pairs by broadcasting, unselected keys masked; memory B * N * N * d_out, twice."""


def positions(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Where the chosen tokens are, each sample's filled up to the most that any sample has.

    The host must know that number, so it waits for the device once. Where it may not look (in a
    compiled graph, or a CUDA graph) all N positions are returned: right, and nothing is saved.

    Parameters
    ----------
    chosen : Tensor of bool, shape [B, N]

    Returns
    -------
    index : Tensor of int64, shape [B, S]
        Chosen positions in order, then others; all different.
    real : Tensor of bool, shape [B, S]
        Which of them are chosen.
    """
    most = chosen.shape[1]
    if host_can_decide(chosen):
        # One position at least: an empty axis has no maximum.
        most = max(1, int(chosen.sum(1).amax())) if len(chosen) else 1
    index = (~chosen).byte().argsort(dim=1, stable=True)[:, :most]  # [B, S]
    return index, chosen.gather(1, index)


def take(values: Tensor, index: Tensor) -> Tensor:
    """Values at positions: [B, N, d] and [B, S] -> [B, S, d]."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[2]))


class GatheredResa(ResaLayer):
    """Selected pairs only: gathered to S heads by D dependents; memory B * S * D * d_out, twice.

    S and D are the most that any sample of the batch has; see `positions`.
    """

    def attended(self, h: Tensor, dependent: Tensor, head: Tensor, roles: Roles) -> Tensor:
        """Gather, attend, scatter back: 0 where a query is not selected."""
        refuse_rows(roles.rows)
        assert roles.keys is not None
        (i, is_head), (j, is_dependent) = positions(roles.heads), positions(roles.keys)
        pairs = allowed((roles.direction,), h.shape[1], h.device)[0][i[:, :, None], j[:, None, :]]
        pairs = pairs & is_head[:, :, None] & is_dependent[:, None, :]  # [B, S, D]
        values, keys, queries = take(h, j), take(dependent, j), take(head, i)
        a = broadcast_attend(values, keys, queries, pairs, self.tanh_scale)  # [B, S, d]
        return torch.zeros_like(h).scatter(1, i[..., None].expand_as(a), a)
