"""Kim's convolutions by torch's own, and by products of matrices; the bias behind the maximum."""

from __future__ import annotations

import math

from torch import Tensor, cat

from reference_impls.checks import weight_of
from reference_impls.convolution import convolved, multiplied
from reference_impls.kim_cnn.layer import KimCnnLayer


class ConvKimCnn(KimCnnLayer):
    """`KimCnnLayer` by one convolution for each kernel size."""

    def largest(self, x: Tensor, weight: Tensor, bias: Tensor, closed: Tensor | None) -> Tensor:
        """The bias is the same for all windows: it is added to the maximum."""
        return _largest(convolved(x, weight, None, 0, 0), closed) + bias


class GemmKimCnn(KimCnnLayer):
    """`KimCnnLayer` by one product for each kernel size; the windows are copied once for all."""

    def side_by_side(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """As many windows as the smallest kernel has; larger ones leave some at the end out."""
        n, sizes = x.shape[1], self.kernel_sizes
        weights = [weight_of(self, f"w{k}") for k in sizes]
        bias = cat([weight_of(self, f"b{k}") for k in sizes])
        count = max(1, n - min(sizes) + 1)
        z = multiplied(x, weights, bias, [0] * len(sizes), count)  # [B, count, d_out]
        found = []
        for k, part in zip(sizes, z.chunk(len(sizes), dim=-1), strict=True):
            behind = max(0, k - n)
            found.append(_largest(part[:, : n + behind - k + 1], self.closed(mask, k, behind)))
        return cat(found, dim=-1)


def _largest(z: Tensor, closed: Tensor | None) -> Tensor:
    """Maximum over the windows that are not closed: [B, W, F] -> [B, F]."""
    if closed is not None:
        z = z.masked_fill(closed[..., None], -math.inf)
    return z.amax(1)
