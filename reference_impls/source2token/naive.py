"""Float64 oracle of multi-dim source2token self-attention, which pools a sequence.

MTSA section 2.2 B (eq. 3 without the query, eq. 1 per feature); DiSAN slides, "source2token":
f(x_i) = W^T sigma(W^(1) x_i + b^(1)) + b and s = sum_i P_i * x_i. The sources write tokens as
columns and i for the token; here tokens are rows and j is the token, for it is attended to:

    W^(1), b^(1) = s1_w.T, s1_b;  W, b = s2_w, s2_b;  f(x_j) = s[j];  P_.j = p[j]
"""

from __future__ import annotations

from reference_impls.naive import Array, Oracle, Weights, activate, softmax


@Oracle
def naive(x: Array, weights: Weights, rows: Array, *, activation: str = "relu") -> Array:
    """Return the sentence vector [D] of one sequence; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        s1_w, s2_w [D, D], s1_b, s2_b [D].
    activation : {"relu", "elu", "selu"}
    """
    hidden = activate(x @ weights["s1_w"] + weights["s1_b"], activation)
    s = hidden @ weights["s2_w"] + weights["s2_b"]  # eq. 3 without q, a vector per token
    return (softmax(s, axis=0) * x).sum(axis=0)  # eq. 1, over the tokens, for each feature
