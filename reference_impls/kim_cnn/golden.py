"""From the golden folder kim_cnn (released form) to options and weights."""

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
    sizes = tuple(config["kernel_sizes"])
    weights = {f"{a}{k}": arrays[f"{a}{k}"].astype(np.float64) for k in sizes for a in "wb"}
    return {"kernel_sizes": sizes}, weights, config["filters"] * len(sizes)
