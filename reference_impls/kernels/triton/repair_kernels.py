"""The kernels that compute single queries again: see `repair`, which launches them."""

from __future__ import annotations

import triton
import triton.language as tl

from reference_impls.kernels.triton.parts import (
    NEVER_SPECIAL,
    keeps,
    load_rows,
    open_pairs,
    place,
    row_hash,
)


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
    v, ok, j0, v_n, end,
    D_V: tl.constexpr, WIDTH_V: tl.constexpr, COLUMNS: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """Values of the open keys from j0 on [COLUMNS, WIDTH_V], 0 of the others: those may be NaN."""
    values = load_rows(v, j0, v_n, end, COLUMNS, WIDTH_V, D_V, True).to(NUMBER)
    return tl.where(ok[:, None], values, 0.0)


@triton.jit
def row_of(at, i, stride, D: tl.constexpr, WIDTH: tl.constexpr, NUMBER: tl.constexpr):
    """Row i [WIDTH], 0 behind column D."""
    column = tl.arange(0, WIDTH)
    read = tl.load(at + tl.cast(i, tl.int64) * stride + column, mask=column < D, other=0.0)
    return read.to(NUMBER)


@triton.jit
def any_lost(flagged, first, stop, COUNT: tl.constexpr):
    """Whether one of COUNT queries from ``first`` on, before ``stop``, is flagged."""
    row = first + tl.arange(0, COUNT)
    lost = tl.load(flagged + row, mask=row < stop, other=0).to(tl.int32)
    return tl.max(lost, 0) > 0


@triton.jit(do_not_specialize=NEVER_SPECIAL)
def repair_kernel(
    q, k, v, s, real, ends, lo, hi, without_self, slope, flagged, out, shift,
    q_h, q_b, q_n, k_h, k_b, k_n, v_h, v_b, v_n, s_h, s_b, s_n, real_b, range_h, range_b,
    heads, batch, n, seed, threshold,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, DROPPED: tl.constexpr,
    SAVE: tl.constexpr, D_I: tl.constexpr, D_V: tl.constexpr, WIDTH_I: tl.constexpr,
    WIDTH_V: tl.constexpr, WIDTH_X: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    NUMBER: tl.constexpr,
):  # fmt: skip
    """Write the flagged rows of ``out`` [B, N, H, D_V], and of ``shift`` to SAVE it.

    It is [H*B, N, D_V or 1]: 1 where s has not a column for each feature.
    """
    sequence, h, b, i0, low, high, no_self, bias, end = place(
        lo, hi, without_self, slope, ends, range_h, range_b, heads, batch, n, MASKED, ROWS, True
    )
    bias = tl.load(slope + h)  # not as `place` rounds it: scores may be float64
    before = tl.cast(sequence, tl.int64) * n
    flagged += before
    if any_lost(flagged, i0, n, ROWS):
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
                        v + h * v_h + b * v_b, ok, j0, v_n, end, D_V, WIDTH_V, COLUMNS, NUMBER
                    )
                    sums = sums * fade + tl.sum(p * values, 0)[None, :]
                result = sums / total  # [1, WIDTH_V]
                column = tl.arange(0, WIDTH_V)[None, :]
                at = ((b * n + i) * heads + h) * D_V + column
                tl.store(out + at, result.to(out.dtype.element_ty), mask=column < D_V)
                if SAVE:
                    D_X: tl.constexpr = D_V if SOURCE == 2 else 1
                    of_x = tl.arange(0, WIDTH_X)[None, :]
                    at = (before + i) * D_X + of_x
                    tl.store(shift + at, highest + tl.log(total), mask=of_x < D_X)


