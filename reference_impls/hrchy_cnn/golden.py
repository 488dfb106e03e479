"""From the golden folder hrchy_cnn (released form) to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reference_impls.golden_rows import Array, added_by_padded_rows, without_padded_rows
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

    def back(x: Array, n: int, rows: Array, g: Array) -> Array:
        _, grad_x, _ = naive(x[:n], weights, rows, g, **options, form="released", padded=len(x))
        assert grad_x is not None
        return grad_x

    added = added_by_padded_rows(arrays, back)
    return options, weights, config["hidden"], without_padded_rows(arrays, added)
