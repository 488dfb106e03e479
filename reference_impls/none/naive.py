"""Float64 oracle of no context fusion, token by token: u_i = f(W x_i + b).

What is left of MTSA without token2token, source2token and masks (Table 3, "w/o proposed modules";
the values' layer of its appendix B). Tokens are rows here: W, b are map_w.T and map_b.
"""

from __future__ import annotations

import numpy as np

from reference_impls.naive import Array, Result, Rows, Weights, activate, positions


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
    *,
    activation: str = "relu",
) -> Result:
    """Compute the layer and its gradients for one sequence.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [R, d_out].

    Parameters
    ----------
    weights : mapping
        map_w [D, d_out], map_b [d_out].
    activation : {"relu", "elu", "selu"}
    """
    rows = positions(rows, len(x))
    W, b = weights["map_w"], weights["map_b"]
    out, grad_x = np.zeros((len(rows), len(b))), np.zeros(x.shape)
    grads = {"map_w": np.zeros(W.shape), "map_b": np.zeros(b.shape)}
    for m, i in enumerate(rows):
        out[m], slope = activate(x[i] @ W + b, activation)
        if grad_out is not None:
            g = grad_out[m] * slope
            grad_x[i] += W @ g
            grads["map_w"] += np.outer(x[i], g)
            grads["map_b"] += g
    return (out, None, None) if grad_out is None else (out, grad_x, grads)
