"""Float64 oracle of a bi-directional GRU (Chung et al. 2014; MTSA's baseline), token by token.

    [r, u] = sigma([x_t ; h_{t-1}] W + b)                       gates_w, gates_b     (1)
    c = tanh([x_t ; r * h_{t-1}] W_c + b_c)                     cand_w, cand_b       (2a)
    c = tanh(x_t W_x + b_c + r * (h_{t-1} W_h + b_h))           cand_hb is b_h       (2b)
    h_t = u * h_{t-1} + (1 - u) * c                             h_0 = 0              (3)

r is the reset gate, u the update gate; W_x and W_h are the rows of W_c for x and for the state.
This is the cell of the section "bi_lstm, bi_gru" of the goldens' README. (2a), reset "before", is
TensorFlow's order and that of the released program; (2b), reset "after" the product, is torch's.
The backward direction reads the sequence from its last token.
"""

from __future__ import annotations

import numpy as np

from reference_impls.naive import Array, Result, Rows, Weights, positions, side_by_side, sigmoid


def one_direction(
    x: Array, W: Weights, after: bool, g_out: Array | None
) -> tuple[Array, Array, dict[str, Array]]:
    """Return h [n, h], and the gradients for x and the weights if g_out [n, h] is given."""
    n, d = x.shape
    width = W["cand_w"].shape[1]
    w_x, w_h = W["cand_w"][:d], W["cand_w"][d:]
    b_h = W["cand_hb"] if after else np.zeros(width)
    h = np.zeros((n + 1, width))  # h[t + 1] is h_t; h[0] = 0
    r, u, c = (np.zeros((n, width)) for _ in range(3))
    for t in range(n):
        gates = sigmoid(np.concatenate([x[t], h[t]]) @ W["gates_w"] + W["gates_b"])
        r[t], u[t] = gates[:width], gates[width:]  # (1)
        state = r[t] * (h[t] @ w_h + b_h) if after else (r[t] * h[t]) @ w_h
        c[t] = np.tanh(x[t] @ w_x + W["cand_b"] + state)  # (2b), (2a)
        h[t + 1] = u[t] * h[t] + (1 - u[t]) * c[t]  # (3)
    # Gradients for the arguments of sigma and of tanh, and for h W_h + b_h of (2b).
    g_gates, g_c, g_state = np.zeros((n, 2 * width)), np.zeros((n, width)), np.zeros((n, width))
    g_h = np.zeros(width)  # what step t + 1 sends back to step t
    for t in reversed(range(n)) if g_out is not None else ():
        assert g_out is not None
        g_h = g_h + g_out[t]
        g_u = g_h * (h[t] - c[t])
        g_c[t] = g_h * (1 - u[t]) * (1 - c[t] ** 2)
        if after:
            g_r = g_c[t] * (h[t] @ w_h + b_h)
            g_state[t] = g_c[t] * r[t]
            through_c = g_state[t] @ w_h.T
        else:
            g_r = (g_c[t] @ w_h.T) * h[t]
            through_c = (g_c[t] @ w_h.T) * r[t]
        g_gates[t] = np.concatenate([g_r * r[t] * (1 - r[t]), g_u * u[t] * (1 - u[t])])
        g_h = g_h * u[t] + through_c + g_gates[t] @ W["gates_w"][d:].T
    g_w_h = h[:-1].T @ g_state if after else (r * h[:-1]).T @ g_c
    grads = {
        "gates_w": np.concatenate([x, h[:-1]], axis=1).T @ g_gates,
        "gates_b": g_gates.sum(axis=0),
        "cand_w": np.concatenate([x.T @ g_c, g_w_h]),
        "cand_b": g_c.sum(axis=0),
    }
    if after:
        grads["cand_hb"] = g_state.sum(axis=0)
    return h[1:], g_gates @ W["gates_w"][:d].T + g_c @ w_x.T, grads


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
    *,
    reset: str = "before",
) -> Result:
    """Compute the Bi-GRU, forward direction first, and its gradients for one sequence.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [R, 2h].

    Parameters
    ----------
    weights : mapping
        gates_w [D+h, 2h], gates_b [2h], cand_w [D+h, h], cand_b [h] and, with reset "after",
        cand_hb [h]; twice, with prefixes fw_ and bw_.
    reset : {"before", "after"}
        Whether the reset gate acts before or after the product with the state.
    """
    n, after = len(x), {"before": False, "after": True}[reset]
    rows = positions(rows, n)

    def one(W: Weights, step: int, g: Array | None) -> tuple[Array, Array, dict[str, Array]]:
        g_h = None
        if g is not None:
            g_h = np.zeros((n, g.shape[1]))
            np.add.at(g_h, rows, g)
            g_h = g_h[::step]
        h, g_x, g_w = one_direction(x[::step], W, after, g_h)
        return h[::step][rows], g_x[::step], g_w

    # Step -1: last token first.
    return side_by_side(x, weights, grad_out, {"fw_": 1, "bw_": -1}, one)
