"""Queries whose denominators underflow, computed again on the device: the host waits for nothing.

Programs look at the flags of their queries and are done where there is none. A flagged query goes
over its own keys, the maximum of every feature over them subtracted, in float32 (float64 for that
one). With x the scores of eq. 10 over j and their logarithm of the sum of exponentials `shift`,

    p_jl = exp(x_jl - shift_l),    a_l = sum_j keep_j p_jl v_jl,
    dx_jl = p_jl (keep_j g_l v_jl - g_l a_l),    dr_j = sum_l dx_jl sigmoid(-r_j), or sum_l dx_jl.

Values may be less their mean, see `inputs.Inputs.centred`. Nothing is added atomically.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference_impls.checks import core_dtype
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.triton.device import current
from reference_impls.kernels.triton.inputs import Inputs, dense
from reference_impls.kernels.triton.launch import Launch, positions, strides
from reference_impls.kernels.triton.parts import (
    NEVER_SPECIAL,
    centre_of,
    keeps,
    load_rows,
    open_pairs,
    place,
    row_hash,
)
from reference_impls.kernels.triton.tiles import power_of_two

QUERIES = 128
"""Of one program: nearly always it reads their flags and nothing else."""
FLAGS = 2048
"""Read at once by a program of keys, which looks at those of all queries in its range."""
HELD = {"queries": 2**14, "keys": 2**15}
"""Bytes of a tensor over keys and features that a program holds: fewer keys are more programs, and
each of those looks at all flags in its range."""


@triton.jit
def scores_of_query(
    query, i, j0, k, s, real, k_n, s_n, low, high, no_self, bias, end,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, D_I: tl.constexpr,
    D_V: tl.constexpr, WIDTH_I: tl.constexpr, WIDTH_V: tl.constexpr, COLUMNS: tl.constexpr,
    NUMBER: tl.constexpr,
):  # fmt: skip
    """Keys from j0 on, r [COLUMNS], x [COLUMNS, WIDTH_V or 1] (-inf at closed ones), open ones."""
    j = j0 + tl.arange(0, COLUMNS)
    ok = (j < end) & open_pairs(i, j, low, high, no_self)
    if MASKED:
        ok = ok & (tl.load(real + j, mask=j < end, other=0) != 0)
    keys = tl.zeros([COLUMNS, WIDTH_I], NUMBER)
    r = tl.zeros([COLUMNS], NUMBER)
    if D_I > 0:
        keys = load_rows(k, j0, k_n, end, COLUMNS, WIDTH_I, D_I, True).to(NUMBER)
        r = tl.sum(keys * query[None, :], 1)
    x = r
    if not IDENTITY:
        x = tl.minimum(r, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(r)))
    x = (x - bias.to(NUMBER) * tl.abs(i - j).to(NUMBER))[:, None]
    if SOURCE == 2:
        x = x + load_rows(s, j0, s_n, end, COLUMNS, WIDTH_V, D_V, True).to(NUMBER)
    elif SOURCE == 1:
        at = s + j.to(tl.int64) * s_n
        x = x + tl.load(at, mask=j < end, other=0.0).to(NUMBER)[:, None]
    return keys, r, tl.where(ok[:, None], x, float("-inf")), ok


@triton.jit
def values_of_keys(
    v, centre, ok, j0, v_n, end, sequence,
    CENTRED: tl.constexpr, D_V: tl.constexpr, WIDTH_V: tl.constexpr, COLUMNS: tl.constexpr,
    NUMBER: tl.constexpr,
):  # fmt: skip
    """Values of the open keys from j0 on [COLUMNS, WIDTH_V], 0 of the others: those may be NaN."""
    values = load_rows(v, j0, v_n, end, COLUMNS, WIDTH_V, D_V, True).to(NUMBER)
    if CENTRED:
        values = values - centre_of(centre, sequence, tl.arange(0, WIDTH_V), D_V)
    return tl.where(ok[:, None], values, 0.0)


@triton.jit
def row_of(at, i, stride, D: tl.constexpr, WIDTH: tl.constexpr, NUMBER: tl.constexpr):
    """Row i [WIDTH], 0 behind column D."""
    column = tl.arange(0, WIDTH)
    read = tl.load(at + tl.cast(i, tl.int64) * stride + column, mask=column < D, other=0.0)
    return read.to(NUMBER)


@triton.jit(do_not_specialize=NEVER_SPECIAL)
def repair_kernel(
    q, k, v, s, centre, real, ends, lo, hi, without_self, slope, flagged, out, residue, shift,
    q_h, q_b, q_n, k_h, k_b, k_n, v_h, v_b, v_n, s_h, s_b, s_n, real_b, range_h, range_b,
    heads, batch, n, seed, threshold,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, DROPPED: tl.constexpr,
    CENTRED: tl.constexpr, SAVE: tl.constexpr, D_I: tl.constexpr, D_V: tl.constexpr,
    WIDTH_I: tl.constexpr, WIDTH_V: tl.constexpr, WIDTH_X: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """Write the flagged rows of ``out`` and ``residue`` [B, N, H, D_V], and SAVE their ``shift``.

    It is [H*B, N, D_V or 1]: 1 where s has not a column for each feature.
    """
    sequence, h, b, i0, low, high, no_self, bias, end = place(
        lo, hi, without_self, slope, ends, range_h, range_b, heads, batch, n, MASKED, ROWS, True
    )
    bias = tl.load(slope + h)  # not as `place` rounds it: scores may be float64
    before = tl.cast(sequence, tl.int64) * n
    flagged += before
    row = i0 + tl.arange(0, ROWS)
    lost = tl.load(flagged + row, mask=row < n, other=0).to(tl.int32)
    if tl.max(lost, 0) > 0:
        for t in range(0, ROWS):
            i = i0 + t
            if tl.load(flagged + i, mask=i < n, other=0) != 0:
                query = row_of(q + h * q_h + b * q_b, i, q_n, D_I, WIDTH_I, NUMBER)
                highest = tl.full([1, WIDTH_X], float("-inf"), NUMBER)
                total = tl.zeros([1, WIDTH_X], NUMBER)
                sums = tl.zeros([1, WIDTH_V], NUMBER)
                hashed = row_hash(seed, sequence, i)
                for j0 in range(tl.maximum(i - high, 0), tl.minimum(i - low + 1, end), COLUMNS):
                    _, _, x, ok = scores_of_query(
                        query, i, j0, k + h * k_h + b * k_b, s + h * s_h + b * s_b,
                        real + b * real_b, k_n, s_n, low, high, no_self, bias, end,
                        IDENTITY, SOURCE, MASKED, D_I, D_V, WIDTH_I, WIDTH_V, COLUMNS, NUMBER,
                    )  # fmt: skip
                    now = tl.maximum(highest, tl.max(x, 0)[None, :])
                    top = tl.where(now == float("-inf"), 0.0, now)  # -inf - -inf is NaN
                    p = tl.exp(x - top)
                    fade = tl.exp(highest - top)
                    highest = now
                    total = total * fade + tl.sum(p, 0)[None, :]
                    if DROPPED:
                        kept = keeps(hashed, j0 + tl.arange(0, COLUMNS), threshold)
                        p = tl.where(kept[:, None], p, 0.0)
                    values = values_of_keys(
                        v + h * v_h + b * v_b, centre, ok, j0, v_n, end, sequence,
                        CENTRED, D_V, WIDTH_V, COLUMNS, NUMBER,
                    )  # fmt: skip
                    sums = sums * fade + tl.sum(p * values, 0)[None, :]
                result = sums / total  # [1, WIDTH_V]
                column = tl.arange(0, WIDTH_V)[None, :]
                at = ((b * n + i) * heads + h) * D_V + column
                if CENTRED:
                    if SAVE:
                        left = result.to(residue.dtype.element_ty)
                        tl.store(residue + at, left, mask=column < D_V)
                    result += centre_of(centre, sequence, tl.arange(0, WIDTH_V), D_V)
                tl.store(out + at, result.to(out.dtype.element_ty), mask=column < D_V)
                if SAVE:
                    D_X: tl.constexpr = D_V if SOURCE == 2 else 1
                    of_x = tl.arange(0, WIDTH_X)[None, :]
                    at = (before + i) * D_X + of_x
                    tl.store(shift + at, highest + tl.log(total), mask=of_x < D_X)


@triton.jit
def gradient_step(
    query, flow, attended, top, i, j0, sequence, k, v, s, centre, real, k_n, v_n, s_n,
    low, high, no_self, bias, end, seed, threshold,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, DROPPED: tl.constexpr,
    CENTRED: tl.constexpr, D_I: tl.constexpr, D_V: tl.constexpr, WIDTH_I: tl.constexpr,
    WIDTH_V: tl.constexpr, COLUMNS: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """Keys from j0 on; gradients of their r [COLUMNS], x [COLUMNS, WIDTH_V or 1] and values."""
    keys, r, x, ok = scores_of_query(
        query, i, j0, k, s, real, k_n, s_n, low, high, no_self, bias, end,
        IDENTITY, SOURCE, MASKED, D_I, D_V, WIDTH_I, WIDTH_V, COLUMNS, NUMBER,
    )  # fmt: skip
    p = tl.exp(x - top[None, :])
    values = values_of_keys(
        v, centre, ok, j0, v_n, end, sequence, CENTRED, D_V, WIDTH_V, COLUMNS, NUMBER
    )
    flows = tl.broadcast_to(flow[None, :], [COLUMNS, WIDTH_V])
    if DROPPED:
        kept = keeps(row_hash(seed, sequence, i), j0 + tl.arange(0, COLUMNS), threshold)
        flows = tl.where(kept[:, None], flows, 0.0)
    to_p, mean = flows * values, flow * attended
    if SOURCE == 2:
        to_x = p * (to_p - mean[None, :])
    else:
        to_x = p * (tl.sum(to_p, 1) - tl.sum(mean, 0))[:, None]
    to_r = tl.sum(to_x, 1)
    if not IDENTITY:
        small = tl.exp(-tl.abs(r))
        to_r = to_r * tl.where(r > 0, small, 1.0) / (1.0 + small)
    return keys, to_r, to_x, p * flows


@triton.jit
def shift_of(shift, i, SOURCE: tl.constexpr, D_V: tl.constexpr, WIDTH_X: tl.constexpr):
    """Row i of a sequence's `shift` [WIDTH_X]: infinite, so that p is 0, where no feature is."""
    column = tl.arange(0, WIDTH_X)
    D_X: tl.constexpr = D_V if SOURCE == 2 else 1
    at = shift + tl.cast(i, tl.int64) * D_X + column
    return tl.load(at, mask=column < D_X, other=float("inf"))


