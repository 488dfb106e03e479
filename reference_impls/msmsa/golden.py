"""From the golden folder msmsa to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

OPTIONS = ("heads", "scales", "width_reading", "scaling", "layer", "ln_epsilon")


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int]:
    """Adapt a case.

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out.
    """
    options = {name: config[name] for name in OPTIONS}
    options["head_dim"] = arrays["v_w"].shape[-1]
    names = ("q_w", "k_w", "v_w", "o_w") + (("ln_scale", "ln_offset") if config["layer"] else ())
    weights = {name: arrays[name].astype(np.float64) for name in names}
    return options, weights, arrays["o_w"].shape[1]
