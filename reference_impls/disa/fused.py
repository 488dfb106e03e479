"""DiSA's sums over pairs on a CPU, in C++: nothing over pairs is kept, forward or backward."""

from __future__ import annotations

import torch
from torch import Tensor

from reference_impls.checks import core_dtype, in_dtype, refuse_rows
from reference_impls.disa.chunked import ChunkedDisa
from reference_impls.disa.modules import DirectedBlocks, Pairs
from reference_impls.kernels import core
from reference_impls.kernels.native import directed

FAR = 2**40
"""No bound of a distance."""


class ByKernel(DirectedBlocks):
    """`DirectedBlocks.attend` by the native kernel; where there is none, as the next class."""

    def attend(self, h: Tensor, dependent: Tensor, head: Tensor, pairs: Pairs) -> Tensor:
        """MTSA eq. 6, the softmax over j, and the weighted sum."""
        refuse_rows(pairs.rows)
        dtype, at = core_dtype(h.dtype), pairs.direction
        if core.choose(h.device.type, dtype) != "native":
            return super().attend(h, dependent, head, pairs)
        tensors = [in_dtype(t, dtype) for t in (h, dependent, head)]
        save = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        bounds = (-FAR if at.lo is None else at.lo, FAR if at.hi is None else at.hi)
        options = (pairs.keys, *bounds, at.without_self, self.tanh_scale)
        a, _ = directed.attend(*tensors, *options, save)
        return in_dtype(a, h.dtype)


class FusedDisa(ByKernel, ChunkedDisa):
    """`DisaLayer` by the native kernel, else in chunks."""
