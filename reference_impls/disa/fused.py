"""DiSA's sums over pairs on a CPU, in C++: nothing over pairs is kept, forward or backward."""

from __future__ import annotations

import torch
from torch import Tensor

from reference_impls.checks import (
    ACTIVATIONS,
    check_input,
    core_dtype,
    in_dtype,
    refuse_rows,
    zero_at_padding,
)
from reference_impls.disa.chunked import ChunkedDisa
from reference_impls.disa.modules import DirectedBlocks, Pairs, joined_maps, joined_reads
from reference_impls.kernels import core
from reference_impls.kernels.native import directed
from reference_impls.masks import HeadMask

FAR = 2**40
"""No bound of a distance."""


def bounds(direction: HeadMask) -> tuple[int, int, bool]:
    """Of i - j, and whether 0 is left out."""
    lo = -FAR if direction.lo is None else direction.lo
    return lo, FAR if direction.hi is None else direction.hi, direction.without_self


class ByKernel(DirectedBlocks):
    """`DirectedBlocks.attend` by the native kernel; where there is none, as the next class."""

    def attend(self, h: Tensor, dependent: Tensor, head: Tensor, pairs: Pairs) -> Tensor:
        """MTSA eq. 6, the softmax over j, and the weighted sum."""
        refuse_rows(pairs.rows)
        dtype = core_dtype(h.dtype)
        if core.choose(h.device.type, dtype) != "native":
            return super().attend(h, dependent, head, pairs)
        tensors = [in_dtype(t, dtype) for t in (h, dependent, head)]
        wanted = h.requires_grad or dependent.requires_grad or head.requires_grad
        save = torch.is_grad_enabled() and wanted
        options = (pairs.keys, *bounds(pairs.direction), self.tanh_scale)
        a, _ = directed.attend(*tensors, *options, save)
        return in_dtype(a, h.dtype)


class FusedDisa(ByKernel, ChunkedDisa):
    """`DisaLayer` by the native kernel, else in chunks."""

    def fuse(self, x: Tensor, mask: Tensor | None, rows: Tensor | None = None) -> Tensor:
        """See `DisaLayer.fuse`; by one operator where there is one for it."""
        whole = None
        if not self.training and self.activation is ACTIVATIONS["elu"]:
            whole = core.whole_layers(x, "auto")
        if whole is None:
            return super().fuse(x, mask, rows)
        check_input(x, mask, self.d_in)
        refuse_rows(rows)
        prefixes = [prefix for prefix, _ in self.blocks]
        read = [self.merged.of(joined_reads, *self.read_weights(prefix)) for prefix in prefixes]
        out: Tensor = whole.disa.default(
            zero_at_padding(x, mask),
            *self.merged.of(joined_maps, *self.map_weights()),
            *zip(*read, strict=True),
            [self.weight(prefix, "fa_w") for prefix in prefixes],
            mask,
            *zip(*map(bounds, self.masks), strict=True),
            self.tanh_scale,
        )
        return zero_at_padding(out, mask)
