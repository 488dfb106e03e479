"""Run a naive oracle over a padded batch: it sees one unpadded float64 sequence at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.verify.compare import OUTPUT, Computed

Weights = Mapping[str, np.ndarray]
Naive = Callable[..., tuple[np.ndarray, np.ndarray | None, dict[str, np.ndarray] | None]]


def reference(
    naive: Naive,
    x: np.ndarray,
    lengths: Sequence[int],
    weights: Weights,
    cotangent: np.ndarray,
    options: Mapping[str, Any],
    rows: Sequence[int] | None = None,
    padding_matters: bool = False,
) -> Computed:
    """Evaluate values and gradients sample by sample.

    Parameters
    ----------
    naive : callable
        ``naive(x, weights, rows, grad_out, **options)``, see a mechanism's ``naive.py``.
    x : ndarray [B, N, d_in] of float64
        What stands at padding is never read.
    lengths : sequence of int
        Real tokens of each sample; a sample of length 0 gives zeros.
    weights : mapping of float64 arrays
    cotangent : ndarray, shape of the output
        Must be zero at padding and outside `rows`.
    options : mapping
        The whole configuration.
    rows : sequence of int or None
        Query positions to evaluate; None is all.
    padding_matters : bool
        Whether the oracle is told the padded length N.

    Returns
    -------
    Computed
        The output [B, N, d_out] or [B, d_out], zero at padding and outside the selected rows; the
        gradients of ``x`` [B, N, d_in], zero at padding, and of every weight.
    """
    if padding_matters:
        options = {**options, "padded": x.shape[1]}
    output = np.zeros(cotangent.shape)
    grad_x = np.zeros(x.shape)
    grad_weights = {name: np.zeros(w.shape) for name, w in weights.items()}
    tokens = cotangent.ndim == 3
    for b, n in enumerate(lengths):
        if n == 0:
            continue
        picked = np.arange(n) if rows is None else np.array([r for r in rows if r < n], dtype=int)
        where: Any = (b, picked) if tokens else b
        out, gx, gw = naive(x[b, :n], weights, picked, cotangent[where], **options)
        assert gx is not None
        assert gw is not None
        output[where] = out
        grad_x[b, :n] = gx
        for name, g in gw.items():
            grad_weights[name] += g
    return Computed({OUTPUT: output}, {"x": grad_x, **grad_weights})
