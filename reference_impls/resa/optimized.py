"""ReSA that masks unselected pairs, and ReSA that never computes them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reference_impls.checks import core_dtype, host_can_decide, refuse_rows
from reference_impls.disa.optimized import LARGEST_SAFE_SCALE, BroadcastDisa
from reference_impls.masks import HeadMask, allowed
from reference_impls.resa.layer import ResaLayer


class MaskedResa(ResaLayer, BroadcastDisa):
    """All N x N pairs by broadcasting, unselected keys masked; memory B * N * N * d_out, twice."""

    def attended(
        self,
        h: Tensor,
        dependent: Tensor,
        head: Tensor,
        direction: HeadMask,
        heads: Tensor,
        dependents: Tensor,
        rows: Tensor | None,
    ) -> Tensor:
        """DiSA with the dependents as the only keys."""
        return BroadcastDisa.attend(self, h, dependent, head, direction, dependents, rows)


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

    def attended(
        self,
        h: Tensor,
        dependent: Tensor,
        head: Tensor,
        direction: HeadMask,
        heads: Tensor,
        dependents: Tensor,
        rows: Tensor | None,
    ) -> Tensor:
        """Gather, attend, scatter back: 0 where a query is not selected."""
        refuse_rows(rows)
        (i, is_head), (j, is_dependent) = positions(heads), positions(dependents)  # [B, S], [B, D]
        pairs = allowed((direction,), h.shape[1], h.device)[0][i[:, :, None], j[:, None, :]]
        pairs = pairs & is_head[:, :, None] & is_dependent[:, None, :]  # [B, S, D]
        with torch.autocast(h.device.type, enabled=False):
            dtype = core_dtype(h.dtype)
            # Contiguous, or the tensors over S x D would inherit the order of axes and be copied.
            values, keys, queries = (
                take(t, at).to(dtype).mT.contiguous()
                for t, at in ((h, j), (dependent, j), (head, i))
            )  # [B, d, D], [B, d, D], [B, d, S]
            a = self._sums(values, keys, queries, pairs).mT.to(h.dtype)  # [B, S, d]
        return torch.zeros_like(h).scatter(1, i[..., None].expand_as(a), a)

    def _sums(self, h: Tensor, keys: Tensor, queries: Tensor, pairs: Tensor) -> Tensor:
        """As in `BroadcastDisa`, over a rectangle of pairs: [B, d, S]."""
        c = self.tanh_scale
        t = ((keys / c)[:, :, None, :] + (queries / c)[..., None]).tanh_()  # [B, d, S, D]
        e = (t * c).masked_fill_(~pairs[:, None], -math.inf)
        if c > LARGEST_SAFE_SCALE:
            highest = e.detach().amax(-1, keepdim=True)
            e.sub_(highest.masked_fill_(highest == -math.inf, 0))  # -inf - -inf would be NaN
        columns = torch.stack([h, torch.ones_like(h)], dim=-1)  # [B, d, D, 2]
        numerator, denominator = (e.exp_() @ columns).unbind(-1)  # [B, d, S]
        closed = ~pairs.any(-1)[:, None]  # [B, 1, S]
        return numerator / denominator.masked_fill(closed, 1)
