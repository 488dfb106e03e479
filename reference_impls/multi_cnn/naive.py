"""Float64 oracle of the multi-window CNN (Kim 2014; MTSA's baseline "Multi-CNN"), tap by tap.

For each kernel size k, with front = (k-1)//2 zeros before the sequence and the rest of k-1 behind,

    y_i = relu(sum_t x_{i+t-front} w[t] + b)        section "multi_cnn" of the goldens' README

and the y of all kernel sizes stand side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference_impls.naive import Array, Result, Rows, Weights, positions


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
    *,
    kernel_sizes: Sequence[int] = (3, 4, 5),
) -> Result:
    """Compute the CNN and its gradients for one sequence.

    x, rows and grad_out are as `reference_impls.naive` says; the output is
    [R, F*len(kernel_sizes)].

    Parameters
    ----------
    weights : mapping
        For each kernel size k, w<k> [k, D, F] and b<k> [F].
    kernel_sizes : sequence of int
    """
    n, d = x.shape
    rows = positions(rows, n)
    outs: list[Array] = []
    grad_x = np.zeros(x.shape)
    grads = {name: np.zeros(w.shape) for name, w in weights.items()}
    for k in kernel_sizes:
        w, b = weights[f"w{k}"], weights[f"b{k}"]
        front = (k - 1) // 2
        padded = np.zeros((n + k - 1, d))
        padded[front : front + n] = x  # padded[i + t] is x_{i+t-front}
        z = b + sum(padded[rows + t] @ w[t] for t in range(k))  # [R, F]
        start = sum(y.shape[1] for y in outs)
        outs.append(np.maximum(z, 0.0))
        if grad_out is None:
            continue
        g_z = grad_out[:, start : start + len(b)] * (z > 0)
        g_padded = np.zeros(padded.shape)
        for t in range(k):
            grads[f"w{k}"][t] = padded[rows + t].T @ g_z
            np.add.at(g_padded, rows + t, g_z @ w[t].T)
        grads[f"b{k}"] = g_z.sum(axis=0)
        grad_x += g_padded[front : front + n]
    out = np.concatenate(outs, axis=1)  # [R, F*kernels]
    return (out, None, None) if grad_out is None else (out, grad_x, grads)