@triton.jit(do_not_specialize=NEVER_SPECIAL)
def repair_query_kernel(
    q, k, v, s, centre, real, ends, lo, hi, without_self, slope, flagged, g, attended, shift, dq,
    q_h, q_b, q_n, k_h, k_b, k_n, v_h, v_b, v_n, s_h, s_b, s_n, g_h, g_b, g_n, dq_h, dq_b, dq_n,
    real_b, range_h, range_b, heads, batch, n, seed, threshold,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, DROPPED: tl.constexpr,
    CENTRED: tl.constexpr, D_I: tl.constexpr, D_V: tl.constexpr, WIDTH_I: tl.constexpr,
    WIDTH_V: tl.constexpr, WIDTH_X: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    NUMBER: tl.constexpr,
):  # fmt: skip
    """Write the flagged rows of dq."""
    sequence, h, b, i0, low, high, no_self, bias, end = place(
        lo, hi, without_self, slope, ends, range_h, range_b, heads, batch, n, MASKED, ROWS, True
    )
    bias = tl.load(slope + h)
    before = tl.cast(sequence, tl.int64) * n
    flagged += before
    shift += before * (D_V if SOURCE == 2 else 1)
    row = i0 + tl.arange(0, ROWS)
    lost = tl.load(flagged + row, mask=row < n, other=0).to(tl.int32)
    if tl.max(lost, 0) > 0:
        for t in range(0, ROWS):
            i = i0 + t
            if tl.load(flagged + i, mask=i < n, other=0) != 0:
                query = row_of(q + h * q_h + b * q_b, i, q_n, D_I, WIDTH_I, NUMBER)
                flow = row_of(g + h * g_h + b * g_b, i, g_n, D_V, WIDTH_V, NUMBER)
                mean = attended + (b * n * heads + h) * D_V
                mean = row_of(mean, i, heads * D_V, D_V, WIDTH_V, NUMBER)
                top = shift_of(shift, i, SOURCE, D_V, WIDTH_X).to(NUMBER)
                total = tl.zeros([WIDTH_I], NUMBER)
                for j0 in range(tl.maximum(i - high, 0), tl.minimum(i - low + 1, end), COLUMNS):
                    keys, to_r, _, _ = gradient_step(
                        query, flow, mean, top, i, j0, sequence, k + h * k_h + b * k_b,
                        v + h * v_h + b * v_b, s + h * s_h + b * s_b, centre, real + b * real_b,
                        k_n, v_n, s_n, low, high, no_self, bias, end, seed, threshold,
                        IDENTITY, SOURCE, MASKED, DROPPED, CENTRED, D_I, D_V, WIDTH_I, WIDTH_V,
                        COLUMNS, NUMBER,
                    )  # fmt: skip
                    total += tl.sum(to_r[:, None] * keys, 0)
                column = tl.arange(0, WIDTH_I)
                at = dq + h * dq_h + b * dq_b + tl.cast(i, tl.int64) * dq_n + column
                tl.store(at, total.to(dq.dtype.element_ty), mask=column < D_I)


