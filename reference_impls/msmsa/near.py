"""Windows of a few tokens: the sequence shifted to either side, no product of matrices."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reference_impls.checks import core_dtype


def _meetings(half: int, length: int) -> list[tuple[slice, slice]]:
    """For each offset -half ... half: queries i, and their keys i + offset, within the sequence."""
    found = []
    for offset in range(-half, half + 1):
        first, last = max(0, -offset), max(0, min(length, length - offset))
        last = max(first, last)
        found.append((slice(first, last), slice(first + offset, last + offset)))
    return found


class Neighbours(torch.autograd.Function):
    """Attention to the keys at most `half` positions away, every query and key met once.

    ``Neighbours.apply(q, k, v, half, closed)``: q (divided as scores are to be), k, v
    [B, N, G, d]; closed, bool [2 * half + 1, B, N, G or 1] or None, says for each offset which
    queries have no key there, and is false for the offset 0. Result [B, N, G, d].
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, half: int, closed: Tensor | None
    ) -> Tensor:
        """A softmax over 2 * half + 1 scores, in float32 at least."""
        dtype = core_dtype(q.dtype)
        ctx.half = half
        q_, k_, v_ = (t.to(dtype) for t in (q, k, v))
        meetings = _meetings(half, q.shape[1])
        scores = q_.new_full((len(meetings), *q.shape[:3]), -math.inf)  # [S, B, N, G]
        for score, (i, j) in zip(scores, meetings, strict=True):
            score[:, i] = (q_[:, i] * k_[:, j]).sum(-1)
        if closed is not None:
            scores.masked_fill_(closed, -math.inf)
        p = scores.softmax(0)
        ctx.save_for_backward(q, k, v, p)
        out = p[half, ..., None] * v_
        for s, (i, j) in enumerate(meetings):
            if s != half:
                out[:, i].addcmul_(p[s, :, i, :, None], v_[:, j])
        return out.to(q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Each sum of the forward pass, the other way round."""
        half = ctx.half
        *inputs, p = ctx.saved_tensors  # read once: checkpointing hands them out once
        q, k, v = (t.to(p.dtype) for t in inputs)
        g = g.to(p.dtype)
        meetings = _meetings(half, q.shape[1])
        g_p, g_v = torch.zeros_like(p), torch.zeros_like(g)
        for s, (i, j) in enumerate(meetings):
            g_p[s][:, i] = (g[:, i] * v[:, j]).sum(-1)
            g_v[:, j].addcmul_(p[s, :, i, :, None], g[:, i])
        g_scores = p * (g_p - (p * g_p).sum(0))
        g_q, g_k = torch.zeros_like(g_v), torch.zeros_like(g_v)
        for s, (i, j) in enumerate(meetings):
            g_score = g_scores[s, :, i, :, None]
            g_q[:, i].addcmul_(g_score, k[:, j])
            g_k[:, j].addcmul_(g_score, q[:, i])
        dtypes = [t.dtype for t in inputs]
        return g_q.to(dtypes[0]), g_k.to(dtypes[1]), g_v.to(dtypes[2]), None, None
