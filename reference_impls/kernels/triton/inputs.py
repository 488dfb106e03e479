"""The tensors and options of a call, and what the kernels derive from them; nothing of triton."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.geometry import SINGLE
from reference_impls.kernels.triton.device import architecture, large_tiles
from reference_impls.kernels.triton.tiles import Kind, Numbers, Tile, choose

PACKED_FROM = 512
"""From this length on the rows of queries and keys are copied to where wide loads can read them."""

FARTHEST = 2**24
"""Numbers from token to token: the kernels count within a tile of 128 rows in 32 bits."""


def dense(values: Tensor) -> Tensor:
    """[H, B, N, d] with steps of 1 in the last axis, and of less than `FARTHEST` in that of N."""
    rows, width = values.shape[2:]
    far = rows > 1 and values.stride(2) >= FARTHEST
    return values.contiguous() if far or (width > 1 and values.stride(3) != 1) else values


def packed(values: Tensor) -> Tensor:
    """The values, or a copy with rows a multiple of 16 numbers apart, zeros at their ends.

    Only such rows load 16 bytes at a time and ahead of their use, as the compiled code says. That
    for short sequences the copy costs more than it saves is predicted.

    Parameters
    ----------
    values : Tensor, shape [H, B, N, d], last axis dense
    """
    width = values.shape[-1]
    steps = [step for step, size in zip(values.stride(), values.shape, strict=True) if size > 1]
    ready = width % 16 == 0 and all(step % 16 == 0 for step in steps[:-1])
    if ready or not width or values.shape[2] < PACKED_FROM:
        return values
    return torch.nn.functional.pad(values, (0, -width % 16)).contiguous()


class Inputs:
    """What both passes are given, as the kernels read it, whatever strides it has.

    Parameters
    ----------
    call : KernelCall
    precise : bool
        Whether products are those of float32, see `device.exact`: settled once, so that the
        backward pass is that of its forward pass whatever torch is told in between.
    """

    def __init__(self, call: KernelCall, precise: bool) -> None:
        self.q, self.k, self.v = map(dense, call[:3])
        self.s = None if call.s is None else dense(call.s)
        self.geometry, self.mask, self.dropout = call.geometry, call.mask, call.dropout
        self.identity, self.precise = call.scale_t == "identity", precise

    @property
    def source(self) -> int:
        """0 without s, 1 for one column, 2 for one per feature."""
        return 0 if self.s is None else 1 if self.s.shape[-1] == 1 else 2

    @property
    def numbers(self) -> Numbers:
        """Float16 has no room for exponentials: its weights are float32, its products TF32."""
        return "half" if self.q.dtype == torch.bfloat16 else "single"

    @property
    def products(self) -> torch.dtype:
        """Dtype of weights and weighed values."""
        return torch.bfloat16 if self.numbers == "half" else torch.float32

    @property
    def precision(self) -> str:
        """Of products of float32: three TF32 products make one, unless torch allows TF32 itself."""
        return "tf32x3" if self.precise else "tf32"

    @property
    def centred(self) -> bool:
        """Whether the values are taken less their mean over the real keys, added in the end.

        dP is a difference, dnum w - |dden| e. Where values have much in common, what the two parts
        lose to rounding is most of it (in bfloat16 5 % of dq where the mean is three standard
        deviations, 1 % where it is 0); the common part cancels, so it need not be there. It has to
        stay with dropout, which does not act on the denominator.
        """
        return self.s is not None and self.dropout is None and not self.precise

    @cached_property
    def single_slope(self) -> Tensor:
        """Slopes as the large kernels read them, float32 [H]."""
        slope = self.geometry.slope
        made: Tensor | None = SINGLE.get(slope)
        return slope.float() if made is None else made

    @cached_property
    def centre(self) -> Tensor:
        """Mean value over the real keys, float32 [H, B, D_V], or whatever stands in for it."""
        if not self.centred:
            return self.geometry.slope
        if self.mask is None:
            return self.v.mean(2, dtype=torch.float32).contiguous()
        kept = self.v.masked_fill(~self.mask[None, :, :, None], 0)
        total = kept.sum(2, dtype=torch.float32)
        return (total / self.mask.sum(1).clamp(min=1)[:, None]).contiguous()

    @property
    def pitch(self) -> int:
        """How far the rows of weighed values are apart."""
        return -(-self.v.shape[-1] // 16) * 16

    def tile(self, kind: Kind) -> Tile:
        """From the table."""
        width = max(self.q.shape[-1], self.v.shape[-1])
        n, device = self.q.shape[2], self.q.device
        return choose(kind, self.numbers, width, n, large_tiles(device), architecture(device))

    @cached_property
    def real(self) -> Tensor:
        """The mask as bytes, or whatever stands in for it."""
        return (
            self.geometry.without_self
            if self.mask is None
            else self.mask.contiguous().view(torch.uint8)
        )

    @cached_property
    def counts(self) -> Tensor:
        """Number of real keys up to and with each, int32 [B, N]."""
        if self.mask is None:
            return self.geometry.lo
        return self.mask.cumsum(1, dtype=torch.int32)

    @cached_property
    def ends(self) -> Tensor:
        """One past the last real token, int32 [B]."""
        if self.mask is None:
            return self.geometry.lo
        steps = torch.arange(1, self.mask.shape[1] + 1, dtype=torch.int32, device=self.mask.device)
        return (steps * self.mask).amax(1)

    @cached_property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Both ends of the ranges, with the same strides."""
        lo, hi = self.geometry.lo, self.geometry.hi
        return (lo, hi) if lo.stride() == hi.stride() else (lo.contiguous(), hi.contiguous())

    def maximum(self) -> Tensor:
        """Maximum of s over the real keys, float32 [H, B, 1, D_V or 1]; empty without s."""
        if self.s is None:
            return self.q.new_empty(0, dtype=torch.float32)
        s = self.s
        if self.mask is not None:
            s = s.masked_fill(~self.mask[None, :, :, None], -torch.inf)
        return s.amax(2, keepdim=True).float().contiguous()

    def outputs(self, save: bool) -> tuple[Tensor, ...]:
        """What the forward pass fills: out, residue, flagged, inverse, top."""
        q, s = self.q, self.s
        heads, batch, n, d_v = self.v.shape
        columns = 1 if s is None else s.shape[-1]
        half = q.dtype == torch.bfloat16
        residue = (batch, n, heads, d_v) if save and self.centred else (0,)
        inverse = (heads, batch, n, columns) if save else (0,)
        top = (heads, batch, n) if save and self.identity else (0,)
        return (
            q.new_empty(batch, n, heads, d_v),
            q.new_empty(residue, dtype=torch.bfloat16 if half else torch.float32),
            q.new_empty(heads, batch, n, dtype=torch.bool),
            q.new_empty(inverse, dtype=torch.float32),
            q.new_empty(top, dtype=torch.float32),
        )

    def gradients(self) -> tuple[Tensor, ...]:
        """Room for those of q, k, v and s, which is empty where there is none."""
        q, s = self.q, self.s
        source = q.new_empty(0) if s is None else torch.empty_like(s)
        return (*(torch.empty_like(t) for t in (q, self.k, self.v)), source)
