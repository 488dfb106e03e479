"""DiSA by broadcasting, with two tensors over B x d x N x N and one product for the sums."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reference_impls.checks import core_dtype, refuse_rows
from reference_impls.disa.layer import DisaLayer
from reference_impls.masks import HeadMask, allowed, has_key

LARGEST_SAFE_SCALE = 20.0
"""|e| <= c: up to this c sums of exp(e) neither overflow nor underflow, no maximum is needed.

Subtracting one would cost a pass, and a rounding error in every exponent.
"""


class BroadcastDisa(DisaLayer):
    """`DisaLayer` with the unnormalised weights in one tensor; memory B * N * N * d_out, twice."""

    def attend(
        self,
        h: Tensor,
        dependent: Tensor,
        head: Tensor,
        direction: HeadMask,
        mask: Tensor | None,
        rows: Tensor | None,
    ) -> Tensor:
        """Numerator and denominator are one product, ``exp(e) [h | 1]``, per feature."""
        refuse_rows(rows)
        with torch.autocast(h.device.type, enabled=False):
            dtype = core_dtype(h.dtype)
            # Contiguous, or the tensors over N x N would inherit the order of axes and be copied.
            values, keys, queries = (
                t.to(dtype).mT.contiguous() for t in (h, dependent, head)
            )  # [B, d, N]
            return self._sums(values, keys, queries, direction, mask).mT.to(h.dtype)

    def _sums(
        self, h: Tensor, keys: Tensor, queries: Tensor, direction: HeadMask, mask: Tensor | None
    ) -> Tensor:
        n, c = h.shape[2], self.tanh_scale
        forbidden = ~allowed((direction,), n, h.device)[:, None]  # [1, 1, N, N]
        if mask is not None:
            forbidden = forbidden | ~mask[:, None, None, :]  # [B, 1, N, N]
        t = ((keys / c)[:, :, None, :] + (queries / c)[..., None]).tanh_()  # [B, d, N, N]
        # In place from here: only tanh and exp keep their results for the gradient.
        e = (t * c).masked_fill_(forbidden, -math.inf)
        if c > LARGEST_SAFE_SCALE:
            highest = e.detach().amax(-1, keepdim=True)
            e.sub_(highest.masked_fill_(highest == -math.inf, 0))  # -inf - -inf would be NaN
        columns = torch.stack([h, torch.ones_like(h)], dim=-1)  # [B, d, N, 2]
        numerator, denominator = (e.exp_() @ columns).unbind(-1)  # [B, d, N]
        closed = ~has_key((direction,), n, h.device, mask)[0, :, None]  # [B or 1, 1, N]
        return numerator / denominator.masked_fill(closed, 1)
