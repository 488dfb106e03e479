"""From tensors to the addresses and strides that the C++ kernel reads, as in `problem.h`."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from reference_impls.checks import in_dtype
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.native import loader

KINDS = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
MESSAGE_BYTES = 1000
OUT_OF_MEMORY = 1

tile_rows = 0
"""Tokens of a tile, a multiple of 16; 0: chosen by the kernel. Tests and tuning set it."""
tile_panel = 0
"""Tokens of a panel: 16, 32, 48, 64, or 0."""


PROBLEM = struct.Struct("=12q d 20q 7q 5q 2q 5q q 25q")
"""`Problem` of `problem.h`: packed at once, as fields set one by one take as long as a kernel."""
NOTHING = (0,) * 5


def rows(t: Tensor | None) -> tuple[int, ...]:
    """Address, kind and strides of a tensor [H, B, N, width] of unit stride in the last axis."""
    if t is None:
        return NOTHING
    if not t.numel():
        return 0, KINDS[t.dtype], 0, 0, 0
    head, sample, token, _ = t.stride()
    return t.data_ptr(), KINDS[t.dtype], head, sample, token


def address(t: Tensor | None) -> int:
    """Of a contiguous tensor's data; 0 for None and for an empty one."""
    return 0 if t is None or not t.numel() else t.data_ptr()


def unit_stride(t: Tensor) -> Tensor:
    """The tensor itself, or a copy where its last axis is strided."""
    return t if t.stride(-1) == 1 or t.shape[-1] <= 1 else t.contiguous()


def as_read(call: KernelCall) -> KernelCall:
    """With the strides and dtypes that the kernel reads; it must live as long as its addresses."""
    g, s, mask = call.geometry, call.s, call.mask
    return KernelCall(
        unit_stride(call.q),
        unit_stride(call.k),
        unit_stride(call.v),
        None if s is None else unit_stride(s),
        Geometry(
            g.lo.contiguous(),
            g.hi.contiguous(),
            g.without_self.contiguous(),
            in_dtype(g.slope, torch.float64).contiguous(),
        ),
        None if mask is None else mask.contiguous(),
        *call[6:],
    )


def of(
    call: KernelCall,
    a: Tensor,
    inverse: Tensor,
    highest: Tensor,
    *,
    least: float = 0.0,
    flagged: Tensor | None = None,
    lost: int = 0,
    g: Tensor | None = None,
    gradients: Sequence[Tensor | None] = (),
) -> bytes:
    """A `Problem` of what `as_read` returned, and of what is written.

    Ranges are int32 [H, B or 1] of like strides, without_self bool [H], slope float64 [H].

    Parameters
    ----------
    least : float
        Denominators below it are flagged.
    lost : int
        Address of an int64 that becomes 1 where a query is.
    """
    (q, k, v, s), ranges, dropout = call[:4], call.geometry, call.dropout
    heads, batch, length, key_width = q.shape
    all_halves = q.dtype == k.dtype == v.dtype == torch.bfloat16
    return PROBLEM.pack(
        heads,
        batch,
        length,
        key_width,
        v.shape[3],
        0 if s is None else s.shape[3],
        # Without scores both scale functions leave the bias alone.
        call.scale_t == "log_sigmoid" and key_width > 0,
        -1 if dropout is None else dropout.threshold,
        0 if dropout is None else dropout.seed,
        all_halves and _halves(bool(torch.backends.mkldnn.enabled)),
        tile_rows,
        tile_panel,
        least,
        *rows(q),
        *rows(k),
        *rows(v),
        *rows(s),
        address(ranges.lo),
        address(ranges.hi),
        ranges.lo.stride(0),
        ranges.lo.stride(1) if ranges.lo.shape[1] > 1 else 0,
        address(ranges.without_self),
        address(ranges.slope),
        address(call.mask),
        *rows(a),
        address(flagged),
        lost,
        *rows(inverse),
        address(highest),
        *rows(g),
        *([number for t in gradients for number in rows(t)] or 4 * NOTHING),
    )


@cache
def _halves(enabled: bool) -> bool:
    """Whether products of bfloat16 do what the kernel expects, with oneDNN switched on or off."""
    return bool(loader.library().attnbench_halves())


def run(name: str, problem: bytes) -> None:
    """KernelCall ``attnbench_forward`` or ``attnbench_backward``.

    Raises
    ------
    MemoryError, RuntimeError
        What the kernel met.
    """
    library = loader.library()
    message = ctypes.create_string_buffer(MESSAGE_BYTES)
    code = getattr(library, f"attnbench_{name}")(problem, message, ctypes.c_int64(MESSAGE_BYTES))
    if code == OUT_OF_MEMORY:
        raise MemoryError("the native kernel got no memory for its tiles")
    if code:
        raise RuntimeError(f"the native kernel failed: {message.value.decode(errors='replace')}")
