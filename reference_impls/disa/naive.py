"""Float64 oracle of directional self-attention (DiSA), query by query.

DiSAN slides ("Directional Self-Attention"; MTSA eq. 6), which write tokens as columns, i for the
key and j for the query. Here tokens are rows, i is the query (it attends) and j the key:

    h = sigma(x W + b)                                               W, b: map_w, map_b
    f(h_j, h_i) = c tanh([W^(1) h_j + W^(2) h_i + b^(1)] / c) + M    dep_w.T, head_w.T, f_b
    s_i = sum_j P_j^i * h_j                                          p[j]; s_i = a[m], rows[m] = i
    F = sigmoid(W^(f1) s + W^(f2) h + b^(f))                         fa_w.T, fi_w.T
    u = F * h + (1 - F) * s

c is tanh_scale, and b^(f) the sum of the released fi_b, fa_b and o_b.
The masks' M^fw is 0 for key < query, M^bw for key > query, M^diag for key != query.
"""

from __future__ import annotations

import numpy as np

from reference_impls.naive import (
    Array,
    Oracle,
    Weights,
    activate,
    again,
    directions,
    side_by_side,
    sigmoid,
    softmax,
    stack,
)


def attend(h: Array, dep: Array, head: Array, allowed: Array, c: float) -> Array:
    """Return s_i [d] of one query, from W^(1) h_j [n, d] and W^(2) h_i + b^(1) [d].

    ``allowed`` [n] says where M is 0; without any such key s_i is 0.
    """
    score = np.where(allowed[:, None], c * np.tanh((dep + head) / c), -np.inf)  # f(h_j, h_i), eq. 6
    return (softmax(score, axis=0) * h).sum(axis=0)  # over the keys, for each feature


def fused(h: Array, a: Array, W: Weights) -> Array:
    """Return u [R, d] of the tokens h that ask and what they attended to, by the gate F."""
    F = sigmoid(a @ W["fa_w"] + h @ W["fi_w"] + W["fi_b"] + W["fa_b"] + W["o_b"])
    return F * h + (1 - F) * a


def block(x: Array, W: Weights, rows: Array, kind: str, f: str, c: float) -> Array:
    """Return u [R, d] of one direction."""
    i, j = rows[:, None], np.arange(len(x))
    allowed = {"forward": j < i, "backward": j > i, "diagonal": j != i}[kind]  # M, [R, n]
    h = activate(x @ W["map_w"] + W["map_b"], f)  # [n, d]
    dep, head = h @ W["dep_w"], h[rows] @ W["head_w"] + W["f_b"]
    a = [again(attend, h, dep, head[m], allowed[m], c) for m in range(len(rows))]
    return fused(h[rows], stack(a, h.shape[1]), W)


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    direction: str = "both",
    activation: str = "elu",
    tanh_scale: float = 5.0,
) -> Array:
    """Return DiSA [R, d_out] of one sequence; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        map_w [D, d], dep_w, head_w, fi_w, fa_w [d, d], map_b, f_b, fi_b, fa_b, o_b [d]; with
        direction "both" twice, with prefixes fw_ and bw_.
    direction, activation, tanh_scale
        Configuration; "both" is a forward and a backward block side by side.
    """

    def one(W: Weights, kind: str) -> Array:
        return block(x, W, rows, kind, activation, tanh_scale)

    return side_by_side(weights, directions(direction), one)
