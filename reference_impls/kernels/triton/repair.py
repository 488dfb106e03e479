"""Queries whose denominators underflow, computed again on the device: the host waits for nothing.

Programs look at the flags of their queries and are done where there is none. A flagged query goes
over its own keys, the maximum of every feature over them subtracted, in float32 (float64 for that
one). With x the scores of eq. 10 over j and their logarithm of the sum of exponentials `shift`,

    p_jl = exp(x_jl - shift_l),    a_l = sum_j keep_j p_jl v_jl,
    dx_jl = p_jl (keep_j g_l v_jl - g_l a_l),    dr_j = sum_l dx_jl sigmoid(-r_j), or sum_l dx_jl.

The means g_l a_l are computed again too: from a in half precision dr would lose most of itself.
Nothing is added atomically.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from reference_impls.checks import core_dtype
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.triton.device import current
from reference_impls.kernels.triton.inputs import Inputs, dense
from reference_impls.kernels.triton.launch import Launch, positions, strides
from reference_impls.kernels.triton.repair_kernels import (
    repair_kernel,
    repair_key_kernel,
    repair_query_kernel,
)
from reference_impls.kernels.triton.tiles import Tile, power_of_two, tiles_of

QUERIES = 128
"""Of one program: nearly always it reads their flags and nothing else."""
FLAGS = 2048
"""Read at once by a program of keys, which looks at those of all queries in its range."""
HELD = {"queries": 2**13, "keys": 2**14}
"""Bytes of a tensor over keys and features that a program holds: fewer keys are more programs, and
each of those looks at all flags in its range. More would spill, and what a thread may spill is set
aside for every thread of a GPU, by kernels that nearly always do nothing."""
WARPS = 8


def forward(given: Inputs, flagged: Tensor, out: Tensor, shift: Tensor, save: bool) -> Launch:
    """What computes the flagged queries again.

    Parameters
    ----------
    flagged : Tensor of bool, shape [H, B, N]
    out : Tensor, shape [B, N, H, d_v]
        Flagged rows are written.
    shift : Tensor, shape [H, B, N, d_v or 1]
        Written there for `backward`, if ``save``.
    """
    arguments, constants = _common(given, flagged)
    arguments |= {"out": out, "shift": shift}
    constants |= {"SAVE": save, "ROWS": QUERIES, "COLUMNS": _keys(given, "queries")}
    return _launch(given, repair_kernel, arguments, constants)


def backward(
    given: Inputs,
    flagged: Tensor,
    shift: Tensor,
    means: tuple[Tensor, Tensor],
    g: Tensor,
    gradients: Sequence[Tensor],
) -> list[Launch]:
    """What the flagged queries add to the gradients of q, k, v and s, which are otherwise there.

    Parameters
    ----------
    flagged, shift
        As above.
    means : pair of Tensor
        Room for them, as for dnum and dden, which may be those: nobody reads their rows of flagged
        queries any more.
    g : Tensor, shape [H, B, N, d_v]
    gradients : sequence of Tensor
        Rows of the first one at flagged queries are written, the others added to.
    """
    dq, dk, dv, ds = gradients
    own = {"g": g, "shift": shift, "coarse": means[0], "fine": means[1], **strides(g=g)}
    arguments, constants = _common(given, flagged)
    arguments |= own | {"dq": dq} | strides(dq=dq)
    constants |= {"PITCH": given.pitch, "ROWS": QUERIES, "COLUMNS": _keys(given, "queries")}
    of_queries = _launch(given, repair_query_kernel, arguments, constants)
    arguments, constants = _common(given, flagged)
    arguments |= own | {"dk": dk, "dv": dv, "ds": ds} | strides(dk=dk, dv=dv)
    arguments |= strides(ds=ds) if given.source else {"ds_h": 0, "ds_b": 0, "ds_n": 0}
    constants |= {"PITCH": given.pitch, "ROWS": _keys(given, "keys"), "FLAGS": FLAGS}
    of_keys = _launch(given, repair_key_kernel, arguments, constants)
    return [of_queries, of_keys]


def repair(call: KernelCall, a: Tensor, flagged: Tensor) -> None:
    """Write the flagged rows of another backend's ``a``, a view of a contiguous [B, N, H, d_v]."""
    given = Inputs(call, precise=True)
    with current(a):
        forward(given, flagged, a.permute(1, 2, 0, 3), a.new_empty(0), save=False).run()


def add_gradients(
    call: KernelCall, g: Tensor, flagged: Tensor, gradients: Sequence[Tensor]
) -> None:
    """`backward` of `repair`: into gradients of q, k, v and s that hold zeros, or others."""
    given, dtype = Inputs(call, precise=True), core_dtype(g.dtype)
    heads, batch, n, d_v = call.v.shape
    shift = g.new_empty(heads, batch, n, d_v if given.source == 2 else 1, dtype=dtype)
    out = g.new_empty(batch, n, heads, d_v)
    means = g.new_empty(2, heads, batch, n, given.pitch, dtype=dtype)
    with current(g):
        forward(given, flagged, out, shift, save=True).run()
        for kernel in backward(given, flagged, shift, (means[0], means[1]), dense(g), gradients):
            kernel.run()


def _launch(
    given: Inputs, kernel: Any, arguments: dict[str, Any], constants: dict[str, Any]
) -> Launch:
    heads, batch, n, _ = given.q.shape
    rows = constants["ROWS"]
    tile = Tile(rows, constants.get("COLUMNS", rows), WARPS, 1)
    return Launch(kernel, heads * batch * tiles_of(n, rows), arguments, constants, tile)


def _keys(given: Inputs, programs: str) -> int:
    """How many a program over queries, or over keys, holds at once."""
    widest = power_of_two(max(given.q.shape[-1], given.v.shape[-1]))
    return max(1, min(64, HELD[programs] // (widest * core_dtype(given.q.dtype).itemsize)))


def _common(given: Inputs, flagged: Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments and constants of all of them."""
    s = given.v if given.s is None else given.s
    arguments = {
        "q": given.q,
        "k": given.k,
        "v": given.v,
        "s": s,
        "flagged": flagged.view(torch.uint8),
        **strides(q=given.q, k=given.k, v=given.v, s=s),
        **positions(given),
    }
    d_i, d_v = given.q.shape[-1], given.v.shape[-1]
    constants = {
        "IDENTITY": given.identity,
        "SOURCE": given.source,
        "MASKED": given.mask is not None,
        "DROPPED": given.dropout is not None,
        "D_I": d_i,
        "D_V": d_v,
        "WIDTH_I": power_of_two(d_i),
        "WIDTH_V": power_of_two(d_v),
        "WIDTH_X": power_of_two(d_v) if given.source == 2 else 1,
        "NUMBER": tl.float64 if core_dtype(given.q.dtype) == torch.float64 else tl.float32,
    }
    return arguments, constants
