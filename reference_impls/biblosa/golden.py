"""From the golden folder biblosa (both directions, released form) to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int]:
    """Adapt a case; a block length that came from the rule is left to our rule.

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out.
    """
    options = {
        "block_len": config["block_len"] if config["block_len_rule"] == "given" else None,
        "activation": config["activation"],
        "tanh_scale": config["tanh_scale"],
    }
    weights = {
        name: array.astype(np.float64)
        for name, array in arrays.items()
        if name.startswith(("fw_", "bw_"))
    }
    return options, weights, arrays["output"].shape[2]
