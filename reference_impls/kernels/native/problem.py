"""From tensors to the addresses and strides that the C++ kernel reads, as in `problem.h`."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

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


class Rows(ctypes.Structure):
    """A tensor [H, B, N, width]."""

    _fields_ = [(name, ctypes.c_int64) for name in ("data", "kind", "head", "sample", "token")]


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


_SIZES = "heads batch length key_width value_width source_width sigmoid threshold seed halves"
_RANGES = "lo hi range_head range_sample without_self slope mask"


class Problem(ctypes.Structure):
    """All that a call needs."""

    _fields_ = [
        *_fields(ctypes.c_int64, f"{_SIZES} rows panel"),
        *_fields(ctypes.c_double, "least"),
        *_fields(Rows, "q k v s"),
        *_fields(ctypes.c_int64, _RANGES),
        *_fields(Rows, "a"),
        *_fields(ctypes.c_int64, "flagged"),
        *_fields(Rows, "inverse"),
        *_fields(ctypes.c_int64, "highest"),
        *_fields(Rows, "g dq dk dv ds"),
    ]


def rows(t: Tensor | None) -> Rows:
    """Address and strides of a tensor [H, B, N, width] of unit stride in the last axis."""
    if t is None:
        return Rows()
    if not t.numel():
        return Rows(kind=KINDS[t.dtype])
    head, sample, token, _ = t.stride()
    return Rows(t.data_ptr(), KINDS[t.dtype], head, sample, token)


def address(t: Tensor | None) -> int:
    """Of a contiguous tensor's data; 0 for None and for an empty one."""
    return 0 if t is None or not t.numel() else t.data_ptr()


def unit_stride(t: Tensor) -> Tensor:
    """The tensor itself, or a copy where its last axis is strided."""
    return t if t.stride(-1) == 1 or t.shape[-1] <= 1 else t.contiguous()


def as_read(call: KernelCall) -> KernelCall:
    """With the strides and dtypes that the kernel reads; it must live as long as the `Problem`."""
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
            g.slope.double().contiguous(),
        ),
        None if mask is None else mask.contiguous(),
        *call[6:],
    )


def of(call: KernelCall) -> Problem:
    """Sizes, options and addresses of what `as_read` returned.

    Ranges are int32 [H, B or 1] of like strides, without_self bool [H], slope float64 [H].
    """
    (q, k, v, s), g, dropout = call[:4], call.geometry, call.dropout
    heads, batch, length, key_width = q.shape
    all_halves = all(t.dtype == torch.bfloat16 for t in (q, k, v))
    return Problem(
        heads=heads,
        batch=batch,
        length=length,
        key_width=key_width,
        value_width=v.shape[3],
        source_width=0 if s is None else s.shape[3],
        # Without scores both scale functions leave the bias alone.
        sigmoid=call.scale_t == "log_sigmoid" and key_width > 0,
        threshold=-1 if dropout is None else dropout.threshold,
        seed=0 if dropout is None else dropout.seed,
        halves=all_halves and _halves(bool(torch.backends.mkldnn.enabled)),
        rows=tile_rows,
        panel=tile_panel,
        q=rows(q),
        k=rows(k),
        v=rows(v),
        s=rows(s),
        lo=address(g.lo),
        hi=address(g.hi),
        range_head=g.lo.stride(0),
        range_sample=g.lo.stride(1) if g.lo.shape[1] > 1 else 0,
        without_self=address(g.without_self),
        slope=address(g.slope),
        mask=address(call.mask),
    )


_halves_by_setting: dict[bool, bool] = {}


def _halves(enabled: bool) -> bool:
    """Whether products of bfloat16 do what the kernel expects, with oneDNN switched on or off."""
    if enabled not in _halves_by_setting:
        _halves_by_setting[enabled] = bool(loader.library().attnbench_halves())
    return _halves_by_setting[enabled]


def run(name: str, p: Problem) -> None:
    """KernelCall ``attnbench_forward`` or ``attnbench_backward``.

    Raises
    ------
    MemoryError, RuntimeError
        What the kernel met.
    """
    library = loader.library()
    message = ctypes.create_string_buffer(MESSAGE_BYTES)
    code = getattr(library, f"attnbench_{name}")(
        ctypes.byref(p), message, ctypes.c_int64(MESSAGE_BYTES)
    )
    if code == OUT_OF_MEMORY:
        raise MemoryError("the native kernel got no memory for its tiles")
    if code:
        raise RuntimeError(f"the native kernel failed: {message.value.decode(errors='replace')}")
