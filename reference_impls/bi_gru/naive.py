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

from reference_impls.naive import Array, Oracle, Weights, side_by_side, sigmoid, states


def step(read: Array, h: Array, w_gates: Array, w_h: Array, *b_h: Array) -> Array:
    """Return h_t, from x_t's part of both products and h_{t-1}; without b_h by (2a)."""
    width = h.shape[0]
    gates = sigmoid(read[: 2 * width] + h @ w_gates)
    r, u = gates[:width], gates[width:]  # (1)
    state = r * (h @ w_h + b_h[0]) if b_h else (r * h) @ w_h
    return u * h + (1 - u) * np.tanh(read[2 * width :] + state)  # (2), (3)


@Oracle
def naive(x: Array, weights: Weights, rows: Array, *, reset: str = "before") -> Array:
    """Return the Bi-GRU [R, 2h], forward direction first; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        gates_w [D+h, 2h], gates_b [2h], cand_w [D+h, h], cand_b [h] and, with reset "after",
        cand_hb [h]; twice, with prefixes fw_ and bw_.
    reset : {"before", "after"}
        Whether the reset gate acts before or after the product with the state.
    """
    names = {"before": (), "after": ("cand_hb",)}[reset]
    d = x.shape[1]

    def one(W: Weights, order: int) -> Array:
        by_x = np.concatenate([W["gates_w"][:d], W["cand_w"][:d]], axis=1)
        read = x[::order] @ by_x + np.concatenate([W["gates_b"], W["cand_b"]])
        by_h = W["gates_w"][d:], W["cand_w"][d:], *(W[name] for name in names)
        return states(step, read, np.zeros(len(W["cand_b"])), *by_h)[::order][rows]

    # Order -1: last token first.
    return side_by_side(weights, {"fw_": 1, "bw_": -1}, one)
