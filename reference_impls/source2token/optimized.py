"""Source2token attention with torch's fused softmax."""

from __future__ import annotations

import math

from torch import Tensor

from reference_impls.source2token.layer import Source2TokenLayer


class DirectSource2Token(Source2TokenLayer):
    """`Source2TokenLayer` with `torch.softmax`."""

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        """Softmax over real tokens, then the weighted sum."""
        if mask is not None:
            # In a sample without a real token nothing is masked: a softmax over nothing is NaN,
            # and x is zero there, so that any weights give zero.
            padded = ~mask & mask.any(1, keepdim=True)  # [B, N]
            s = s.masked_fill(padded[..., None], -math.inf)
        return (s.softmax(1) * x).sum(1)
