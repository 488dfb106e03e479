"""Float64 oracle of a bi-directional LSTM (Graves et al. 2013; MTSA's baseline), token by token.

    [i, f, g, o] = x_t W_ih^T + b_ih + h_{t-1} W_hh^T + b_hh    four groups of h columns
    c_t = sigma(f) c_{t-1} + sigma(i) tanh(g)                   h_0 = c_0 = 0
    h_t = sigma(o) tanh(c_t)

This is the cell of the section "bi_lstm" of the goldens' README with torch's names and order of
gates (input, forget, candidate, output); the released constant that is added to the forget gate is
part of the bias here. The backward direction reads the sequence from its last token.
"""

from __future__ import annotations

import numpy as np

from reference_impls.naive import Array, Result, Rows, Weights, positions, sigmoid

NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def one_direction(
    x: Array, w_ih: Array, w_hh: Array, bias: Array, g_out: Array | None
) -> tuple[Array, Array, tuple[Array, ...]]:
    """Return h [n, h], and the gradients for x, W_ih, W_hh and a bias if g_out is given."""
    n, width = len(x), w_hh.shape[1]
    h, cell = np.zeros((n + 1, width)), np.zeros((n + 1, width))  # h[t + 1] is h_t; h[0] = 0
    gates = np.zeros((n, 4, width))  # after their nonlinearities
    for t in range(n):
        z = (w_ih @ x[t] + w_hh @ h[t] + bias).reshape(4, width)  # [4h] -> [4, h]
        i, f, g, o = sigmoid(z[0]), sigmoid(z[1]), np.tanh(z[2]), sigmoid(z[3])
        gates[t] = i, f, g, o
        cell[t + 1] = f * cell[t] + i * g
        h[t + 1] = o * np.tanh(cell[t + 1])
    g_z = np.zeros((n, 4 * width))
    g_h, g_cell = np.zeros(width), np.zeros(width)  # what step t + 1 sends back to step t
    for t in reversed(range(n)) if g_out is not None else ():
        assert g_out is not None
        i, f, g, o = gates[t]
        tanh = np.tanh(cell[t + 1])
        g_h = g_h + g_out[t]
        g_cell = g_cell + g_h * o * (1 - tanh**2)
        g_z[t] = np.concatenate(
            [
                g_cell * g * i * (1 - i),
                g_cell * cell[t] * f * (1 - f),
                g_cell * i * (1 - g**2),
                g_h * tanh * o * (1 - o),
            ]
        )  # [4h]
        g_cell = g_cell * f
        g_h = g_z[t] @ w_hh
    return h[1:], g_z @ w_ih, (g_z.T @ x, g_z.T @ h[:-1], g_z.sum(axis=0))


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
) -> Result:
    """Compute the Bi-LSTM, forward direction first, and its gradients for one sequence.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [R, 2h].

    Parameters
    ----------
    weights : mapping
        lstm.weight_ih_l0 [4h, D], lstm.weight_hh_l0 [4h, h], lstm.bias_ih_l0 and lstm.bias_hh_l0
        [4h], and the same with suffix _reverse.
    """
    n = len(x)
    rows = positions(rows, n)
    outs: list[Array] = []
    grads: dict[str, Array] = {}
    grad_x = np.zeros(x.shape)
    # Step -1: last token first.
    for start, (suffix, step) in enumerate((("", 1), ("_reverse", -1))):
        names = [f"lstm.{name}_l0{suffix}" for name in NAMES]
        w_ih, w_hh, b_ih, b_hh = (weights[name] for name in names)
        width = w_hh.shape[1]
        g_h = None
        if grad_out is not None:
            g_h = np.zeros((n, width))
            np.add.at(g_h, rows, grad_out[:, start * width : (start + 1) * width])
            g_h = g_h[::step]
        h, g_x, (g_ih, g_hh, g_b) = one_direction(x[::step], w_ih, w_hh, b_ih + b_hh, g_h)
        outs.append(h[::step][rows])
        grad_x += g_x[::step]
        grads.update(zip(names, (g_ih, g_hh, g_b, g_b.copy()), strict=True))
    out = np.concatenate(outs, axis=1)  # [R, 2h]
    return (out, None, None) if grad_out is None else (out, grad_x, grads)
