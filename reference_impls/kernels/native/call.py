"""From tensors to the addresses and strides that the C++ kernel reads: `problem.h`, field by field."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

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


class Problem(ctypes.Structure):
    """All that a call needs."""

    _fields_ = [
        *(
            (name, ctypes.c_int64)
            for name in (
                "heads", "batch", "length", "key_width", "value_width", "source_width", "sigmoid",
                "threshold", "seed", "halves", "rows", "panel",
            )
        ),
        ("least", ctypes.c_double),
        *((name, Rows) for name in "qkvs"),
        *(
            (name, ctypes.c_int64)
            for name in ("lo", "hi", "range_head", "range_sample", "hole", "slope", "mask")
        ),
        ("a", Rows),
        ("flagged", ctypes.c_int64),
        ("inverse", Rows),
        ("highest", ctypes.c_int64),
        *((name, Rows) for name in ("g", "dq", "dk", "dv", "ds")),
    ]  # fmt: skip


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


def problem(
    q: Tensor, k: Tensor, v: Tensor, s: Tensor | None, scale_t: str, seed: int, threshold: int
) -> Problem:
    """A problem's sizes, options and inputs."""
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
        sigmoid=scale_t == "log_sigmoid" and key_width > 0,
        threshold=threshold,
        seed=seed,
        halves=all_halves and _halves(torch.backends.mkldnn.enabled),
        rows=tile_rows,
        panel=tile_panel,
        q=rows(q),
        k=rows(k),
        v=rows(v),
        s=rows(s),
    )


def add_geometry(
    p: Problem, lo: Tensor, hi: Tensor, hole: Tensor, slope: Tensor, mask: Tensor | None
) -> None:
    """Ranges int32 [H, B or 1] of like strides, hole bool [H], slope float64 [H], mask [B, N]."""
    p.lo, p.hi = address(lo), address(hi)
    p.range_head, p.range_sample = lo.stride(0), lo.stride(1) if lo.shape[1] > 1 else 0
    p.hole, p.slope, p.mask = address(hole), address(slope), address(mask)


_halves_by_setting: dict[bool, bool] = {}


def _halves(enabled: bool) -> bool:
    """Whether products of bfloat16 do what the kernel expects, with oneDNN switched on or off."""
    if enabled not in _halves_by_setting:
        _halves_by_setting[enabled] = bool(loader.library().attnbench_halves())
    return _halves_by_setting[enabled]


def run(name: str, p: Problem) -> None:
    """Call ``attnbench_forward`` or ``attnbench_backward``.

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
