"""From the golden folder disa (one direction) to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

NAMES = (
    "map_w", "map_b", "dep_w", "head_w", "f_b", "fi_w", "fi_b", "fa_w", "fa_b", "o_b",
)  # fmt: skip


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int]:
    """Adapt a case; the goldens' direction null is our "diagonal".

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out.
    """
    options = {
        "direction": config["direction"] or "diagonal",
        "activation": config["activation"],
        "tanh_scale": config["tanh_scale"],
    }
    weights = {name: arrays[name].astype(np.float64) for name in NAMES}
    return options, weights, arrays["map_w"].shape[1]
