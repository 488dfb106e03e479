"""Float64 oracles of the bare cores, head by head and query by query.

x holds queries, keys, values (and scores) side by side, each with its heads side by side; scores
are divided by nothing. There are no weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reference_impls.mtsa.naive import positional_mask, scale

Array = np.ndarray
Result = tuple[Array, Array | None, dict[str, Array] | None]


def mtsa(
    x: Array,
    weights: Mapping[str, Array],
    rows: Sequence[int] | Array | None = None,
    grad_out: Array | None = None,
    *,
    heads: int,
    masks: Sequence[str] | None = None,
    scale_t: str = "log_sigmoid",
) -> Result:
    """MTSA eq. 10-12 of one sequence x [n, 4 * d_out], and the gradient of x.

    Parameters
    ----------
    rows, grad_out : ints [R] (None: all n), ndarray [R, d_out] or None

    Returns
    -------
    tuple
        Output [R, d_out], with `grad_out` the gradient [n, 4 * d_out], and of no weight.
    """
    n, width = len(x), x.shape[1] // 4
    d = width // heads
    rows = np.arange(n) if rows is None else np.asarray(rows, dtype=int)
    masks = masks or ["forward"] * (heads // 2) + ["backward"] * (heads // 2)
    out, grad = np.zeros((len(rows), width)), np.zeros(x.shape)
    for c in range(heads):
        here = [slice(part * width + c * d, part * width + (c + 1) * d) for part in range(4)]
        q, k, v, s = (x[:, part] for part in here)
        g_q, g_k, g_v, g_s = (grad[:, part] for part in here)
        M = positional_mask(masks[c], rows, n)
        for m, i in enumerate(rows):
            if np.isneginf(M[m]).all():
                continue
            r, slope = scale(k @ q[i], scale_t)
            score = r[:, None] + s + M[m][:, None]  # [n, d]
            e = np.exp(score - score.max(axis=0))
            p = e / e.sum(axis=0)
            a = (p * v).sum(axis=0)
            out[m, here[0]] = a
            if grad_out is None:
                continue
            g = grad_out[m, here[0]]
            g_v += p * g
            g_score = p * (v - a) * g
            g_s += g_score
            g_r = g_score.sum(axis=1) * slope
            g_q[i] += g_r @ k
            g_k += np.outer(g_r, q[i])
    return (out, None, None) if grad_out is None else (out, grad, {})


def dot(
    x: Array,
    weights: Mapping[str, Array],
    rows: Sequence[int] | Array | None = None,
    grad_out: Array | None = None,
    *,
    heads: int,
    causal: bool = False,
) -> Result:
    """softmax(q k^T) v of one sequence x [n, 3 * d_out]; parameters and result as of `mtsa`."""
    n, width = len(x), x.shape[1] // 3
    d = width // heads
    rows = np.arange(n) if rows is None else np.asarray(rows, dtype=int)
    out, grad = np.zeros((len(rows), width)), np.zeros(x.shape)
    for c in range(heads):
        here = [slice(part * width + c * d, part * width + (c + 1) * d) for part in range(3)]
        q, k, v = (x[:, part] for part in here)
        g_q, g_k, g_v = (grad[:, part] for part in here)
        r = q[rows] @ k.T  # [R, n]
        if causal:
            r = np.where(np.arange(n) <= rows[:, None], r, -np.inf)
        e = np.exp(r - r.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        out[:, here[0]] = p @ v
        if grad_out is None:
            continue
        g = grad_out[:, here[0]]
        g_p = g @ v.T
        g_r = p * (g_p - (p * g_p).sum(axis=1, keepdims=True))
        np.add.at(g_q, rows, g_r @ k)
        g_k += g_r.T @ q[rows]
        g_v += p.T @ g
    return (out, None, None) if grad_out is None else (out, grad, {})
