"""From the golden folder multi_cnn to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reference_impls.golden_rows import without_padded_rows


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int, dict[str, np.ndarray]]:
    """Adapt a case.

    The program's padded rows hold convolutions like all others, and the cotangent counts them.
    Ours are zero, so what they add to the gradient of x is taken out.
    """
    sizes = tuple(config["kernel_sizes"])
    weights = {f"{a}{k}": arrays[f"{a}{k}"].astype(np.float64) for k in sizes for a in "wb"}
    d_out, added = config["filters"] * len(sizes), np.zeros(arrays["x"].shape)
    if "grad_out" not in arrays:
        return {"kernel_sizes": sizes}, weights, d_out, {}
    padded = ~arrays["mask"][..., None]  # [b, n, 1]
    relu_open = arrays["output_f64"] > 0
    g = np.where(padded & relu_open, arrays["grad_out"].astype(np.float64), 0)  # [b, n, F*sizes]
    n = padded.shape[1]
    for k, of_k in zip(sizes, np.split(g, len(sizes), axis=2), strict=True):
        for t in range(k):
            back = of_k @ weights[f"w{k}"][t].T  # from row i to x at i + shift
            shift = t - (k - 1) // 2
            first, last = max(0, shift), min(n, n + shift)
            added[:, first:last] += back[:, first - shift : last - shift]
    return {"kernel_sizes": sizes}, weights, d_out, without_padded_rows(arrays, added)
