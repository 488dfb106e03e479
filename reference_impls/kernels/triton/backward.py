"""The backward pass as Triton kernels: P is computed again, nothing of N x N is kept.

With o = num / den (less the centre of the values, see `inputs.Inputs.centred`) and the
gradient g of o: ``dnum`` = g / den and ``dden`` = -dnum o. Then

    dP = dnum w^T + dden e^T,    dscore = dP P (1 - P) or dP P,
    dq = dscore k,    dk = dscore^T q,    dw = P^T dnum,    de = dw v + P^T dden,
    dv = dw E,    ds = de E,

with P's sigmoid in (1 - P), and dropout on what meets dnum alone. Sums go over a program's own
tiles in a fixed order and nothing is added atomically, so that results repeat bit for bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

from reference_impls.kernels.triton.parts import (
    NEVER_SPECIAL,
    centre_of,
    keeps,
    open_keys,
    open_pairs,
    pair_weights,
    place,
    row_hash,
    source_weights,
    spans,
    tile_start,
    token_tile,
)
from reference_impls.kernels.triton.wide import (
    cast_wide,
    load_rows,
    load_wide,
    over_features,
    per_feature,
    store_rows,
    store_wide,
    zeros_wide,
)


@triton.jit(do_not_specialize=NEVER_SPECIAL)
def cotangent_kernel(
    g,
    out,
    inverse,
    flagged,
    dnum,
    dden,
    g_h,
    g_b,
    g_n,
    heads,
    batch,
    n,
    SOURCE: tl.constexpr,
    D_V: tl.constexpr,
    PITCH: tl.constexpr,
    WIDTH_V: tl.constexpr,
    ROWS: tl.constexpr,
):
    """dnum, and dden like it or, with one denominator for all features, float32 [H*B, N]."""
    sequence, h, b, first = token_tile(batch, n, ROWS)
    row = tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH_V)
    inside = (first + row < n)[:, None]
    before = tl.cast(sequence, tl.int64) * n + first
    grad = load_rows(g + h * g_h + b * g_b, first, g_n, n, ROWS, WIDTH_V, D_V, True)
    out += (b * n * heads + h) * D_V
    attended = load_rows(out, first, heads * D_V, n, ROWS, WIDTH_V, D_V, True).to(tl.float32)
    if SOURCE == 2:
        share = load_rows(inverse + before * D_V, 0, D_V, n - first, ROWS, WIDTH_V, D_V, True)
    else:
        share = tl.load(inverse + before + row[:, None], mask=inside, other=0.0)
    # What arrives at a padded query may be anything; at a flagged one `repair` keeps its own there.
    lost = tl.load(flagged + before + row, mask=first + row < n, other=0) != 0
    share = tl.where(lost[:, None], 0.0, share)
    change = tl.where(share > 0, grad.to(tl.float32) * share, 0.0).to(dnum.dtype.element_ty)
    at = before * PITCH + (row[:, None] * PITCH + column[None, :])
    stored = inside & (column < PITCH)[None, :]
    tl.store(dnum + at, change, mask=stored)
    # From the rounded dnum: the two belong to one and the same g.
    other = -change.to(tl.float32) * attended
    if SOURCE == 2:
        tl.store(dden + at, other.to(dden.dtype.element_ty), mask=stored)
    else:
        tl.store(dden + before + row, tl.sum(other, 1), mask=first + row < n)


@triton.jit
def query_gradient_step(
    dq, queries, dnums, ddens, highest, rows, i, j0, k, w, e, real, k_n, w_n,
    low, high, no_self, bias, end, threshold,
    EDGE: tl.constexpr, IDENTITY: tl.constexpr, SOURCE: tl.constexpr, REAL: tl.constexpr,
    DROPPED: tl.constexpr, READ_K: tl.constexpr, READ_W: tl.constexpr, WIDTH_I: tl.constexpr,
    REST_I: tl.constexpr, WIDTH_V: tl.constexpr, REST_V: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add what the keys from j0 on give to dq, wide [ROWS, d_i]."""
    j = j0 + tl.arange(0, COLUMNS)
    nothing = tl.zeros([ROWS, COLUMNS], tl.float32)
    keys = load_wide(k, j0, k_n, end, COLUMNS, WIDTH_I, REST_I, READ_K, EDGE)
    r = over_features(queries, keys, nothing, REST_I, PRECISION)
    ok = open_keys(i, j, real, low, high, no_self, end, EDGE, REAL)
    p, share = pair_weights(
        r, highest[:, None], i[:, None], j[None, :], ok, bias, IDENTITY, EDGE or REAL, EDGE
    )
    weighed = load_wide(w, j0, w_n, end, COLUMNS, WIDTH_V, REST_V, READ_W, EDGE)
    dp = over_features(dnums, weighed, nothing, REST_V, PRECISION)
    if DROPPED:
        dp = tl.where(keeps(rows[:, None], j[None, :], threshold), dp, 0.0)
    if SOURCE == 2:
        sources = load_wide(e, j0, w_n, end, COLUMNS, WIDTH_V, REST_V, READ_W, EDGE)
        dp = over_features(ddens, sources, dp, REST_V, PRECISION)
    elif SOURCE == 1:
        dp += ddens[:, None] * tl.load(e + j, mask=j < end, other=0.0)[None, :]
    else:
        dp += ddens[:, None]
    change = dp * p
    if not IDENTITY:
        change = change * (1.0 - share)
    return per_feature(change.to(DOT), keys, dq, REST_I, PRECISION)


