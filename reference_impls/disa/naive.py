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
    Result,
    Rows,
    Weights,
    activate,
    directions,
    positions,
    side_by_side,
    sigmoid,
)


def block(
    x: Array, W: Weights, rows: Array, g_u: Array | None, kind: str, f: str, c: float
) -> tuple[Array, Array, dict[str, Array]]:
    """Return u [R, d], and the gradients with respect to x and W if the cotangent g_u is given."""
    i, j = rows[:, None], np.arange(len(x))
    allowed = {"forward": j < i, "backward": j > i, "diagonal": j != i}[kind]  # M, [R, n]
    h, h_slope = activate(x @ W["map_w"] + W["map_b"], f)  # [n, d]
    dep, head = h @ W["dep_w"], h[rows] @ W["head_w"]  # W^(1) h_j [n, d], W^(2) h_i [R, d]
    gate_h = h[rows] @ W["fi_w"] + W["fi_b"] + W["fa_b"] + W["o_b"]  # W^(f2) h_i + b^(f)
    g_h, g_dep = np.zeros(h.shape), np.zeros(h.shape)
    a, u, g_head, g_gate = (np.zeros(head.shape) for _ in range(4))
    for m, row in enumerate(rows):
        tanh = np.tanh((dep + head[m] + W["f_b"]) / c)
        p = np.zeros(h.shape)  # no allowed key: s_i = 0, and nothing depends on the scores
        if allowed[m].any():
            score = np.where(allowed[m][:, None], c * tanh, -np.inf)  # f(h_j, h_i), eq. 6
            e = np.exp(score - score.max(axis=0))
            p = e / e.sum(axis=0)  # over the keys, for each feature
        a[m] = (p * h).sum(axis=0)  # s_i
        F = sigmoid(a[m] @ W["fa_w"] + gate_h[m])
        u[m] = F * h[row] + (1 - F) * a[m]
        if g_u is None:
            continue
        g_gate[m] = g_u[m] * (h[row] - a[m]) * F * (1 - F)
        g_a = g_u[m] * (1 - F) + W["fa_w"] @ g_gate[m]
        g_h[row] += g_u[m] * F
        g_h += p * g_a
        g_score = p * (h - a[m]) * g_a * (1 - tanh**2)  # c of eq. 6 and its 1/c cancel
        g_dep += g_score
        g_head[m] = g_score.sum(axis=0)
    back = g_dep, g_head, g_gate
    return u, *block_gradients(x, W, rows, (h, h_slope), a, g_h, back)


def block_gradients(
    x: Array,
    W: Weights,
    rows: Array,
    mapped: tuple[Array, Array],
    a: Array,
    g_h: Array,
    back: tuple[Array, Array, Array],
) -> tuple[Array, dict[str, Array]]:
    """Return the gradients for x and W of a block.

    Parameters
    ----------
    mapped : tuple
        h [n, d] and the derivative of its activation.
    a : ndarray [R, d]
        What each query attended to.
    g_h : ndarray [n, d]
        The gradient for h but for what comes through `back`.
    back : tuple
        Gradients for W^(1) h [n, d], for W^(2) h [R, d] and for the argument of F [R, d].
    """
    (h, h_slope), (g_dep, g_head, g_gate) = mapped, back
    g_h += g_dep @ W["dep_w"].T
    np.add.at(g_h, rows, g_head @ W["head_w"].T + g_gate @ W["fi_w"].T)
    g_map = g_h * h_slope
    gate_b = g_gate.sum(axis=0)
    grads = {
        "map_w": x.T @ g_map,
        "map_b": g_map.sum(axis=0),
        "dep_w": h.T @ g_dep,
        "head_w": h[rows].T @ g_head,
        "f_b": g_dep.sum(axis=0),
        "fi_w": h[rows].T @ g_gate,
        "fa_w": a.T @ g_gate,
        "fi_b": gate_b,
        "fa_b": gate_b.copy(),
        "o_b": gate_b.copy(),
    }
    return g_map @ W["map_w"].T, grads


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
    *,
    direction: str = "both",
    activation: str = "elu",
    tanh_scale: float = 5.0,
) -> Result:
    """Compute DiSA and its gradients for one sequence.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [R, d_out].

    Parameters
    ----------
    weights : mapping
        map_w [D, d], dep_w, head_w, fi_w, fa_w [d, d], map_b, f_b, fi_b, fa_b, o_b [d]; with
        direction "both" twice, with prefixes fw_ and bw_.
    direction, activation, tanh_scale
        Configuration; "both" is a forward and a backward block side by side.
    """
    rows = positions(rows, len(x))

    def one(W: Weights, kind: str, g_u: Array | None) -> tuple[Array, Array, dict[str, Array]]:
        return block(x, W, rows, g_u, kind, activation, tanh_scale)

    return side_by_side(x, weights, grad_out, directions(direction), one)
