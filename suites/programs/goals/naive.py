"""Float64 oracles of the bare cores, head by head and query by query.

x holds queries, keys, values (and scores) side by side, each with its heads side by side; MTSA's
scores are divided by nothing. There are no weights.
"""

from __future__ import annotations

import numpy as np

from reference_impls.mtsa.naive import attend, positional_mask
from reference_impls.naive import Array, Oracle, Weights, softmax


def of_head(x: Array, heads: int, parts: int, c: int) -> list[Array]:
    """Queries, keys, values (and scores) of head c, [n, d] each."""
    width = x.shape[1] // parts
    d = width // heads
    return [x[:, part * width + c * d : part * width + (c + 1) * d] for part in range(parts)]


@Oracle
def mtsa(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    heads: int,
) -> Array:
    """MTSA eq. 10-12 of one sequence x [n, 4 * d_out]: [R, d_out]; see `reference_impls.naive`."""
    masks = ["forward"] * (heads // 2) + ["backward"] * (heads // 2)
    found = []
    for c in range(heads):
        q, k, v, s = of_head(x, heads, 4, c)
        # It divides scores by the root of d.
        undivided = q[rows] * np.sqrt(q.shape[1])
        found.append(
            attend(undivided, k, v, s, positional_mask(masks[c], rows, len(x)), "log_sigmoid")
        )
    return np.concatenate(found, axis=1)


@Oracle
def dot(x: Array, weights: Weights, rows: Array, *, heads: int, causal: bool = False) -> Array:
    """softmax(q k^T / sqrt(d)) v of one sequence x [n, 3 * d_out]: [R, d_out]; as `mtsa`."""
    found = []
    for c in range(heads):
        q, k, v = of_head(x, heads, 3, c)
        r = q[rows] @ k.T / np.sqrt(q.shape[1])  # [R, n]
        if causal:
            r = np.where(np.arange(len(x)) <= rows[:, None], r, -np.inf)
        found.append(softmax(r, axis=1) @ v)
    return np.concatenate(found, axis=1)
