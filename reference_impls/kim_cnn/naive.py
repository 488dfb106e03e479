"""Float64 oracle of Kim's CNN (Kim 2014, section 2), which pools a sequence.

For each kernel size k ("window of h words" there), a window of k tokens gives F features,

    c_i = f(w . x_{i:i+k-1} + b)                                                     (1)
    c^ = max_i c_i                                            max-over-time pooling  (2)

f = relu, as in the released program; here w is [k, D, F], so that w . x is sum_t x_{i+t} w[t]. The
c^ of all kernel sizes stand side by side (section "kim_cnn" of the goldens' README).

windows "real": i runs over the n-k+1 windows of real tokens. windows "padded": the released form,
i runs over the N-k+1 windows of the padded sequence, where x = 0 at positions n..N-1. A sequence
shorter than k gets zeros behind it up to k, hence one window (ours: the released program fails).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference_impls.naive import Array, Result, Rows, Weights


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
    *,
    kernel_sizes: Sequence[int] = (3, 4, 5),
    windows: str = "real",
    padded: int | None = None,
) -> Result:
    """Compute the sentence vector of one sequence and its gradients.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [F*len(kernel_sizes)].

    Parameters
    ----------
    weights : mapping
        For each kernel size k, w<k> [k, D, F] and b<k> [F].
    kernel_sizes : sequence of int
    windows : {"real", "padded"}
    padded : int or None
        Padded length N >= n, read with windows "padded" only; None is n.

    Notes
    -----
    Windows that share a maximum share its gradient.
    """
    n, d = x.shape
    length = {"real": n, "padded": padded or n}[windows]
    outs: list[Array] = []
    grad_x = np.zeros(x.shape)
    grads = {name: np.zeros(w.shape) for name, w in weights.items()}
    for k in kernel_sizes:
        w, b = weights[f"w{k}"], weights[f"b{k}"]
        xp = np.zeros((max(length, k), d))
        xp[:n] = x
        count = len(xp) - k + 1
        z = b + sum(xp[t : t + count] @ w[t] for t in range(k))  # [windows, F]
        c = np.maximum(z, 0.0)  # (1)
        start = sum(len(o) for o in outs)
        outs.append(c.max(axis=0))  # (2)
        if grad_out is None:
            continue
        best = (c == outs[-1]) * 1.0
        g_z = best / best.sum(axis=0) * (z > 0) * grad_out[start : start + len(b)]
        g_xp = np.zeros(xp.shape)
        for t in range(k):
            grads[f"w{k}"][t] = xp[t : t + count].T @ g_z
            g_xp[t : t + count] += g_z @ w[t].T
        grads[f"b{k}"] = g_z.sum(axis=0)
        grad_x += g_xp[:n]
    out = np.concatenate(outs)  # [F*kernels]
    return (out, None, None) if grad_out is None else (out, grad_x, grads)
