"""Additive attention with torch's fused softmax; the weighted mean is one product."""

from __future__ import annotations

import math

from torch import Tensor

from reference_impls.additive.layer import AdditiveLayer


class DirectAdditive(AdditiveLayer):
    """`AdditiveLayer` with `torch.softmax`, and the mean taken around the token of highest score.

    The gradient of a score is p_j (x_j - out) g. Around 0 it comes out as the difference of two
    products that nearly cancel where one token has all the weight; around that token it does not.
    """

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """Softmax over real tokens, then c + p (x - c)."""
        if mask is not None:
            # In a sample without a real token nothing is masked: a softmax over nothing is NaN,
            # and x is zero there, so that any weights give zero.
            s = s.masked_fill(~mask & mask.any(1, keepdim=True), -math.inf)
        highest = s.detach().argmax(1)[:, None, None].expand(-1, -1, x.shape[2])  # [B, 1, D]
        centre = x.detach().gather(1, highest)
        # No gradient reaches the centre: the weights' sum is 1, whatever it is.
        return (s.softmax(1)[:, None] @ (x - centre) + centre).squeeze(1)  # [B, D]
