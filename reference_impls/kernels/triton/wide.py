"""Rows of features as tiles, whose sides are powers of two: loads, products and stores of them.

75 features would be 128. So they may be cut in two, WIDTH features and REST more (64 and 16; REST
is 0 where they are not), and "wide" functions take and give tuples of one tile or of two.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_rows(
    at, first, stride, count,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, READ: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Rows from ``first`` on [ROWS, WIDTH]: 0 behind column READ, at an edge behind ``count``."""
    row = tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    pointers = at + tl.cast(first, tl.int64) * stride + row[:, None] * stride + column[None, :]
    if EDGE:
        inside = (first + row < count)[:, None]
        if READ < WIDTH:
            inside = inside & (column < READ)[None, :]
        tile = tl.load(pointers, mask=inside, other=0.0)
    else:
        if READ < WIDTH:
            tile = tl.load(pointers, mask=(column < READ)[None, :], other=0.0)
        else:
            tile = tl.load(pointers)
    return tile


@triton.jit
def load_wide(
    at, first, stride, count, ROWS: tl.constexpr, WIDTH: tl.constexpr, REST: tl.constexpr,
    READ: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """`load_rows` of WIDTH features and of the REST."""
    tile = load_rows(at, first, stride, count, ROWS, WIDTH, READ, EDGE)
    more = tile
    if REST > 0:
        more = load_rows(at + WIDTH, first, stride, count, ROWS, REST, READ - WIDTH, EDGE)
    return (tile, more) if REST > 0 else (tile,)


@triton.jit
def store_rows(
    to, tile, first, stride, count, ROWS: tl.constexpr, WIDTH: tl.constexpr, KEPT: tl.constexpr
):  # fmt: skip
    """Write rows from ``first`` on, those before ``count``, and the columns before KEPT."""
    row = tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    pointers = to + tl.cast(first, tl.int64) * stride + row[:, None] * stride + column[None, :]
    inside = (first + row < count)[:, None] & (column < KEPT)[None, :]
    tl.store(pointers, tile.to(to.dtype.element_ty), mask=inside)


@triton.jit
def store_wide(
    to, tiles, first, stride, count, ROWS: tl.constexpr, WIDTH: tl.constexpr, REST: tl.constexpr,
    KEPT: tl.constexpr,
):  # fmt: skip
    """`store_rows` of WIDTH features and of the REST."""
    store_rows(to, tiles[0], first, stride, count, ROWS, WIDTH, KEPT)
    if REST > 0:
        store_rows(to + WIDTH, tiles[1], first, stride, count, ROWS, REST, KEPT - WIDTH)


@triton.jit
def zeros_wide(ROWS: tl.constexpr, WIDTH: tl.constexpr, REST: tl.constexpr):
    """Sums to begin with."""
    tile = tl.zeros([ROWS, WIDTH], tl.float32)
    return (tile, tl.zeros([ROWS, REST], tl.float32)) if REST > 0 else (tile,)


@triton.jit
def times_wide(tiles, factor, REST: tl.constexpr):
    """Each row times its factor [ROWS, 1]."""
    return (tiles[0] * factor, tiles[1] * factor) if REST > 0 else (tiles[0] * factor,)


@triton.jit
def cast_wide(tiles, DTYPE: tl.constexpr, REST: tl.constexpr):
    """The same in a dtype."""
    return (tiles[0].to(DTYPE), tiles[1].to(DTYPE)) if REST > 0 else (tiles[0].to(DTYPE),)


@triton.jit
def over_features(a, b, total, REST: tl.constexpr, PRECISION: tl.constexpr):
    """``total + a b^T`` [ROWS, COLUMNS] in the dtype of a, of wide [ROWS, d] and [COLUMNS, d]."""
    other = b[0].to(a[0].dtype)
    total = tl.dot(a[0], tl.trans(other), total, input_precision=PRECISION)
    if REST > 0:
        more = b[1].to(a[1].dtype)
        total = tl.dot(a[1], tl.trans(more), total, input_precision=PRECISION)
    return total


@triton.jit
def per_feature(p, values, sums, REST: tl.constexpr, PRECISION: tl.constexpr):
    """``sums + p values``, wide, in the dtype of p: [ROWS, COLUMNS] by wide [COLUMNS, d]."""
    tile = tl.dot(p, values[0].to(p.dtype), sums[0], input_precision=PRECISION)
    more = tile
    if REST > 0:
        more = tl.dot(p, values[1].to(p.dtype), sums[1], input_precision=PRECISION)
    return (tile, more) if REST > 0 else (tile,)
