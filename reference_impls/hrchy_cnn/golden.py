"""From the golden folder hrchy_cnn (released form) to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int]:
    """Adapt a case.

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out.
    """
    layers = config["layers"]
    weights = {
        f"l{i}_{a}": arrays[f"l{i}_{a}"].astype(np.float64) for i in range(layers) for a in "wb"
    }
    options = {"layers": layers, "kernel_size": config["kernel_size"]}
    return options, weights, config["hidden"]
