"""From the golden folder disan to options and weights."""

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
    weights = {}
    for name, array in arrays.items():
        if name.startswith(("fw_", "bw_")):
            weights[f"fusion.{name}"] = array.astype(np.float64)
        elif name.startswith("s2t_"):
            weights[f"pooling.{name.removeprefix('s2t_')}"] = array.astype(np.float64)
    options = {"activation": config["activation"], "tanh_scale": config["tanh_scale"]}
    return options, weights, 2 * arrays["fw_map_w"].shape[1]
