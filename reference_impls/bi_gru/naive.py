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

from collections.abc import Mapping, Sequence

import numpy as np

from reference_impls.naive import sigmoid

Array = np.ndarray


def one_direction(
    x: Array, W: Mapping[str, Array], after: bool, g_out: Array | None
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
    weights: Mapping[str, Array],
    rows: Sequence[int] | Array | None = None,
    grad_out: Array | None = None,
    *,
    reset: str = "before",
) -> tuple[Array, Array | None, dict[str, Array] | None]:
    """Compute the Bi-GRU and its gradients for one sequence.

    Parameters
    ----------
    x : ndarray [n, D] of float64
        Real tokens only.
    weights : mapping
        gates_w [D+h, 2h], gates_b [2h], cand_w [D+h, h], cand_b [h] and, with reset "after",
        cand_hb [h]; twice, with prefixes fw_ and bw_.
    rows : ints [R] or None
        Positions to return (all are computed); None is all n.
    grad_out : ndarray [R, 2h] or None
        Cotangent of the output.
    reset : {"before", "after"}
        Whether the reset gate acts before or after the product with the state.

    Returns
    -------
    tuple
        Output [R, 2h], forward direction first; with `grad_out` also the gradients of
        ``sum(out * grad_out)`` with respect to x [n, D] and to each weight, otherwise two times
        None.
    """
    n, after = len(x), {"before": False, "after": True}[reset]
    rows = np.arange(n) if rows is None else np.asarray(rows, dtype=int)
    outs: list[Array] = []
    grad_x, grads = np.zeros(x.shape), {}
    for prefix, step in (("fw_", 1), ("bw_", -1)):  # step -1: last token first
        W = {name[3:]: w for name, w in weights.items() if name.startswith(prefix)}
        width, start = len(W["cand_b"]), sum(h.shape[1] for h in outs)
        g_h = None
        if grad_out is not None:
            g_h = np.zeros((n, width))
            np.add.at(g_h, rows, grad_out[:, start : start + width])
            g_h = g_h[::step]
        h, g_x, g_w = one_direction(x[::step], W, after, g_h)
        outs.append(h[::step][rows])
        grad_x += g_x[::step]
        grads.update({prefix + name: g for name, g in g_w.items()})
    out = np.concatenate(outs, axis=1)  # [R, 2h]
    return (out, None, None) if grad_out is None else (out, grad_x, grads)
