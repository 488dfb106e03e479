"""Float64 oracle of multi-dim source2token self-attention, which pools a sequence.

MTSA section 2.2 B (eq. 3 without the query, eq. 1 per feature); DiSAN slides, "source2token":
f(x_i) = W^T sigma(W^(1) x_i + b^(1)) + b and s = sum_i P_i * x_i. The sources write tokens as
columns and i for the token; here tokens are rows and j is the token, for it is attended to:

    W^(1), b^(1) = s1_w.T, s1_b;  W, b = s2_w, s2_b;  f(x_j) = s[j];  P_.j = p[j]
"""

from __future__ import annotations

import numpy as np

from reference_impls.naive import Array, Result, Rows, Weights, activate


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
    *,
    activation: str = "relu",
) -> Result:
    """Compute the sentence vector of one sequence and its gradients.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [D].

    Parameters
    ----------
    weights : mapping
        s1_w, s2_w [D, D], s1_b, s2_b [D].
    activation : {"relu", "elu", "selu"}
    """
    s1_w, s2_w = weights["s1_w"], weights["s2_w"]
    t, t_slope = activate(x @ s1_w + weights["s1_b"], activation)
    s = t @ s2_w + weights["s2_b"]  # eq. 3 without q, a vector per token
    e = np.exp(s - s.max(axis=0))
    p = e / e.sum(axis=0)  # eq. 1, over the tokens, for each feature
    out = (p * x).sum(axis=0)  # eq. 1, for each feature
    if grad_out is None:
        return out, None, None
    g_s = p * (x - out) * grad_out  # derivative of the softmax's expectation
    g_t = g_s @ s2_w.T * t_slope
    grads = {
        "s1_w": x.T @ g_t,
        "s1_b": g_t.sum(axis=0),
        "s2_w": t.T @ g_s,
        "s2_b": g_s.sum(axis=0),
    }
    return out, p * grad_out + g_t @ s1_w.T, grads
