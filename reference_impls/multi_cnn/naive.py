"""Float64 oracle of the multi-window CNN (Kim 2014; MTSA's baseline "Multi-CNN"), tap by tap.

For each kernel size k, with front = (k-1)//2 zeros before the sequence and the rest of k-1 behind,

    y_i = relu(sum_t x_{i+t-front} w[t] + b)        section "multi_cnn" of the goldens' README

and the y of all kernel sizes stand side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference_impls.naive import Array, Oracle, Weights, activate


@Oracle
def naive(
    x: Array, weights: Weights, rows: Array, *, kernel_sizes: Sequence[int] = (3, 4, 5)
) -> Array:
    """Return the CNN [R, F*len(kernel_sizes)] of one sequence; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        For each kernel size k, w<k> [k, D, F] and b<k> [F].
    kernel_sizes : sequence of int
    """
    found = []
    for k in kernel_sizes:
        front = (k - 1) // 2
        zeros = np.zeros((k - 1, x.shape[1]))
        padded = np.concatenate([zeros[:front], x, zeros[front:]])  # padded[i + t] is x_{i+t-front}
        z = sum(padded[rows + t] @ weights[f"w{k}"][t] for t in range(k)) + weights[f"b{k}"]
        found.append(activate(z, "relu"))
    return np.concatenate(found, axis=1)
