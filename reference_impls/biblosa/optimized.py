"""Bi-BloSA with unnormalised weights: two tensors over the pairs inside a block, one division."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reference_impls.biblosa.layer import BiblosaLayer
from reference_impls.checks import core_dtype
from reference_impls.disa.optimized import LARGEST_SAFE_SCALE
from reference_impls.masks import HeadMask, allowed, has_key


class FoldedBiblosa(BiblosaLayer):
    """`BiblosaLayer` without a maximum per query; memory B * d_out * (N*r + m*m), twice.

    Features stay last: blocks are so short that the copies, and the very small products, of a
    layout with features first (that of DiSA) would cost more than its pass over the pairs saves.
    """

    def attend(
        self, h: Tensor, dependent: Tensor, head: Tensor, direction: HeadMask, real: Tensor | None
    ) -> Tensor:
        """Numerator and denominator as sums of exp(e), divided at the end."""
        with torch.autocast(h.device.type, enabled=False):
            dtype = core_dtype(h.dtype)
            sums = self._sums(h.to(dtype), dependent.to(dtype), head.to(dtype), direction, real)
            return sums.to(h.dtype)

    def _sums(
        self, h: Tensor, keys: Tensor, queries: Tensor, direction: HeadMask, real: Tensor | None
    ) -> Tensor:
        length, c = h.shape[1], self.tanh_scale
        forbidden = ~allowed((direction,), length, h.device)  # [1, L, L]
        if real is not None:
            forbidden = forbidden | ~real[:, None]  # [G, L, L]
        t = ((keys / c)[:, None] + (queries / c)[:, :, None]).tanh_()  # [G, L, L, d]
        # In place from here: only tanh and exp keep their results for the gradient.
        e = (t * c).masked_fill_(forbidden[..., None], -math.inf)
        if c > LARGEST_SAFE_SCALE:
            highest = e.detach().amax(2, keepdim=True)
            e.sub_(highest.masked_fill_(highest == -math.inf, 0))  # -inf - -inf would be NaN
        weights = e.exp_()
        numerator, denominator = (weights * h[:, None]).sum(2), weights.sum(2)  # [G, L, d]
        closed = ~has_key((direction,), length, h.device, real)[0]  # [G or 1, L]
        return numerator / denominator.masked_fill(closed[..., None], 1)

    def summarise(self, a: Tensor, z: Tensor, real: Tensor) -> Tensor:
        """By torch's fused softmax."""
        # In a block without a real token nothing is masked: a softmax over nothing is NaN, and a
        # is zero there, so that any weights give zero.
        padded = ~real & real.any(2, keepdim=True)  # [B, M, R]
        return (z.masked_fill(padded[..., None], -math.inf).softmax(2) * a).sum(2)
