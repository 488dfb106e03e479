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

from reference_impls.naive import Array, Oracle, Weights, activate


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    kernel_sizes: Sequence[int] = (3, 4, 5),
    windows: str = "real",
    padded: int | None = None,
) -> Array:
    """Return the sentence vector [F*len(kernel_sizes)] of one sequence.

    See `reference_impls.naive`. Windows that share a maximum share its gradient.

    Parameters
    ----------
    weights : mapping
        For each kernel size k, w<k> [k, D, F] and b<k> [F].
    kernel_sizes : sequence of int
    windows : {"real", "padded"}
    padded : int or None
        Padded length N >= n, read with windows "padded" only; None is n.
    """
    n, d = x.shape
    length = {"real": n, "padded": padded or n}[windows]
    found = []
    for k in kernel_sizes:
        xp = np.concatenate([x, np.zeros((max(length, k) - n, d))])
        count = len(xp) - k + 1
        z = sum(xp[t : t + count] @ weights[f"w{k}"][t] for t in range(k)) + weights[f"b{k}"]
        found.append(activate(z, "relu").max(axis=0))  # (1), (2)
    return np.concatenate(found)
