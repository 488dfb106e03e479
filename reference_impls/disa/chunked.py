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
from reference_impls.masks import HeadMask, allowed, has_key


class ChunkedSums(torch.autograd.Function):
    """``ChunkedSums.apply(h, keys, queries, direction, mask, c, budget)`` -> a [B, N, d].

    a_i = sum_j p_ij * h_j, p the softmax over allowed j of c tanh(keys_j + queries_i), feature by
    feature; keys and queries are divided by c already. 0 where a query has no allowed key.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        keys: Tensor,
        queries: Tensor,
        direction: HeadMask,
        mask: Tensor | None,
        c: float,
        budget: int,
    ) -> Tensor:
        """Numerators and denominators, chunk by chunk."""
        numerator, denominator = torch.zeros_like(h), torch.zeros_like(h)
        for at in chunks(h.shape, direction.lo, direction.hi, h.element_size(), budget):
            e = _weights(_tanh(keys, queries, at, c), direction, mask, at, c)
            denominator[at.samples, at.queries] = e.sum(2)
            numerator[at.samples, at.queries] = e.mul_(h[at.samples, None, at.keys]).sum(2)
        closed = ~has_key((direction,), h.shape[1], h.device, mask)[0, ..., None]  # [B or 1, N, 1]
        denominator.masked_fill_(closed, 1)
        a = numerator.div_(denominator)
        ctx.save_for_backward(h, keys, queries, mask, a, denominator)
        ctx.options = direction, c, budget
        return a

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """With w = p g: sums of w for h, and of w (h_j - a_i) (1 - tanh^2) for keys and queries."""
        h, keys, queries, mask, a, denominator = ctx.saved_tensors
        direction, c, budget = ctx.options
        share = g / denominator
        g_h, g_keys, g_queries = (torch.zeros_like(h) for _ in range(3))
        for at in chunks(h.shape, direction.lo, direction.hi, h.element_size(), budget):
            here, there = (at.samples, at.queries), (at.samples, at.keys)
            t = _tanh(keys, queries, at, c)  # [S, C, L, d]
            w = _weights(t.clone(), direction, mask, at, c).mul_(share[here][:, :, None])
            g_h[there] += w.sum(1)
            w.mul_(h[there][:, None] - a[here][:, :, None])
            w.addcmul_(w, t.square_(), value=-1)
            g_keys[there] += w.sum(1)
            g_queries[here] = w.sum(2)
        # keys and queries came divided by c
        return g_h, g_keys.mul_(c), g_queries.mul_(c), None, None, None, None


def _tanh(keys: Tensor, queries: Tensor, at: Chunk, c: float) -> Tensor:
    """tanh((keys_j + queries_i) / c), [S, C, L, d]; keys and queries are divided already."""
    there, here = keys[at.samples, None, at.keys], queries[at.samples, at.queries][:, :, None]
    return (there + here).tanh_()


def _weights(t: Tensor, direction: HeadMask, mask: Tensor | None, at: Chunk, c: float) -> Tensor:
    """exp(c t) at allowed pairs, 0 elsewhere, in the place of t [S, C, L, d].

    Up to `LARGEST_SAFE_SCALE` no maximum is needed; beyond it that of each query is subtracted.
    """
    n = at.keys.stop - at.keys.start
    rows = torch.arange(at.queries.start, at.queries.stop, device=t.device) - at.keys.start
    open_ = allowed((direction,), n, t.device, rows)  # [1, C, L]
    if mask is not None:
        open_ = open_ & mask[at.samples, None, at.keys]  # [S, C, L]
    e = t.mul_(c)
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
        whole = h.device.type != "cpu" or torch.compiler.is_compiling()
        budget = WHOLE_BYTES if whole else CHUNK_BYTES
        with torch.autocast(h.device.type, enabled=False):
            dtype, c = core_dtype(h.dtype), self.tanh_scale
            values, keys, queries = h.to(dtype), dependent.to(dtype) / c, head.to(dtype) / c
            a = ChunkedSums.apply(values, keys, queries, pairs.direction, pairs.keys, c, budget)
            return a.to(h.dtype)
