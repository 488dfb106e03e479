"""Float64 oracle of multi-head self-attention: MTSA eq. 4-5 (Vaswani et al. 2017), head by head.

The paper writes tokens as columns: s = v softmax(q^T k / sqrt(d_q))^T. Here tokens are rows: i is
the query (row of r), j the key (column), and W_c^q, W_c^k, W_c^v, W^(o) are q_w[c].T, k_w[c].T,
v_w[c].T, o_w.T; the paper's d_q is the head's width d_h. Positions of the released program, and
its want of W^(o), are those of the section "multi_head" of the goldens' README; that with
q = relu(W^q x + b^q), and k and v alike, is of its section "multi_head_relu".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

Array = np.ndarray


def position_encoding(rows: Array, d: int, kind: str) -> Array:
    """Return pe [R, d]: sine at even features f, cosine of the same angle at f + 1.

    The angle is i / 10000^(f/d) in the paper (Vaswani et al., section 3.5, f = 2m) and
    i / 10000^(2f/d) in the released program, which doubles the feature's index once more.
    """
    f = np.arange(d)
    even = f - f % 2
    factor = {"paper": 1.0, "released": 2.0}[kind]
    angle = rows[:, None] / 10000.0 ** (factor * even / d)
    return np.where(f % 2 == 0, np.sin(angle), np.cos(angle))


def naive(
    x: Array,
    weights: Mapping[str, Array],
    rows: Sequence[int] | Array | None = None,
    grad_out: Array | None = None,
    *,
    heads: int,
    positions: str | None = "paper",
    output_layer: bool = True,
    head_dim: int | None = None,
    relu_projections: bool = False,
    causal: bool = False,
) -> tuple[Array, Array | None, dict[str, Array] | None]:
    """Compute multi-head attention and its gradients for one sequence.

    Parameters
    ----------
    x : ndarray [n, D] of float64
        Real tokens only.
    weights : mapping
        q_w, k_w, v_w [H, D, d_h], and o_w [H*d_h, d_out] with `output_layer`, and q_b, k_b, v_b
        [H, d_h] with `relu_projections`.
    rows : ints [R] or None
        Queries to compute; None is all n.
    grad_out : ndarray [R, d_out] or None
        Cotangent of the output.
    heads, positions, output_layer, relu_projections, causal
        Configuration; ``head_dim`` is told by the weights and not read. ``causal``: values j > i
        are set to minus infinity in the input of the softmax (Vaswani et al., section 3.2.3).

    Returns
    -------
    tuple
        Output [R, d_out]; with `grad_out` also the gradients of ``sum(out * grad_out)`` with
        respect to x [n, D] and to each weight, otherwise two times None.
    """
    n, d = x.shape
    rows = np.arange(n) if rows is None else np.asarray(rows, dtype=int)
    z = x if positions is None else x + position_encoding(np.arange(n), d, positions)
    d_h = weights["v_w"].shape[-1]
    o_w = weights["o_w"] if output_layer else np.eye(heads * d_h)
    out, grad_x = np.zeros((len(rows), o_w.shape[1])), np.zeros(x.shape)
    grads = {name: np.zeros(w.shape) for name, w in weights.items()}
    for c in range(heads):
        q_w, k_w, v_w = (weights[name][c] for name in ("q_w", "k_w", "v_w"))
        o_c = slice(c * d_h, (c + 1) * d_h)  # rows of W^(o) that meet head c in eq. 5
        q, k, v = z[rows] @ q_w, z @ k_w, z @ v_w  # eq. 5; [R, d_h], [n, d_h], [n, d_h]
        q_on, k_on, v_on = np.ones(q.shape), np.ones(k.shape), np.ones(v.shape)
        if relu_projections:
            q, k, v = q + weights["q_b"][c], k + weights["k_b"][c], v + weights["v_b"][c]
            q_on, k_on, v_on = (q > 0) * 1.0, (k > 0) * 1.0, (v > 0) * 1.0
            q, k, v = q * q_on, k * k_on, v * v_on
        r = q @ k.T / np.sqrt(d_h)  # eq. 4; [R, n]
        if causal:
            r = np.where(np.arange(n)[None, :] > rows[:, None], -np.inf, r)
        e = np.exp(r - r.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        h_c = p @ v  # eq. 4: H_c
        out += h_c @ o_w[o_c]  # eq. 5
        if grad_out is None:
            continue
        g_h = grad_out @ o_w[o_c].T
        g_p = g_h @ v.T
        g_r = p * (g_p - (p * g_p).sum(axis=1, keepdims=True)) / np.sqrt(d_h)
        g_q, g_k, g_v = g_r @ k * q_on, g_r.T @ q * k_on, p.T @ g_h * v_on
        if relu_projections:
            for name, g in (("q_b", g_q), ("k_b", g_k), ("v_b", g_v)):
                grads[name][c] = g.sum(axis=0)
        grads["q_w"][c], grads["k_w"][c], grads["v_w"][c] = z[rows].T @ g_q, z.T @ g_k, z.T @ g_v
        if output_layer:
            grads["o_w"][o_c] = h_c.T @ grad_out
        grad_x += g_k @ k_w.T + g_v @ v_w.T
        np.add.at(grad_x, rows, g_q @ q_w.T)
    return (out, None, None) if grad_out is None else (out, grad_x, grads)
