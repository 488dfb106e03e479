"""Float64 oracle of scalar additive attention, which pools a sequence.

MTSA section 2.1 (Bahdanau et al. 2015), the query removed from eq. 3 as section 2.2 B describes:

    f(x_i) = w^T sigma_a(W^(a) x_i + b^(a)) + b                                      (eq. 3)
    s = sum_i p(z = i | x) x_i, p = softmax over i of f(x_i)                         (eq. 1)

One score per token, not one per feature as in multi-dim source2token. The paper writes tokens as
columns and i for the token; here tokens are rows and j is the token, for it is attended to:

    W^(a), b^(a) = s1_w.T, s1_b;  w, b = s2_w, s2_b;  f(x_j) = score[j];  p(z = j) = p[j]

b shifts all scores alike, so nothing depends on it: its gradient is zero.
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
    score_dim: int | None = None,
    activation: str = "tanh",
) -> Result:
    """Compute the sentence vector of one sequence and its gradients.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [D].

    Parameters
    ----------
    weights : mapping
        s1_w [D, A], s1_b [A], s2_w [A, 1], s2_b [1].
    score_dim
        Not read: A, d_a of the paper, is a size of the weights.
    activation : {"tanh", "relu", "elu"}
        sigma_a.
    """
    s1_w, s2_w = weights["s1_w"], weights["s2_w"]
    t, t_slope = activate(x @ s1_w + weights["s1_b"], activation)  # [n, A]
    score = (t @ s2_w + weights["s2_b"])[:, 0]  # eq. 3 without q, a number per token
    e = np.exp(score - score.max())
    p = e / e.sum()
    out = p @ x  # eq. 1
    if grad_out is None:
        return out, None, None
    g_score = (p * ((x - out) @ grad_out))[:, None]  # derivative of the softmax's expectation
    g_t = g_score @ s2_w.T * t_slope
    grads = {
        "s1_w": x.T @ g_t,
        "s1_b": g_t.sum(axis=0),
        "s2_w": t.T @ g_score,
        "s2_b": g_score.sum(axis=0),
    }
    return out, np.outer(p, grad_out) + g_t @ s1_w.T, grads