@triton.jit
def gradient_step(
    query, flow, mean, top, i, j0, sequence, k, v, s, real, k_n, v_n, s_n,
    low, high, no_self, bias, end, seed, threshold,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, DROPPED: tl.constexpr,
    D_I: tl.constexpr, D_V: tl.constexpr, WIDTH_I: tl.constexpr, WIDTH_V: tl.constexpr,
    COLUMNS: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    """Of keys from j0 on: themselves, gradients of their r, x and values; p, and gradients of p.

    ``mean`` is that of the last ones over all keys, [WIDTH_X].
    """
    keys, r, x, ok = scores_of_query(
        query, i, j0, k, s, real, k_n, s_n, low, high, no_self, bias, end,
        IDENTITY, SOURCE, MASKED, D_I, D_V, WIDTH_I, WIDTH_V, COLUMNS, NUMBER,
    )  # fmt: skip
    p = tl.exp(x - top[None, :])
    values = values_of_keys(v, ok, j0, v_n, end, D_V, WIDTH_V, COLUMNS, NUMBER)
    flows = tl.broadcast_to(flow[None, :], [COLUMNS, WIDTH_V])
    if DROPPED:
        kept = keeps(row_hash(seed, sequence, i), j0 + tl.arange(0, COLUMNS), threshold)
        flows = tl.where(kept[:, None], flows, 0.0)
    to_p = flows * values
    if SOURCE != 2:
        to_p = tl.sum(to_p, 1)[:, None]
    to_x = p * (to_p - mean[None, :])
    to_r = tl.sum(to_x, 1)
    if not IDENTITY:
        small = tl.exp(-tl.abs(r))
        to_r = to_r * tl.where(r > 0, small, 1.0) / (1.0 + small)
    return keys, to_r, to_x, p * flows, p, to_p


@triton.jit
def shift_of(shift, i, SOURCE: tl.constexpr, D_V: tl.constexpr, WIDTH_X: tl.constexpr):
    """Row i of a sequence's `shift` [WIDTH_X]: infinite, so that p is 0, where no feature is."""
    column = tl.arange(0, WIDTH_X)
    D_X: tl.constexpr = D_V if SOURCE == 2 else 1
    at = shift + tl.cast(i, tl.int64) * D_X + column
    return tl.load(at, mask=column < D_X, other=float("inf"))


@triton.jit(do_not_specialize=NEVER_SPECIAL)
def repair_query_kernel(
    q, k, v, s, real, ends, lo, hi, without_self, slope, flagged, g, shift, coarse, fine, dq,
    q_h, q_b, q_n, k_h, k_b, k_n, v_h, v_b, v_n, s_h, s_b, s_n, g_h, g_b, g_n, dq_h, dq_b, dq_n,
    real_b, range_h, range_b, heads, batch, n, seed, threshold,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, DROPPED: tl.constexpr,
    D_I: tl.constexpr, D_V: tl.constexpr, PITCH: tl.constexpr, WIDTH_I: tl.constexpr,
    WIDTH_V: tl.constexpr, WIDTH_X: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    NUMBER: tl.constexpr,
):  # fmt: skip
    """Write the flagged rows of dq, and their means.

    One for each feature is split in two, ``coarse`` and ``fine`` [H*B, N, PITCH]: of bfloat16 they
    have 16 digits. A single one is in ``fine``, [H*B, N].
    """
    sequence, h, b, i0, low, high, no_self, bias, end = place(
        lo, hi, without_self, slope, ends, range_h, range_b, heads, batch, n, MASKED, ROWS, True
    )
    bias = tl.load(slope + h)
    before = tl.cast(sequence, tl.int64) * n
    flagged += before
    shift += before * (D_V if SOURCE == 2 else 1)
    if any_lost(flagged, i0, n, ROWS):
        for t in range(0, ROWS):
            i = i0 + t
            if tl.load(flagged + i, mask=i < n, other=0) != 0:
                query = row_of(q + h * q_h + b * q_b, i, q_n, D_I, WIDTH_I, NUMBER)
                flow = row_of(g + h * g_h + b * g_b, i, g_n, D_V, WIDTH_V, NUMBER)
                top = shift_of(shift, i, SOURCE, D_V, WIDTH_X).to(NUMBER)
                mean = tl.zeros([WIDTH_X], NUMBER)
                weight = tl.zeros([WIDTH_X], NUMBER)
                total = tl.zeros([WIDTH_I], NUMBER)
                begin, stop = tl.maximum(i - high, 0), tl.minimum(i - low + 1, end)
                for second in tl.static_range(2):  # first their mean
                    so_far = mean
                    for j0 in range(begin, stop, COLUMNS):
                        keys, to_r, _, _, p, to_p = gradient_step(
                            query, flow, so_far, top, i, j0, sequence, k + h * k_h + b * k_b,
                            v + h * v_h + b * v_b, s + h * s_h + b * s_b, real + b * real_b,
                            k_n, v_n, s_n, low, high, no_self, bias, end, seed, threshold,
                            IDENTITY, SOURCE, MASKED, DROPPED, D_I, D_V, WIDTH_I, WIDTH_V,
                            COLUMNS, NUMBER,
                        )  # fmt: skip
                        if second:
                            total += tl.sum(to_r[:, None] * keys, 0)
                        else:
                            mean += tl.sum(p * to_p, 0)
                            weight += tl.sum(p, 0)
                    if not second:  # the weights' sum is 1 but for rounding, which must cancel
                        mean = mean / tl.where(weight > 0, weight, 1.0)
                column = tl.arange(0, WIDTH_X)
                if SOURCE == 2:
                    at = (before + i) * PITCH + column
                    some = mean.to(coarse.dtype.element_ty)
                    tl.store(coarse + at, some, mask=column < D_V)
                    rest = (mean - some.to(NUMBER)).to(fine.dtype.element_ty)
                    tl.store(fine + at, rest, mask=column < D_V)
                else:
                    tl.store(fine + before + i + column, mean)
                if D_I > 0:
                    column_i = tl.arange(0, WIDTH_I)
                    at = dq + h * dq_h + b * dq_b + tl.cast(i, tl.int64) * dq_n + column_i
                    tl.store(at, total.to(dq.dtype.element_ty), mask=column_i < D_I)


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
    q, k, v, s, real, ends, lo, hi, without_self, slope, flagged, g, shift, coarse, fine,
    dk, dv, ds,
    q_h, q_b, q_n, k_h, k_b, k_n, v_h, v_b, v_n, s_h, s_b, s_n, g_h, g_b, g_n,
    dk_h, dk_b, dk_n, dv_h, dv_b, dv_n, ds_h, ds_b, ds_n,
    real_b, range_h, range_b, heads, batch, n, seed, threshold,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, DROPPED: tl.constexpr,
    D_I: tl.constexpr, D_V: tl.constexpr, PITCH: tl.constexpr, WIDTH_I: tl.constexpr,
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
    of_k = tl.zeros([ROWS, WIDTH_I], NUMBER)
    of_v = tl.zeros([ROWS, WIDTH_V], NUMBER)
    of_s = tl.zeros([ROWS, WIDTH_X], NUMBER)
    some = 0
    last = tl.minimum(tl.minimum(j0 + ROWS, end) + high, n)
    for i0 in range(tl.maximum(j0 + low, 0), last, FLAGS):
        if any_lost(flagged, i0, last, FLAGS):
            some += 1
            for t in range(0, tl.minimum(last - i0, FLAGS)):
                i = i0 + t
                if tl.load(flagged + i) != 0:
                    query = row_of(q + h * q_h + b * q_b, i, q_n, D_I, WIDTH_I, NUMBER)
                    flow = row_of(g + h * g_h + b * g_b, i, g_n, D_V, WIDTH_V, NUMBER)
                    if SOURCE == 2:
                        at = before * PITCH
                        mean = row_of(coarse + at, i, PITCH, D_V, WIDTH_V, NUMBER)
                        mean += row_of(fine + at, i, PITCH, D_V, WIDTH_V, NUMBER)
                    else:
                        mean = row_of(fine + before, i, 1, 1, 1, NUMBER)
                    top = shift_of(shift, i, SOURCE, D_V, WIDTH_X).to(NUMBER)
                    _, to_r, to_x, to_v, _, _ = gradient_step(
                        query, flow, mean, top, i, j0, sequence, k + h * k_h + b * k_b,
                        v + h * v_h + b * v_b, s + h * s_h + b * s_b, real + b * real_b,
                        k_n, v_n, s_n, low, high, no_self, bias, end, seed, threshold,
                        IDENTITY, SOURCE, MASKED, DROPPED, D_I, D_V, WIDTH_I, WIDTH_V,
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
