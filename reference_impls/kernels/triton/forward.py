"""The forward pass as a Triton kernel: numerator and denominator of a tile of queries at once."""

from __future__ import annotations

import triton
import triton.language as tl

from reference_impls.kernels.triton.parts import (
    NEVER_SPECIAL,
    centre_of,
    exponential,
    keeps,
    load_rows,
    open_keys,
    pair_weights,
    place,
    row_hash,
    spans,
    tile_start,
)


@triton.jit
def forward_step(
    numerator, denominator, highest, queries, rows, i, j0, k, w, e, real, k_n, w_n,
    low, high, no_self, bias, end, threshold,
    EDGE: tl.constexpr, IDENTITY: tl.constexpr, SOURCE: tl.constexpr, REAL: tl.constexpr,
    DROPPED: tl.constexpr, D_I: tl.constexpr, READ_K: tl.constexpr, READ_W: tl.constexpr,
    WIDTH_I: tl.constexpr, WIDTH_V: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the keys from j0 on to a tile's numerator [ROWS, WIDTH_V] and denominator."""
    j = j0 + tl.arange(0, COLUMNS)
    if D_I > 0:
        keys = load_rows(k, j0, k_n, end, COLUMNS, WIDTH_I, READ_K, EDGE)
        r = tl.dot(queries, tl.trans(keys), input_precision=PRECISION)
    else:
        r = tl.zeros([ROWS, COLUMNS], tl.float32)

    ok = open_keys(i, j, real, low, high, no_self, end, EDGE, REAL)
    if IDENTITY:
        if EDGE:
            r = r - bias * tl.abs(i[:, None] - j[None, :]).to(tl.float32)
        if EDGE or REAL:
            r = tl.where(ok, r, float("-inf"))
        highest_now = tl.maximum(highest, tl.max(r, 1))
        top = tl.where(highest_now == float("-inf"), 0.0, highest_now)  # -inf - -inf is NaN
        p = exponential(r - top[:, None])
        fade = exponential(highest - top)
        highest = highest_now
        numerator = numerator * fade[:, None]
        denominator = denominator * (fade[:, None] if SOURCE == 2 else fade)
    else:
        p, _ = pair_weights(
            r, highest, i[:, None], j[None, :], ok, bias, IDENTITY, EDGE or REAL, EDGE
        )

    p_kept = p
    if DROPPED:
        p_kept = tl.where(keeps(rows[:, None], j[None, :], threshold), p, 0.0)
    weighed = load_rows(w, j0, w_n, end, COLUMNS, WIDTH_V, READ_W, EDGE)
    numerator = tl.dot(p_kept.to(DOT), weighed.to(DOT), numerator, input_precision=PRECISION)
    if SOURCE == 2:
        sources = load_rows(e, j0, w_n, end, COLUMNS, WIDTH_V, READ_W, EDGE)
        denominator = tl.dot(p.to(DOT), sources, denominator, input_precision=PRECISION)
    elif SOURCE == 1:
        source = tl.load(e + j, mask=j < end, other=0.0)
        denominator += tl.sum(p.to(DOT).to(tl.float32) * source[None, :], 1)
    else:
        denominator += tl.sum(p.to(DOT).to(tl.float32), 1)
    return numerator, denominator, highest


@triton.jit
def open_queries(i, low, high, no_self, n, counts, real, MASKED: tl.constexpr):
    """Whether a query is real and has a key: from the geometry and the number of real keys."""
    here = i < n
    first = tl.minimum(tl.maximum(i - high, 0), n)
    after = tl.minimum(tl.maximum(i - low + 1, 0), n)
    if MASKED:
        here = here & (tl.load(real + i, mask=here, other=0) != 0)
        keys = tl.load(counts + after - 1, mask=here & (after > 0), other=0)
        keys -= tl.load(counts + first - 1, mask=here & (first > 0), other=0)
    else:
        keys = after - first
    itself = (low <= 0) & (high >= 0) & (no_self != 0)
    return here & (keys > tl.where(itself, 1, 0))


@triton.jit(do_not_specialize=NEVER_SPECIAL)
def forward_kernel(
    q, k, w, e, centre, real, counts, ends, lo, hi, without_self, slope,
    out, residue, inverse, top, flagged,
    q_h, q_b, q_n, k_h, k_b, k_n, w_h, w_b, w_n, real_b, range_h, range_b,
    heads, batch, n, least, seed, threshold,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, REAL: tl.constexpr,
    DROPPED: tl.constexpr, CENTRED: tl.constexpr, SAVE: tl.constexpr,
    D_I: tl.constexpr, D_V: tl.constexpr, READ_Q: tl.constexpr, READ_K: tl.constexpr,
    READ_W: tl.constexpr, WIDTH_I: tl.constexpr, WIDTH_V: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """P w / P e for a tile of queries, the inverse denominators, row maxima and flags.

    ``out`` and ``residue``, which is it less the centre, are [B, N, H, D_V]; ``inverse``
    [H*B, N, D_V or 1] is 0 where no gradient flows.
    """
    sequence, h, b, i0, low, high, no_self, bias, end = place(
        lo, hi, without_self, slope, ends, range_h, range_b, heads, batch, n, MASKED, ROWS, True
    )
    q += h * q_h + b * q_b
    k += h * k_h + b * k_b
    w += h * w_h + b * w_b
    if SOURCE == 2:
        e += h * w_h + b * w_b
    else:
        e += tl.cast(sequence, tl.int64) * n
    real += b * real_b
    counts += b * n

    i = i0 + tl.arange(0, ROWS)
    start, count, first, last = spans(i0, -high, -low, no_self, bias, end, ROWS, COLUMNS)

    numerator = tl.zeros([ROWS, WIDTH_V], tl.float32)
    if SOURCE == 2:
        denominator = tl.zeros([ROWS, WIDTH_V], tl.float32)
    else:
        denominator = tl.zeros([ROWS], tl.float32)
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    queries = numerator
    if D_I > 0:
        queries = load_rows(q, i0, q_n, n, ROWS, WIDTH_I, READ_Q, True)
    rows = i
    if DROPPED:
        rows = row_hash(seed, sequence, i)
    for edge in tl.static_range(2):  # tiles that need no mask, then those before and after them
        for t in range(0 if edge else first, count - (last - first) if edge else last):
            j0 = tile_start(start, t, first, last, edge, COLUMNS)
            numerator, denominator, highest = forward_step(
                numerator, denominator, highest, queries, rows, i, j0, k, w, e, real, k_n, w_n,
                low, high, no_self, bias, end, threshold,
                edge, IDENTITY, SOURCE, REAL, DROPPED, D_I, READ_K, READ_W, WIDTH_I, WIDTH_V,
                ROWS, COLUMNS, DOT, PRECISION,
            )  # fmt: skip

    column = tl.arange(0, WIDTH_V)
    if SOURCE == 2:
        denominator = tl.where((column < D_V)[None, :], denominator, 1.0)
        smallest = tl.min(denominator, 1)
    else:
        smallest = denominator
        denominator = denominator[:, None]
    is_open = open_queries(i, low, high, no_self, n, counts, real, MASKED)
    lost = is_open & (smallest < least)
    good = (is_open & (lost == 0))[:, None]
    divisor = tl.where(good, denominator, 1.0)
    result = tl.where(good, numerator / divisor, 0.0)
    row = tl.arange(0, ROWS)
    at = ((b * n + i0) * heads + h) * D_V + row[:, None] * (heads * D_V) + column[None, :]
    inside = (i < n)[:, None] & (column < D_V)[None, :]
    if CENTRED:
        if SAVE:
            tl.store(residue + at, result.to(residue.dtype.element_ty), mask=inside)
        result += tl.where(good, centre_of(centre, sequence, column, D_V), 0.0)
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)
    before = tl.cast(sequence, tl.int64) * n + i0
    tl.store(flagged + before + row, lost.to(tl.uint8), mask=i < n)
    if SAVE:
        share = tl.where(good, 1.0 / divisor, 0.0)
        if SOURCE == 2:
            at = before * D_V + row[:, None] * D_V + column[None, :]
            tl.store(inverse + at, share, mask=inside)
        else:
            tl.store(inverse + before + row[:, None], share, mask=(i < n)[:, None])
        if IDENTITY:
            saved = tl.where(highest == float("-inf"), 0.0, highest)
            tl.store(top + before + row, saved, mask=i < n)
