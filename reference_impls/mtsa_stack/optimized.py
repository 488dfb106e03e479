"""The stack by stabilised Algorithm 1: matrix products only."""

from __future__ import annotations

from torch import Tensor

from reference_impls.checks import core_dtype
from reference_impls.masks import has_key
from reference_impls.mtsa.optimized import Algorithm1Attention
from reference_impls.mtsa_stack.layer import StackedLayer


class Algorithm1StackedMTSA(Algorithm1Attention, StackedLayer):
    """`StackedLayer` by stabilised Algorithm 1; memory B * H * N * N for each layer."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 10-12, with the mean over the tokens taken out of the values and put back.

        Normalised tokens can be nearly alike. What numerator and denominator then send back to the
        scores cancels but for the differences between the values: without their mean nothing large
        is left that could lose digits. Weights that sum to 1 give the mean back.
        """
        v = v.to(core_dtype(v.dtype))
        mean = v.detach().mean(2, keepdim=True)  # [H, B, 1, d_h]
        a = super().attend(q, k, v - mean, s, mask, rows)
        some = has_key(self.masks, v.shape[2], v.device, mask)  # [H, B or 1, N]
        return (a + mean * some[..., None]).to(q.dtype)