@triton.jit(do_not_specialize=NEVER_SPECIAL)
def query_gradient_kernel(
    q, k, w, e, real, ends, lo, hi, without_self, slope, top, dnum, dden, dq,
    q_h, q_b, q_n, k_h, k_b, k_n, w_h, w_b, w_n, dq_h, dq_b, dq_n, real_b, range_h, range_b,
    heads, batch, n, seed, threshold,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, REAL: tl.constexpr,
    DROPPED: tl.constexpr, D_I: tl.constexpr, READ_Q: tl.constexpr, READ_K: tl.constexpr,
    READ_W: tl.constexpr, PITCH: tl.constexpr, WIDTH_I: tl.constexpr, REST_I: tl.constexpr,
    WIDTH_V: tl.constexpr, REST_V: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of queries."""
    sequence, h, b, i0, low, high, no_self, bias, end = place(
        lo, hi, without_self, slope, ends, range_h, range_b, heads, batch, n, MASKED, ROWS, True
    )
    before = tl.cast(sequence, tl.int64) * n
    q += h * q_h + b * q_b
    k += h * k_h + b * k_b
    w += h * w_h + b * w_b
    if SOURCE == 2:
        e += h * w_h + b * w_b
    else:
        e += before
    real += b * real_b

    i = i0 + tl.arange(0, ROWS)
    start, count, first, last = spans(i0, -high, -low, no_self, bias, end, ROWS, COLUMNS)

    queries = load_wide(q, i0, q_n, n, ROWS, WIDTH_I, REST_I, READ_Q, True)
    dnums = load_wide(dnum + before * PITCH, i0, PITCH, n, ROWS, WIDTH_V, REST_V, PITCH, True)
    if SOURCE == 2:
        dden += before * PITCH
        ddens = load_wide(dden, i0, PITCH, n, ROWS, WIDTH_V, REST_V, PITCH, True)
    else:
        ddens = tl.load(dden + before + i, mask=i < n, other=0.0)
    highest = tl.zeros([ROWS], tl.float32)
    if IDENTITY:
        highest = tl.load(top + before + i, mask=i < n, other=0.0)
    rows = i
    if DROPPED:
        rows = row_hash(seed, sequence, i)
    change = zeros_wide(ROWS, WIDTH_I, REST_I)
    for edge in tl.static_range(2):  # tiles that need no mask, then those before and after them
        for t in range(0 if edge else first, count - (last - first) if edge else last):
            j0 = tile_start(start, t, first, last, edge, COLUMNS)
            change = query_gradient_step(
                change, queries, dnums, ddens, highest, rows, i, j0, k, w, e, real, k_n, w_n,
                low, high, no_self, bias, end, threshold,
                edge, IDENTITY, SOURCE, REAL, DROPPED, READ_K, READ_W, WIDTH_I, REST_I, WIDTH_V,
                REST_V, ROWS, COLUMNS, DOT, PRECISION,
            )  # fmt: skip
    store_wide(dq + h * dq_h + b * dq_b, change, i0, dq_n, n, ROWS, WIDTH_I, REST_I, D_I)


@triton.jit
def key_gradient_step(
    dk, dw, de, keys, weighed, sources, present, j, i0, sequence, q, dnum, dden, top, q_n,
    low, high, no_self, bias, end, seed, threshold,
    EDGE: tl.constexpr, IDENTITY: tl.constexpr, SOURCE: tl.constexpr, REAL: tl.constexpr,
    DROPPED: tl.constexpr, D_I: tl.constexpr, READ_Q: tl.constexpr, PITCH: tl.constexpr,
    WIDTH_I: tl.constexpr, REST_I: tl.constexpr, WIDTH_V: tl.constexpr, REST_V: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add what the queries from i0 on give to dk, dw and P^T dden: everything is transposed."""
    i = i0 + tl.arange(0, COLUMNS)
    nothing = tl.zeros([ROWS, COLUMNS], tl.float32)
    queries = sources
    r = nothing
    if D_I > 0:
        queries = load_wide(q, i0, q_n, end, COLUMNS, WIDTH_I, REST_I, READ_Q, EDGE)
        r = over_features(keys, queries, r, REST_I, PRECISION)
    highest = tl.zeros([COLUMNS], tl.float32)
    if IDENTITY:
        highest = tl.load(top + i, mask=i < end, other=0.0)
    ok = (i < end)[None, :]  # maxima of queries beyond the end need not be those of their keys
    if EDGE:
        ok = ok & open_pairs(i[None, :], j[:, None], low, high, no_self)
    if REAL:
        ok = ok & present[:, None]
    p, share = pair_weights(
        r, highest[None, :], i[None, :], j[:, None], ok, bias, IDENTITY, EDGE or REAL, EDGE
    )
    dnums = load_wide(dnum, i0, PITCH, end, COLUMNS, WIDTH_V, REST_V, PITCH, EDGE)
    dp = over_features(weighed, dnums, nothing, REST_V, PRECISION)
    p_kept = p
    if DROPPED:
        kept = keeps(row_hash(seed, sequence, i)[None, :], j[:, None], threshold)
        p_kept = tl.where(kept, p, 0.0)
        dp = tl.where(kept, dp, 0.0)
    dw = per_feature(p_kept.to(DOT), dnums, dw, REST_V, PRECISION)
    if SOURCE == 2:
        ddens = load_wide(dden, i0, PITCH, end, COLUMNS, WIDTH_V, REST_V, PITCH, EDGE)
        dp = over_features(sources, ddens, dp, REST_V, PRECISION)
        de = per_feature(p.to(DOT), ddens, de, REST_V, PRECISION)
    else:
        dden_i = tl.load(dden + i, mask=i < end, other=0.0)[None, :]
        if SOURCE == 1:
            de += tl.sum(p * dden_i, 1)[:, None]
            dden_i = sources * dden_i
        dp += dden_i
    if D_I > 0:
        change = dp * p
        if not IDENTITY:
            change = change * (1.0 - share)
        dk = per_feature(change.to(DOT), queries, dk, REST_I, PRECISION)
    return dk, dw, de


@triton.jit
def write_values(
    dw, de, v, s, maximum, centre, real, dv, ds, sequence, j0, present, v_n, s_n, dv_n, ds_n, n,
    OFFSET: tl.constexpr, WIDTH: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr,
    CENTRED: tl.constexpr, D_V: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Of WIDTH features from OFFSET on: dv and, of as many columns, ds; dw v summed [ROWS, 1]."""
    left: tl.constexpr = D_V - OFFSET
    weight = source_weights(
        s, maximum, real, j0, s_n, n, SOURCE, OFFSET, D_V, WIDTH, MASKED, ROWS
    )  # fmt: skip
    store_rows(dv + OFFSET, dw * weight, j0, dv_n, n, ROWS, WIDTH, left)
    values = load_rows(v + OFFSET, j0, v_n, n, ROWS, WIDTH, left, True).to(tl.float32)
    if CENTRED:
        values = values - centre_of(centre, sequence, OFFSET + tl.arange(0, WIDTH), D_V)
    part = tl.where(present[:, None], dw * values, 0.0)
    if SOURCE == 2:
        store_rows(ds + OFFSET, (part + de) * weight, j0, ds_n, n, ROWS, WIDTH, left)
    return tl.sum(part, 1)[:, None]


@triton.jit(do_not_specialize=NEVER_SPECIAL)
def key_gradient_kernel(
    q, k, w, e, v, s, maximum, centre, real, ends, lo, hi, without_self, slope, top,
    dnum, dden, dk, dv, ds,
    q_h, q_b, q_n, k_h, k_b, k_n, w_h, w_b, w_n, v_h, v_b, v_n, s_h, s_b, s_n,
    dk_h, dk_b, dk_n, dv_h, dv_b, dv_n, ds_h, ds_b, ds_n, real_b, range_h, range_b,
    heads, batch, n, seed, threshold,
    IDENTITY: tl.constexpr, SOURCE: tl.constexpr, MASKED: tl.constexpr, REAL: tl.constexpr,
    DROPPED: tl.constexpr, CENTRED: tl.constexpr, D_I: tl.constexpr, D_V: tl.constexpr,
    READ_Q: tl.constexpr, READ_K: tl.constexpr, READ_W: tl.constexpr, PITCH: tl.constexpr,
    WIDTH_I: tl.constexpr, REST_I: tl.constexpr, WIDTH_V: tl.constexpr, REST_V: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of a tile of keys, their values and source scores."""
    sequence, h, b, j0, low, high, no_self, bias, end = place(
        lo, hi, without_self, slope, ends, range_h, range_b, heads, batch, n, MASKED, ROWS, False
    )
    before = tl.cast(sequence, tl.int64) * n
    q += h * q_h + b * q_b
    real += b * real_b
    top += before
    dnum += before * PITCH
    row = tl.arange(0, ROWS)
    j = j0 + row
    present = j < n
    if MASKED:
        present = present & (tl.load(real + j, mask=present, other=0) != 0)

    start, count, first, last = spans(j0, low, high, no_self, bias, end, ROWS, COLUMNS)

    w += h * w_h + b * w_b
    weighed = load_wide(w, j0, w_n, n, ROWS, WIDTH_V, REST_V, READ_W, True)
    weighed = cast_wide(weighed, DOT, REST_V)
    dw = zeros_wide(ROWS, WIDTH_V, REST_V)
    if SOURCE == 2:
        dden += before * PITCH
        e += h * w_h + b * w_b
        sources = load_wide(e, j0, w_n, n, ROWS, WIDTH_V, REST_V, READ_W, True)
        de = zeros_wide(ROWS, WIDTH_V, REST_V)
    else:
        dden += before
        de = tl.zeros([ROWS, 1], tl.float32)
        sources = de
        if SOURCE == 1:
            sources = tl.load(e + before + j[:, None], mask=(j < n)[:, None], other=0.0)
    keys = dw
    dkey = zeros_wide(ROWS, WIDTH_I, REST_I)
    if D_I > 0:
        k += h * k_h + b * k_b
        keys = load_wide(k, j0, k_n, n, ROWS, WIDTH_I, REST_I, READ_K, True)
    for edge in tl.static_range(2):  # tiles that need no mask, then those before and after them
        for t in range(0 if edge else first, count - (last - first) if edge else last):
            i0 = tile_start(start, t, first, last, edge, COLUMNS)
            dkey, dw, de = key_gradient_step(
                dkey, dw, de, keys, weighed, sources, present, j, i0, sequence,
                q, dnum, dden, top, q_n, low, high, no_self, bias, end, seed, threshold,
                edge, IDENTITY, SOURCE, REAL, DROPPED, D_I, READ_Q, PITCH, WIDTH_I, REST_I,
                WIDTH_V, REST_V, ROWS, COLUMNS, DOT, PRECISION,
            )  # fmt: skip

    if D_I > 0:
        store_wide(dk + h * dk_h + b * dk_b, dkey, j0, dk_n, n, ROWS, WIDTH_I, REST_I, D_I)
    dv += h * dv_h + b * dv_b
    if SOURCE == 0:
        store_wide(dv, dw, j0, dv_n, n, ROWS, WIDTH_V, REST_V, D_V)
    else:
        v += h * v_h + b * v_b
        s += h * s_h + b * s_b
        ds += h * ds_h + b * ds_b
        if SOURCE == 2:
            maximum += sequence * D_V
        else:
            maximum += sequence
        total = tl.zeros([ROWS, 1], tl.float32)
        for part in tl.static_range(2 if REST_V > 0 else 1):
            total += write_values(
                dw[part], de[part] if SOURCE == 2 else de, v, s, maximum, centre, real, dv, ds,
                sequence, j0, present, v_n, s_n, dv_n, ds_n, n, part * WIDTH_V,
                REST_V if part else WIDTH_V, SOURCE, MASKED, CENTRED, D_V, ROWS,
            )  # fmt: skip
        if SOURCE == 1:
            weight = source_weights(
                s, maximum, real, j0, s_n, n, SOURCE, 0, D_V, WIDTH_V, MASKED, ROWS
            )  # fmt: skip
            store_rows(ds, (total + de) * weight, j0, ds_n, n, ROWS, 1, 1)
