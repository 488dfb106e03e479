"""Kim's convolutions by torch's `conv1d`; bias and relu behind the maximum."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import conv1d

from reference_impls.kim_cnn.layer import KimCnnLayer


class ConvKimCnn(KimCnnLayer):
    """`KimCnnLayer` by `torch.nn.functional.conv1d`, which is channels first."""

    def largest(self, x: Tensor, weight: Tensor, bias: Tensor, closed: Tensor | None) -> Tensor:
        """The bias is the same for all windows: it is added to the maximum."""
        z = conv1d(x.mT, weight.permute(2, 1, 0))  # [F, D, k] -> [B, F, W]
        if closed is not None:
            z = z.masked_fill(closed[:, None], -math.inf)
        return z.amax(-1) + bias
