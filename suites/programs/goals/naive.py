"""Float64 oracles of the bare cores: those of the layers, given what their weights would make.

x holds queries, keys, values (and scores) side by side, each with its heads side by side. There
are no weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reference_impls.mtsa.naive import attend, positional_mask
from reference_impls.multi_head.naive import naive

Array = np.ndarray
Result = tuple[Array, Array | None, dict[str, Array] | None]


def mtsa(
    x: Array,
    weights: Mapping[str, Array],
    rows: Sequence[int] | Array | None = None,
    grad_out: Array | None = None,
    *,
    heads: int,
) -> Result:
    """MTSA eq. 10-12 of one sequence x [n, 4 * d_out] in float64, and the gradient of x.

    Parameters
    ----------
    rows, grad_out : ints [R] (None: all n), ndarray [R, d_out] or None

    Returns
    -------
    tuple
        Output [R, d_out], with `grad_out` the gradient [n, 4 * d_out], and of no weight.
    """
    n, width = len(x), x.shape[1] // 4
    rows = np.arange(n) if rows is None else np.asarray(rows, dtype=int)
    parts = x.reshape(n, 4, heads, -1)
    out, grad = np.zeros((len(rows), heads, width // heads)), np.zeros(parts.shape)
    cotangent = None if grad_out is None else grad_out.reshape(out.shape)
    root = np.sqrt(width // heads)  # by which the oracle of a head divides
    for c in range(heads):
        q, k, v, s = (parts[:, part, c] for part in range(4))
        mask = positional_mask("forward" if c < heads // 2 else "backward", rows, n)
        given = (q[rows] * root, k, v, s, mask, "log_sigmoid")
        (out[:, c],) = attend(*given)
        if cotangent is not None:
            g_q, *others = attend(*given, cotangent[:, c])
            np.add.at(grad[:, 0, c], rows, g_q * root)
            for part, g in enumerate(others, start=1):
                grad[:, part, c] = g
    flat = out.reshape(len(rows), width)
    return (flat, None, None) if grad_out is None else (flat, grad.reshape(x.shape), {})


def dot(
    x: Array,
    weights: Mapping[str, Array],
    rows: Sequence[int] | Array | None = None,
    grad_out: Array | None = None,
    *,
    heads: int,
    causal: bool = False,
) -> Result:
    """Multi-head attention whose weights take the parts of x [n, 3 * d_out]; as of `mtsa`."""
    whole = np.eye(x.shape[1]).reshape(x.shape[1], 3, heads, -1)
    taking = {
        name: whole[:, part].swapaxes(0, 1) for part, name in enumerate(("q_w", "k_w", "v_w"))
    }
    configuration: dict[str, Any] = {"positions": None, "output_layer": False, "causal": causal}
    out, grad, _ = naive(x, taking, rows, grad_out, heads=heads, **configuration)
    return out, grad, None if grad is None else {}
