"""From the golden folder mtsa_stack to options and weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from reference_impls.golden_rows import without_padded_rows


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int, dict[str, np.ndarray]]:
    """Adapt a case: the arrays ``l0_*``, ``l1_*``, ... are the weights.

    The program's padded rows hold values that depend on no real token, so the gradient of the real
    tokens is the same with a cotangent that leaves those rows out.

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out, and the array ``grad_out``.
    """
    options = {name: config[name] for name in ("heads", "layers", "scale_t", "activation")}
    options["ln_epsilon"] = config["layer_norm_epsilon"]
    weights = {k: a.astype(np.float64) for k, a in arrays.items() if re.match(r"l\d+_", k)}
    return options, weights, arrays["x"].shape[-1], without_padded_rows(arrays)
