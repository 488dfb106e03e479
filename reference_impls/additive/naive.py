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

from reference_impls.naive import Array, Oracle, Weights, activate, softmax


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    score_dim: int | None = None,
    activation: str = "tanh",
) -> Array:
    """Return the sentence vector [D] of one sequence; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        s1_w [D, A], s1_b [A], s2_w [A, 1], s2_b [1].
    score_dim
        Not read: A, d_a of the paper, is a size of the weights.
    activation : {"tanh", "relu", "elu"}
        sigma_a.
    """
    hidden = activate(x @ weights["s1_w"] + weights["s1_b"], activation)  # [n, A]
    score = hidden @ weights["s2_w"] + weights["s2_b"]  # eq. 3 without q, a number per token
    return softmax(score[:, 0], axis=0) @ x  # eq. 1
