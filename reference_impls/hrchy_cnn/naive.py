"""Float64 oracle of the hierarchical CNN (MTSA's baseline "Hrchy-CNN"), layer by layer.

"3-layer 300D stacked CNN with kernel size 5, gated linear units and residual connections" (MTSA,
section 4, after Gehring et al. 2017 and Dauphin et al. 2016). With y^0 = x, layer l is

    z_i = sum_t y^l_{i+t-front} w[t] + b              front = (k-1)//2               (1)
    z <- relu(z)                                      the released form only         (2)
    y^{l+1} = A * sigma(B),  [A, B] = z               gated linear unit              (3)
    y^{l+1} <- y^{l+1} + y^l                          from the second layer on       (4)

The released form, section "hrchy_cnn" of the goldens' README, puts a relu before the gate, zeroes x
at padding once and runs over all N positions, so that from the second layer on real tokens see the
padded tail. In the paper's form all outside the n real tokens is zero before every layer.
"""

from __future__ import annotations

import numpy as np

from reference_impls.naive import Array, Result, Rows, Weights, positions, sigmoid


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
    *,
    layers: int = 3,
    kernel_size: int = 5,
    form: str = "paper",
    padded: int | None = None,
) -> Result:
    """Compute the CNN and its gradients for one sequence.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [R, h].

    Parameters
    ----------
    weights : mapping
        l0_w [k, D, 2h], l1_w, l2_w, ... [k, h, 2h]; l0_b, l1_b, ... [2h].
    layers, kernel_size : int
    form : {"paper", "released"}
    padded : int or None
        Padded length N >= n, read by the released form only; None is n.
    """
    n, k = len(x), kernel_size
    rows = positions(rows, n)
    length = {"paper": n, "released": padded or n}[form]
    front = (k - 1) // 2
    y = np.zeros((length, x.shape[1]))
    y[:n] = x
    tape: list[tuple[Array, Array]] = []  # of each layer: its input with zeros around it, and z
    for layer in range(layers):
        w = weights[f"l{layer}_w"]
        around = np.zeros((length + k - 1, y.shape[1]))
        around[front : front + length] = y  # around[i + t] is y_{i+t-front}
        z = weights[f"l{layer}_b"] + sum(around[t : t + length] @ w[t] for t in range(k))  # (1)
        tape.append((around, z))
        z = np.maximum(z, 0.0) if form == "released" else z  # (2)
        h = z.shape[1] // 2
        gated = z[:, :h] * sigmoid(z[:, h:])  # (3)
        y = gated + y if layer > 0 else gated  # (4)
    out = y[rows]
    if grad_out is None:
        return out, None, None
    grads: dict[str, Array] = {}
    g_y = np.zeros(y.shape)
    np.add.at(g_y, rows, grad_out)
    for layer in reversed(range(layers)):
        w, (around, z) = weights[f"l{layer}_w"], tape[layer]
        h = z.shape[1] // 2
        slope = (z > 0) * 1.0 if form == "released" else np.ones(z.shape)
        z = np.maximum(z, 0.0) if form == "released" else z
        gate = sigmoid(z[:, h:])
        g_z = slope * np.concatenate([g_y * gate, g_y * z[:, :h] * gate * (1 - gate)], axis=1)
        g_around = np.zeros(around.shape)
        grads[f"l{layer}_w"] = np.zeros(w.shape)
        for t in range(k):
            grads[f"l{layer}_w"][t] = around[t : t + length].T @ g_z
            g_around[t : t + length] += g_z @ w[t].T
        grads[f"l{layer}_b"] = g_z.sum(axis=0)
        residual = g_y if layer > 0 else 0.0
        g_y = g_around[front : front + length] + residual
    return out, g_y[:n], grads
