"""DiSA by chunks of queries: the tensor over N x N x d exists a piece at a time, and never twice.

A chunk's scores, weights and sums are done before the next one is begun, so that they stay in the
processor's cache, and only keys that some query of the chunk may attend to are computed: half of
the pairs under a directional mask. The backward pass computes the chunks again. Memory is that of
one chunk, beside tensors over tokens.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reference_impls.checks import core_dtype, refuse_rows
from reference_impls.disa.cutting import CHUNK_BYTES, WHOLE_BYTES, Chunk, chunks
from reference_impls.disa.modules import LARGEST_SAFE_SCALE, DisaLayer, Pairs
from reference_impls.masks import HeadMask, allowed


class ChunkedSums(torch.autograd.Function):
    """``ChunkedSums.apply(h, keys, queries, direction, mask, c, budget)`` -> a [B, N, d].

    a_i = sum_j p_ij * h_j, p the softmax over allowed j of c tanh((keys_j + queries_i) / 2),
    feature by feature; keys and queries are those of the layer times 2 / c. 0 where a query has no
    allowed key.

    Notes
    -----
    c tanh(x / 2) is c - 2c u with u = 1 / (1 + e^x), and the c cancels in the softmax: an
    exponential takes a third of a hyperbolic tangent's time (torch 2.13, CPU). The derivative of
    tanh is 4 u (1 - u), exact where tanh is nearly 1.
    """

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        """See `sums`, whose arguments these are."""
        h, keys, queries, direction, mask, c, budget = given
        a, denominator = sums(*given)
        ctx.save_for_backward(h, keys, queries, mask, a, denominator)
        ctx.options = direction, c, budget
        return a

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """With w = p g: sums of w for h, and of 2c w (h_j - a_i) u (1 - u) for keys and queries."""
        h, keys, queries, mask, a, denominator = ctx.saved_tensors
        direction, c, budget = ctx.options
        share = g / denominator
        g_h, g_keys, g_queries = (torch.zeros_like(h) for _ in range(3))
        for at in chunks(h.shape, direction.lo, direction.hi, h.element_size(), budget):
            here, there = (at.samples, at.queries), (at.samples, at.keys)
            u = _sigmoids(keys, queries, at)
            w = _weights(u.clone(), direction, mask, at, c).mul_(share[here][:, :, None])
            g_h[there] += w.sum(1)
            w.mul_(h[there][:, None] - a[here][:, :, None])
            w.mul_(u.addcmul_(u, u, value=-1))
            g_keys[there] += w.sum(1)
            g_queries[here] = w.sum(2)
        return g_h, g_keys.mul_(2 * c), g_queries.mul_(2 * c), None, None, None, None


def sums(
    h: Tensor,
    keys: Tensor,
    queries: Tensor,
    direction: HeadMask,
    mask: Tensor | None,
    c: float,
    budget: int,
) -> tuple[Tensor, Tensor]:
    """Attended values, and their denominators, 1 where there is no key; chunk by chunk."""
    numerator, denominator = torch.zeros_like(h), torch.zeros_like(h)
    for at in chunks(h.shape, direction.lo, direction.hi, h.element_size(), budget):
        e = _weights(_sigmoids(keys, queries, at), direction, mask, at, c)
        denominator[at.samples, at.queries] = e.sum(2)
        numerator[at.samples, at.queries] = e.mul_(h[at.samples, None, at.keys]).sum(2)
    # No weight of an allowed key is 0: exp(-2c), or 1 beside the highest.
    denominator.masked_fill_(denominator == 0, 1)
    return numerator.div_(denominator), denominator


def _sigmoids(keys: Tensor, queries: Tensor, at: Chunk) -> Tensor:
    """Of a chunk's pairs u = 1 / (1 + e^(keys_j + queries_i)), [S, C, L, d]."""
    sums = keys[at.samples, None, at.keys] + queries[at.samples, at.queries][:, :, None]
    return sums.exp_().add_(1).reciprocal_()


def _weights(u: Tensor, direction: HeadMask, mask: Tensor | None, at: Chunk, c: float) -> Tensor:
    """exp(-2c u) at allowed pairs, 0 elsewhere, in the place of u [S, C, L, d].

    Up to `LARGEST_SAFE_SCALE` no maximum is needed; beyond it that of each query is subtracted.
    """
    n = at.keys.stop - at.keys.start
    rows = torch.arange(at.queries.start, at.queries.stop, device=u.device) - at.keys.start
    open_ = allowed((direction,), n, u.device, rows)  # [1, C, L]
    if mask is not None:
        open_ = open_ & mask[at.samples, None, at.keys]  # [S, C, L]
    e = u.mul_(-2 * c)
    if c <= LARGEST_SAFE_SCALE:
        return e.exp_().mul_(open_.to(e.dtype)[..., None])
    e.masked_fill_(~open_[..., None], -math.inf)
    highest = e.amax(2, keepdim=True)
    return e.sub_(highest.masked_fill_(highest == -math.inf, 0)).exp_()  # -inf - -inf would be NaN


class ChunkedDisa(DisaLayer):
    """`DisaLayer` in memory B * N * d_out and one chunk."""

    def attend(self, h: Tensor, dependent: Tensor, head: Tensor, pairs: Pairs) -> Tensor:
        """MTSA eq. 6, the softmax over j, and the weighted sum, chunk by chunk."""
        refuse_rows(pairs.rows)
        device, c = h.device.type, self.tanh_scale
        if torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return self.attend(h, dependent, head, pairs)
        whole = device != "cpu" or torch.compiler.is_compiling()
        budget = WHOLE_BYTES if whole else CHUNK_BYTES
        dtype = core_dtype(h.dtype)
        keys, queries = (torch.mul(t.to(dtype), 2 / c) for t in (dependent, head))
        given = (h.to(dtype), keys, queries, pairs.direction, pairs.keys, c, budget)
        a = ChunkedSums.apply(*given) if torch.is_grad_enabled() else sums(*given)[0]
        return a.to(h.dtype)
