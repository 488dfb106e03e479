"""From the golden folder bi_gru (TensorFlow's cell) to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int]:
    """Adapt a case: the names are ours already.

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out.
    """
    names = [f"{d}_{n}" for d in ("fw", "bw") for n in ("gates_w", "gates_b", "cand_w", "cand_b")]
    weights = {name: arrays[name].astype(np.float64) for name in names}
    return {"reset": "before"}, weights, 2 * weights["fw_cand_b"].shape[0]
