"""The forward pass as a Triton kernel: numerator and denominator of a tile of queries at once."""

from __future__ import annotations

import triton
import triton.language as tl

from reference_impls.kernels.triton.parts import (
    NEVER_SPECIAL,
    centre_of,
    exponential,
    keeps,
    open_keys,
    pair_weights,
    place,
    row_hash,
    spans,
    tile_start,
)
from reference_impls.kernels.triton.wide import (
    load_wide,
    over_features,
    per_feature,
    store_rows,
    times_wide,
    zeros_wide,
)


@triton.jit
def forward_step(
    numerator, denominator, highest, queries, rows, i, j0, k, w, e, real, k_n, w_n,
    low, high, no_self, bias, end, threshold,
    EDGE: tl.constexpr, IDENTITY: tl.constexpr, SOURCE: tl.constexpr, REAL: tl.constexpr,
    DROPPED: tl.constexpr, D_I: tl.constexpr, READ_K: tl.constexpr, READ_W: tl.constexpr,
    WIDTH_I: tl.constexpr, REST_I: tl.constexpr, WIDTH_V: tl.constexpr, REST_V: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the keys from j0 on to a tile's numerator and denominator, both wide [ROWS, d_v]."""
    j = j0 + tl.arange(0, COLUMNS)
    r = tl.zeros([ROWS, COLUMNS], tl.float32)
    if D_I > 0:
        keys = load_wide(k, j0, k_n, end, COLUMNS, WIDTH_I, REST_I, READ_K, EDGE)
        r = over_features(queries, keys, r, REST_I, PRECISION)

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
        numerator = times_wide(numerator, fade[:, None], REST_V)
        if SOURCE == 2:
            denominator = times_wide(denominator, fade[:, None], REST_V)
        else:
            denominator = denominator * fade
    else:
        p, _ = pair_weights(
            r, highest, i[:, None], j[None, :], ok, bias, IDENTITY, EDGE or REAL, EDGE
        )

    p_kept = p
    if DROPPED:
        p_kept = tl.where(keeps(rows[:, None], j[None, :], threshold), p, 0.0)
    weighed = load_wide(w, j0, w_n, end, COLUMNS, WIDTH_V, REST_V, READ_W, EDGE)
    numerator = per_feature(p_kept.to(DOT), weighed, numerator, REST_V, PRECISION)
    if SOURCE == 2:
        sources = load_wide(e, j0, w_n, end, COLUMNS, WIDTH_V, REST_V, READ_W, EDGE)
        denominator = per_feature(p.to(DOT), sources, denominator, REST_V, PRECISION)
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


@triton.jit
def write_part(
    numerator, denominator, good, out, residue, inverse, centre, sequence, i0, step, n,
    OFFSET: tl.constexpr, WIDTH: tl.constexpr, SOURCE: tl.constexpr, CENTRED: tl.constexpr,
    SAVE: tl.constexpr, D_V: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Of WIDTH features from OFFSET on: their values, and what the backward pass needs of them."""
    left: tl.constexpr = D_V - OFFSET
    column = OFFSET + tl.arange(0, WIDTH)
    good = good & (column < D_V)[None, :]
    divisor = tl.where(good, denominator, 1.0)
    result = tl.where(good, numerator / divisor, 0.0)
    if CENTRED:
        if SAVE:
            store_rows(residue + OFFSET, result, i0, step, n, ROWS, WIDTH, left)
        result += tl.where(good, centre_of(centre, sequence, column, D_V), 0.0)
    store_rows(out + OFFSET, result, i0, step, n, ROWS, WIDTH, left)
    if SAVE and SOURCE == 2:
        share = tl.where(good, 1.0 / divisor, 0.0)
        store_rows(inverse + OFFSET, share, i0, D_V, n, ROWS, WIDTH, left)


@triton.jit
def smallest_of(denominator, OFFSET: tl.constexpr, WIDTH: tl.constexpr, D_V: tl.constexpr):
    """Of each row, over the features from OFFSET on."""
    column = OFFSET + tl.arange(0, WIDTH)
    return tl.min(tl.where((column < D_V)[None, :], denominator, float("inf")), 1)


@triton.jit(do_not_specialize=NEVER_SPECIAL)
def forward_kernel(
    q, k, w, e, centre, real, counts, ends, lo, hi, without_self, slope,
    out, residue, inverse, top, flagged,
    q_h, q_b, q_n, k_h, k_b, k_n, w_h, w_b, w_n, real_b, range_h, range_b,
    heads, batch, n, least, seed, threshold,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, REAL: tl.constexpr,
    DROPPED: tl.constexpr, CENTRED: tl.constexpr, SAVE: tl.constexpr,
    D_I: tl.constexpr, D_V: tl.constexpr, READ_Q: tl.constexpr, READ_K: tl.constexpr,
    READ_W: tl.constexpr, WIDTH_I: tl.constexpr, REST_I: tl.constexpr, WIDTH_V: tl.constexpr,
    REST_V: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DOT: tl.constexpr,
    PRECISION: tl.constexpr,
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

    numerator = zeros_wide(ROWS, WIDTH_V, REST_V)
    denominator = tl.zeros([ROWS], tl.float32)
    if SOURCE == 2:
        denominator = zeros_wide(ROWS, WIDTH_V, REST_V)
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    queries = numerator
    if D_I > 0:
        queries = load_wide(q, i0, q_n, n, ROWS, WIDTH_I, REST_I, READ_Q, True)
    rows = i
    if DROPPED:
        rows = row_hash(seed, sequence, i)
    for edge in tl.static_range(2):  # tiles that need no mask, then those before and after them
        for t in range(0 if edge else first, count - (last - first) if edge else last):
            j0 = tile_start(start, t, first, last, edge, COLUMNS)
            numerator, denominator, highest = forward_step(
                numerator, denominator, highest, queries, rows, i, j0, k, w, e, real, k_n, w_n,
                low, high, no_self, bias, end, threshold,
                edge, IDENTITY, SOURCE, REAL, DROPPED, D_I, READ_K, READ_W, WIDTH_I, REST_I,
                WIDTH_V, REST_V, ROWS, COLUMNS, DOT, PRECISION,
            )  # fmt: skip

    if SOURCE == 2:
        smallest = smallest_of(denominator[0], 0, WIDTH_V, D_V)
        if REST_V > 0:
            more = smallest_of(denominator[1], WIDTH_V, REST_V, D_V)
            smallest = tl.minimum(smallest, more)
    else:
        smallest = denominator
    is_open = open_queries(i, low, high, no_self, n, counts, real, MASKED)
    lost = is_open & (smallest < least)
    good = (is_open & (lost == 0))[:, None]
    out += (b * n * heads + h) * D_V
    if CENTRED and SAVE:
        residue += (b * n * heads + h) * D_V
    before = tl.cast(sequence, tl.int64) * n
    at_first = inverse
    if SOURCE == 2:
        at_first += before * D_V
    for part in tl.static_range(2 if REST_V > 0 else 1):
        write_part(
            numerator[part], denominator[part] if SOURCE == 2 else denominator[:, None],
            good, out, residue, at_first, centre, sequence, i0, heads * D_V, n,
            part * WIDTH_V, REST_V if part else WIDTH_V, SOURCE, CENTRED, SAVE, D_V, ROWS,
        )  # fmt: skip
    at = before + i0 + tl.arange(0, ROWS)
    tl.store(flagged + at, lost.to(tl.uint8), mask=i < n)
    if SAVE:
        if SOURCE != 2:
            share = tl.where(good, 1.0 / tl.where(good, denominator[:, None], 1.0), 0.0)
            tl.store(inverse + at[:, None], share, mask=(i < n)[:, None])
        if IDENTITY:
            saved = tl.where(highest == float("-inf"), 0.0, highest)
            tl.store(top + at, saved, mask=i < n)