@triton.jit
def add_rows(at, sums, first, stride, n, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Add the sums [ROWS, WIDTH] to what stands in the rows from ``first`` on."""
    column = tl.arange(0, WIDTH)[None, :]
    row = tl.arange(0, ROWS)[:, None]
    at += tl.cast(first, tl.int64) * stride + row * stride + column
    inside = (first + row < n) & (column < D)
    there = tl.load(at, mask=inside, other=0.0)
    tl.store(at, (there.to(sums.dtype) + sums).to(there.dtype), mask=inside)


@triton.jit(do_not_specialize=NEVER_SPECIAL)
def repair_key_kernel(
    q, k, v, s, centre, real, ends, lo, hi, without_self, slope, flagged, g, attended, shift,
    dk, dv, ds,
    q_h, q_b, q_n, k_h, k_b, k_n, v_h, v_b, v_n, s_h, s_b, s_n, g_h, g_b, g_n,
    dk_h, dk_b, dk_n, dv_h, dv_b, dv_n, ds_h, ds_b, ds_n,
    real_b, range_h, range_b, heads, batch, n, seed, threshold,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, DROPPED: tl.constexpr,
    CENTRED: tl.constexpr, D_I: tl.constexpr, D_V: tl.constexpr, WIDTH_I: tl.constexpr,
    WIDTH_V: tl.constexpr, WIDTH_X: tl.constexpr, ROWS: tl.constexpr, FLAGS: tl.constexpr,
    NUMBER: tl.constexpr,
):  # fmt: skip
    """Add what the flagged queries give to dk, dv and ds of a tile of keys."""
    sequence, h, b, j0, low, high, no_self, bias, end = place(
        lo, hi, without_self, slope, ends, range_h, range_b, heads, batch, n, MASKED, ROWS, False
    )
    bias = tl.load(slope + h)
    before = tl.cast(sequence, tl.int64) * n
    flagged += before
    shift += before * (D_V if SOURCE == 2 else 1)
    attended += (b * n * heads + h) * D_V
    of_k = tl.zeros([ROWS, WIDTH_I], NUMBER)
    of_v = tl.zeros([ROWS, WIDTH_V], NUMBER)
    of_s = tl.zeros([ROWS, WIDTH_X], NUMBER)
    some = 0
    last = tl.minimum(tl.minimum(j0 + ROWS, end) + high, n)
    for i0 in range(tl.maximum(j0 + low, 0), last, FLAGS):
        row = i0 + tl.arange(0, FLAGS)
        lost = tl.load(flagged + row, mask=row < last, other=0).to(tl.int32)
        if tl.max(lost, 0) > 0:
            some += 1
            for t in range(0, tl.minimum(last - i0, FLAGS)):
                i = i0 + t
                if tl.load(flagged + i) != 0:
                    query = row_of(q + h * q_h + b * q_b, i, q_n, D_I, WIDTH_I, NUMBER)
                    flow = row_of(g + h * g_h + b * g_b, i, g_n, D_V, WIDTH_V, NUMBER)
                    mean = row_of(attended, i, heads * D_V, D_V, WIDTH_V, NUMBER)
                    top = shift_of(shift, i, SOURCE, D_V, WIDTH_X).to(NUMBER)
                    _, to_r, to_x, to_v = gradient_step(
                        query, flow, mean, top, i, j0, sequence, k + h * k_h + b * k_b,
                        v + h * v_h + b * v_b, s + h * s_h + b * s_b, centre, real + b * real_b,
                        k_n, v_n, s_n, low, high, no_self, bias, end, seed, threshold,
                        IDENTITY, SOURCE, MASKED, DROPPED, CENTRED, D_I, D_V, WIDTH_I, WIDTH_V,
                        ROWS, NUMBER,
                    )  # fmt: skip
                    of_k += to_r[:, None] * query[None, :]
                    of_v += to_v
                    of_s += to_x
    if some > 0:
        if D_I > 0:
            add_rows(dk + h * dk_h + b * dk_b, of_k, j0, dk_n, n, D_I, WIDTH_I, ROWS)
        add_rows(dv + h * dv_h + b * dv_b, of_v, j0, dv_n, n, D_V, WIDTH_V, ROWS)
        if SOURCE == 2:
            add_rows(ds + h * ds_h + b * ds_b, of_s, j0, ds_n, n, D_V, WIDTH_X, ROWS)
        elif SOURCE == 1:
            add_rows(ds + h * ds_h + b * ds_b, of_s, j0, ds_n, n, 1, WIDTH_X, ROWS)


def forward(
    given: Inputs, flagged: Tensor, out: Tensor, residue: Tensor, shift: Tensor, save: bool
) -> Launch:
    """What computes the flagged queries again.

    Parameters
    ----------
    flagged : Tensor of bool, shape [H, B, N]
    out, residue : Tensor, shape [B, N, H, d_v]
        Flagged rows are written; the second one only where values are centred, and if ``save``.
    shift : Tensor, shape [H, B, N, d_v or 1]
        Written there for `backward`, if ``save``.
    """
    arguments, constants = _common(given, flagged)
    arguments |= {"out": out, "residue": residue, "shift": shift}
    rows = min(QUERIES, power_of_two(given.q.shape[2]))
    constants |= {"SAVE": save, "ROWS": rows, "COLUMNS": _keys(given, "queries")}
    return Launch(repair_kernel, _programs(given, rows), arguments, constants)


def backward(
    given: Inputs,
    flagged: Tensor,
    attended: Tensor,
    shift: Tensor,
    g: Tensor,
    gradients: Sequence[Tensor],
) -> list[Launch]:
    """What the flagged queries add to the gradients of q, k, v and s, which are otherwise there.

    Parameters
    ----------
    flagged, shift
        As above; attended is what `forward` wrote, residue where values are centred.
    g : Tensor, shape [H, B, N, d_v]
    gradients : sequence of Tensor
        Rows of the first one at flagged queries are written, the others added to.
    """
    dq, dk, dv, ds = gradients
    own = {"g": g, "attended": attended, "shift": shift, **strides(g=g)}
    launches = []
    if given.q.shape[-1]:
        arguments, constants = _common(given, flagged)
        arguments |= own | {"dq": dq} | strides(dq=dq)
        rows = min(QUERIES, power_of_two(given.q.shape[2]))
        constants |= {"ROWS": rows, "COLUMNS": _keys(given, "queries")}
        programs = _programs(given, rows)
        launches.append(Launch(repair_query_kernel, programs, arguments, constants))
    arguments, constants = _common(given, flagged)
    arguments |= own | {"dk": dk, "dv": dv, "ds": ds} | strides(dk=dk, dv=dv)
    arguments |= strides(ds=ds) if given.source else {"ds_h": 0, "ds_b": 0, "ds_n": 0}
    rows = _keys(given, "keys")
    constants |= {"ROWS": rows, "FLAGS": min(FLAGS, power_of_two(given.q.shape[2]))}
    return [
        *launches,
        Launch(repair_key_kernel, _programs(given, rows), arguments, constants),
    ]


def repair(call: KernelCall, a: Tensor, flagged: Tensor) -> None:
    """Write the flagged rows of another backend's ``a``, a view of a contiguous [B, N, H, d_v]."""
    given, nothing = Inputs(call, precise=True), a.new_empty(0)
    with current(a):
        forward(given, flagged, a.permute(1, 2, 0, 3), nothing, nothing, save=False).run()


def add_gradients(
    call: KernelCall, g: Tensor, flagged: Tensor, gradients: Sequence[Tensor]
) -> None:
    """`backward` of `repair`: into gradients of q, k, v and s that hold zeros, or others."""
    given, dtype = Inputs(call, precise=True), core_dtype(g.dtype)
    heads, batch, n, d_v = call.v.shape
    attended = g.new_empty(batch, n, heads, d_v, dtype=dtype)
    columns = d_v if given.source == 2 else 1
    shift = g.new_empty(heads, batch, n, columns, dtype=dtype)
    with current(g):
        forward(given, flagged, attended, attended, shift, save=True).run()
        for kernel in backward(given, flagged, attended, shift, dense(g), gradients):
            kernel.run()


def _programs(given: Inputs, rows: int) -> int:
    heads, batch, n, _ = given.q.shape
    return heads * batch * int(triton.cdiv(n, rows))


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
        "centre": given.centre,
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
        "CENTRED": given.centred,
        "D_I": d_i,
        "D_V": d_v,
        "WIDTH_I": power_of_two(d_i),
        "WIDTH_V": power_of_two(d_v),
        "WIDTH_X": power_of_two(d_v) if given.source == 2 else 1,
        "NUMBER": tl.float64 if core_dtype(given.q.dtype) == torch.float64 else tl.float32,
    }
    return arguments, constants
