"""From the golden folder source2token to options and weights."""

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
    weights = {name: arrays[name].astype(np.float64) for name in ("s1_w", "s1_b", "s2_w", "s2_b")}
    return {"activation": config["activation"]}, weights, arrays["s2_w"].shape[1]
