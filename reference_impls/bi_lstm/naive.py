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

from reference_impls.naive import Array, Oracle, Weights, sigmoid, states

NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def step(read: Array, before: Array, w_hh: Array) -> Array:
    """Return [h ; c] of a token, from its part of the gates and [h ; c] before it."""
    h, c = before.reshape(2, -1)
    z = (read + w_hh @ h).reshape(4, -1)  # [4h] -> [4, h]
    i, f, g, o = sigmoid(z[0]), sigmoid(z[1]), np.tanh(z[2]), sigmoid(z[3])
    c = f * c + i * g
    return np.concatenate([o * np.tanh(c), c])


@Oracle
def naive(x: Array, weights: Weights, rows: Array) -> Array:
    """Return the Bi-LSTM [R, 2h], forward direction first; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        lstm.weight_ih_l0 [4h, D], lstm.weight_hh_l0 [4h, h], lstm.bias_ih_l0 and lstm.bias_hh_l0
        [4h], and the same with suffix _reverse.
    """
    found = []
    # Order -1: last token first.
    for suffix, order in (("", 1), ("_reverse", -1)):
        w_ih, w_hh, b_ih, b_hh = (weights[f"lstm.{name}_l0{suffix}"] for name in NAMES)
        read, width = x[::order] @ w_ih.T + b_ih + b_hh, w_hh.shape[1]
        found.append(states(step, read, np.zeros(2 * width), w_hh)[::order][rows, :width])
    return np.concatenate(found, axis=1)
