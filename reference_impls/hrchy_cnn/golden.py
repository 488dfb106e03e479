"""From the golden folder hrchy_cnn (released form) to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reference_impls.golden_rows import padded_rows, without_padded_rows
from reference_impls.hrchy_cnn.naive import naive


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int, dict[str, np.ndarray]]:
    """Adapt a case.

    The program's padded rows hold convolutions like all others, and the cotangent counts them.
    Ours are zero, so what they add to the gradient of x is taken out.
    """
    layers = config["layers"]
    weights = {
        f"l{i}_{a}": arrays[f"l{i}_{a}"].astype(np.float64) for i in range(layers) for a in "wb"
    }
    options = {"layers": layers, "kernel_size": config["kernel_size"]}
    added: np.ndarray = np.zeros_like(arrays["x"], dtype=np.float64)
    if "grad_out" in arrays:
        for sample in range(len(added)):
            n, rows, g = padded_rows(arrays, sample)
            x = arrays["x"][sample, :n].astype(np.float64)
            padded = arrays["mask"].shape[1]
            _, grad_x, _ = naive(x, weights, rows, g, **options, form="released", padded=padded)
            added[sample, :n] = grad_x
    return options, weights, config["hidden"], without_padded_rows(arrays, added)
