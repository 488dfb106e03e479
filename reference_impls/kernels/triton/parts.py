"""What the Triton kernels have in common, and the kernel that weighs the values.

A program has one tile of rows of one sequence (head h, sample b) and goes over the tiles of
columns that its head's range opens: those wholly inside the range need no mask and come first,
those at its edges (and those that hold i = j where that is closed) after them. With a distance
bias every tile counts as one at an edge.

Names are those of `reference_impls.kernels`: q, k, v, s; ``w`` = v * E and ``e`` = E are the
weighed values and the source weights, zero at padded keys. SOURCE says what s is: none, one
column for all features, or one per feature.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

from reference_impls.kernels.triton.wide import load_rows

ASSEMBLER = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1")
"""Whether there is one: the interpreter reads no PTX."""
NEVER_SPECIAL = ["n", "heads", "batch", "seed", "threshold", "least"]
"""Numbers whose value must not make a new kernel."""


@triton.jit
def place(
    lo,
    hi,
    without_self,
    slope,
    ends,
    range_h,
    range_b,
    heads,
    batch,
    n,
    MASKED: tl.constexpr,
    ROWS: tl.constexpr,
    LATE: tl.constexpr,
):
    """Which tile of which sequence this program has, the longest rows of all sequences first.

    Then that head's range of i - j, whether i = j is closed, its slope, and where tokens end.
    LATE: late rows are the long ones where the range lies before the query (they are for queries,
    not for keys).
    """
    sequences = heads * batch
    rank = tl.program_id(0) // sequences
    sequence = tl.program_id(0) % sequences
    h = sequence // batch
    b = sequence % batch
    low = tl.load(lo + h * range_h + b * range_b)
    high = tl.load(hi + h * range_h + b * range_b)
    backwards = tl.cdiv(n, ROWS) - 1 - rank
    if LATE:
        tile = tl.where(low + high > 0, backwards, rank)
    else:
        tile = tl.where(low + high > 0, rank, backwards)
    end = n + 0
    if MASKED:
        end = tl.load(ends + b)
    no_self = tl.load(without_self + h)
    bias = tl.load(slope + h).to(tl.float32)
    h = tl.cast(h, tl.int64)
    b = tl.cast(b, tl.int64)
    return sequence, h, b, tile * ROWS, low, high, no_self, bias, end


@triton.jit
def token_tile(batch, n, ROWS: tl.constexpr):
    """Sequence, head, sample and first token of a program that has one tile of tokens."""
    tiles = tl.cdiv(n, ROWS)
    sequence = tl.program_id(0) // tiles
    h = tl.cast(sequence // batch, tl.int64)
    b = tl.cast(sequence % batch, tl.int64)
    return sequence, h, b, (tl.program_id(0) % tiles) * ROWS


@triton.jit
def spans(row, least, most, no_self, bias, end, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Tiles of the columns with ``least <= column - row <= most`` for the ROWS rows from one on.

    Where they start, their number, and the first and last (excluded) that need no mask: with a bias
    none; where column = row is closed the longer of the two stretches around those columns.
    """
    last_row = tl.minimum(row + ROWS, end) - 1
    some = row < end
    start = tl.maximum(row + least, 0)
    stop = tl.where(some, tl.minimum(last_row + most + 1, end), 0)
    inner_start = last_row + least
    inner_stop = tl.where(some & (bias == 0), tl.minimum(row + most + 1, end), 0)
    count = tl.maximum(stop - start + COLUMNS - 1, 0) // COLUMNS
    first = tl.minimum(tl.maximum(inner_start - start + COLUMNS - 1, 0) // COLUMNS, count)
    last = tl.minimum(tl.maximum(inner_stop - start, 0) // COLUMNS, count)
    last = tl.maximum(first, last)
    left = tl.minimum(tl.maximum(row - start, 0) // COLUMNS, last)
    left = tl.maximum(left, first)
    right = tl.maximum(tl.maximum(last_row + 1 - start + COLUMNS - 1, 0) // COLUMNS, first)
    right = tl.minimum(right, last)
    before = left - first > last - right
    stretch_first = tl.where(before, first, right)
    stretch_last = tl.where(before, left, last)
    first = tl.where(no_self != 0, stretch_first, first)
    last = tl.where(no_self != 0, stretch_last, last)
    return start, count, first, last


@triton.jit
def tile_start(start, t, first, last, EDGE: tl.constexpr, COLUMNS: tl.constexpr):
    """First column of tile t: of those without a mask, or at an EDGE of the others around them."""
    if EDGE:
        t = tl.where(t < first, t, t + last - first)
    return start + t * COLUMNS


@triton.jit
def open_keys(i, j, real, low, high, no_self, end, EDGE: tl.constexpr, REAL: tl.constexpr):
    """Whether queries i see keys j, [ROWS, COLUMNS] or [1, COLUMNS]."""
    ok = (j < end)[None, :]
    if EDGE:
        ok = ok & open_pairs(i[:, None], j[None, :], low, high, no_self)
    if REAL:
        ok = ok & (tl.load(real + j, mask=j < end, other=0) != 0)[None, :]
    return ok


@triton.jit
def open_pairs(i, j, low, high, no_self):
    """Whether the geometry opens a pair; i and j broadcast."""
    distance = i - j
    return (distance >= low) & (distance <= high) & ((distance != 0) | (no_self == 0))


@triton.jit
def mix(x):
    """MurmurHash3's 32-bit finaliser."""
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    x = (x ^ (x >> 13)) * 0xC2B2AE35
    return x ^ (x >> 16)


@triton.jit
def row_hash(seed, sequence, i):
    """`PairDropout.row_hashes` of the queries i of a sequence."""
    row = mix(seed.to(tl.uint32, bitcast=True) ^ mix(sequence.to(tl.uint32) * 0x9E3779B1 + 1))
    return mix(row + i.to(tl.uint32) * 0x85EBCA77)


@triton.jit
def keeps(rows, j, threshold):
    """`PairDropout.kept`: whether dropout keeps a pair; hashes of queries and keys j broadcast."""
    return mix(rows ^ (j.to(tl.uint32) * 0xC2B2AE3D)) < threshold.to(tl.uint32, bitcast=True)


@triton.jit
def exponential(x):
    """Compute exp(x), off by at most 3 + |x| units of 2^-23; below the smallest normal it is 0.

    The product x log2(e) is rounded. As a share of the largest weight, 1, it is 3 units at most.
    """
    if ASSEMBLER:
        # Triton's own keeps subnormal numbers, at the price of three more instructions.
        y = tl.inline_asm_elementwise(
            "{ .reg .f32 t; mul.f32 t, $1, 0f3FB8AA3B; ex2.approx.ftz.f32 $0, t; }",
            "=f,f",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        y = tl.exp(x)
    return y


@triton.jit
def sigmoid(x):
    """Compute 1 / (1 + exp(-x)), off by at most 5 + max(-x, 0) units of 2^-23.

    As `exponential` does: Triton's own has 11 instructions.
    """
    if ASSEMBLER:
        y = tl.inline_asm_elementwise(
            "{ .reg .f32 t; mul.f32 t, $1, 0fBFB8AA3B; ex2.approx.ftz.f32 t, t;"
            " add.f32 t, t, 0f3F800000; rcp.approx.ftz.f32 $0, t; }",
            "=f,f",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        y = tl.sigmoid(x)
    return y


@triton.jit
def pair_weights(
    r, highest, i, j, ok, bias, IDENTITY: tl.constexpr, SOME: tl.constexpr, EDGE: tl.constexpr
):
    """P, and sigmoid(r) for its derivative; 0 where SOME pairs are closed and this one is.

    ``bias`` acts at edges only: with one, there is nothing else.
    """
    if IDENTITY:
        if EDGE:
            r = r - bias * tl.abs(i - j).to(tl.float32)
        share = exponential(r - highest)
        p = share
    else:
        share = sigmoid(r)
        p = share
        if EDGE:
            p = share * exponential(-bias * tl.abs(i - j).to(tl.float32))
    if SOME:
        p = tl.where(ok, p, 0.0)
    return p, share


@triton.jit
def source_weights(
    s,
    highest,
    real,
    first,
    s_n,
    n,
    SOURCE: tl.constexpr,
    OFFSET: tl.constexpr,
    D_V: tl.constexpr,
    WIDTH: tl.constexpr,
    MASKED: tl.constexpr,
    ROWS: tl.constexpr,
):
    """E in float32: [ROWS, WIDTH] per feature from OFFSET on, else [ROWS, 1].

    It is 0 at padding and beyond N.
    """
    row = first + tl.arange(0, ROWS)
    present = row < n
    if MASKED:
        present = present & (tl.load(real + row, mask=present, other=0) != 0)
    if SOURCE == 2:
        columns = OFFSET + tl.arange(0, WIDTH)
        scores = load_rows(s + OFFSET, first, s_n, n, ROWS, WIDTH, D_V - OFFSET, True)
        scores = scores.to(tl.float32)
        top = tl.load(highest + columns, mask=columns < D_V, other=0.0)[None, :]
        here = present[:, None] & (columns < D_V)[None, :]
    else:
        at = s + tl.cast(first, tl.int64) * s_n + tl.arange(0, ROWS) * s_n
        scores = tl.load(at, mask=row < n, other=0.0).to(tl.float32)[:, None]
        top = tl.load(highest)
        here = present[:, None]
    return tl.where(here, exponential(scores - top), 0.0)


@triton.jit
def centre_of(centre, sequence, column, D_V: tl.constexpr):
    """What was taken from the columns of a sequence's values, [1, WIDTH]."""
    at = centre + tl.cast(sequence, tl.int64) * D_V + column
    return tl.load(at, mask=column < D_V, other=0.0)[None, :]


@triton.jit(do_not_specialize=NEVER_SPECIAL)
def weigh_kernel(
    v,
    s,
    highest,
    centre,
    real,
    w,
    e,
    v_h,
    v_b,
    v_n,
    s_h,
    s_b,
    s_n,
    real_b,
    batch,
    n,
    SOURCE: tl.constexpr,
    MASKED: tl.constexpr,
    CENTRED: tl.constexpr,
    D_V: tl.constexpr,
    PITCH: tl.constexpr,
    WIDTH_V: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Write w = v * E and e = E in the dtype of the products, rows PITCH apart, zeros behind D_V.

    One program per tile of tokens of a sequence. Where s has one column, e is float32 [H*B, N].
    CENTRED: the values are those less ``centre``.
    """
    sequence, h, b, first = token_tile(batch, n, ROWS)
    row = first + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH_V)
    if SOURCE == 2:
        highest += sequence * D_V
    else:
        highest += sequence
    weight = source_weights(
        s + h * s_h + b * s_b,
        highest,
        real + b * real_b,
        first,
        s_n,
        n,
        SOURCE,
        0,
        D_V,
        WIDTH_V,
        MASKED,
        ROWS,
    )
    values = load_rows(v + h * v_h + b * v_b, first, v_n, n, ROWS, WIDTH_V, D_V, True)
    values = values.to(tl.float32)
    if CENTRED:
        values = values - centre_of(centre, sequence, column, D_V)
    # Padded tokens may hold anything: 0 * NaN must not be one.
    weighed = tl.where(weight > 0, values * weight, 0.0)
    before = tl.cast(sequence, tl.int64) * n + first
    at = before * PITCH + (tl.arange(0, ROWS)[:, None] * PITCH + column[None, :])
    inside = (row < n)[:, None] & (column < PITCH)[None, :]
    tl.store(w + at, weighed.to(w.dtype.element_ty), mask=inside)
    if SOURCE == 2:
        tl.store(e + at, weight.to(e.dtype.element_ty), mask=inside)
    else:
        tl.store(e + before + tl.arange(0, ROWS)[:, None], weight, mask=(row < n)[:, None])
