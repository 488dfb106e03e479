"""How `chunked` cuts the pairs of a batch: plain arithmetic, for it and for its formula."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

CHUNK_BYTES = 2**20
"""Of one tensor over the pairs of a chunk on a CPU: it stays in the second-level cache."""
WHOLE_BYTES = 2**28
"""Elsewhere, to fill a GPU, and while compiling: a compiler joins the passes by itself, and every
chunk is code of its own."""


class Chunk(NamedTuple):
    """Samples, their queries, and the keys that these may attend to."""

    samples: slice
    queries: slice
    keys: slice


def chunks(
    shape: Sequence[int], lo: int | None, hi: int | None, item_bytes: int, budget: int
) -> Iterator[Chunk]:
    """Cut [B, N, d] so that a tensor over a chunk's pairs and features holds `budget` bytes.

    Whole samples where they fit, several of them if they are short; else some queries of one. A
    query i may attend to keys j with ``lo <= i - j <= hi``; None is no bound.
    """
    batch, n, _ = shape
    rows = _rows(shape, item_bytes, budget)
    samples = max(1, min(batch, rows // n))
    for b in range(0, batch, samples):
        for queries, keys in _cuts(n, rows, lo, hi):
            yield Chunk(slice(b, b + samples), queries, keys)


def pairs(
    shape: Sequence[int], lo: int | None, hi: int | None, item_bytes: int, budget: int
) -> int:
    """Pairs of query and key in the chunks of [B, N, d]."""
    batch, n, _ = shape
    cuts = _cuts(n, _rows(shape, item_bytes, budget), lo, hi)
    return batch * sum((q.stop - q.start) * (k.stop - k.start) for q, k in cuts)


def _rows(shape: Sequence[int], item_bytes: int, budget: int) -> int:
    """Queries in a chunk, each with all N keys."""
    _, n, d = shape
    return max(1, budget // (n * d * item_bytes))


def _cuts(n: int, rows: int, lo: int | None, hi: int | None) -> Iterator[tuple[slice, slice]]:
    """Queries and keys of the chunks of every sample."""
    queries = min(n, rows)
    for start in range(0, n, queries):
        stop = min(n, start + queries)
        first = 0 if hi is None else max(0, start - hi)
        last = n if lo is None else min(n, stop - lo)
        if first < last:
            yield slice(start, stop), slice(first, last)
