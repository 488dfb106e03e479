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

from reference_impls.naive import Array, Oracle, Weights, activate, sigmoid


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    layers: int = 3,
    kernel_size: int = 5,
    form: str = "paper",
    padded: int | None = None,
) -> Array:
    """Return the CNN [R, h] of one sequence; see `reference_impls.naive`.

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
    length = {"paper": n, "released": padded or n}[form]
    front = (k - 1) // 2
    y = np.concatenate([x, np.zeros((length - n, x.shape[1]))])
    for layer in range(layers):
        zeros = np.zeros((k - 1, y.shape[1]))
        around = np.concatenate([zeros[:front], y, zeros[front:]])  # around[i + t] is y_{i+t-front}
        w, b = weights[f"l{layer}_w"], weights[f"l{layer}_b"]
        z = sum(around[t : t + length] @ w[t] for t in range(k)) + b  # (1)
        z = activate(z, "relu") if form == "released" else z  # (2)
        h = z.shape[1] // 2
        gated = z[:, :h] * sigmoid(z[:, h:])  # (3)
        y = gated + y if layer > 0 else gated  # (4)
    return y[rows]
