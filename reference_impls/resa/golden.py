"""From the golden folder resa to options and weights; the selections travel in x."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reference_impls.disa import NAMES

UNSELECTED = {
    "all_valid_tokens": "all_real",
    "selected_dependents": "dependents",
    "all_other_valid_tokens": "others",
}
STEEPNESS = 10.0
"""Logit of a selected token; that of another is minus this."""


def _policy(d_in: int, feature: int) -> dict[str, np.ndarray]:
    """RSS weights that select where one feature of x is 1, and not where it is 0."""
    w1 = np.zeros((3 * d_in, 1))
    w1[feature] = 1
    b2 = np.array([-STEEPNESS])
    return {"w1": w1, "b1": np.zeros(1), "w2": np.array([[2 * STEEPNESS]]), "b2": b2}


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int, dict[str, np.ndarray]]:
    """Adapt a case: x becomes [x ; dependents ; heads], which only the policies read.

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out, arrays that replace the file's.
    """
    direction = config["direction"] or "diagonal"
    prefixes = ("fw_", "bw_") if direction == "both" else ("fw_",)
    weights, d_out = {}, 0
    for prefix in prefixes:
        ours = prefix if direction == "both" else ""
        for name in NAMES:
            weights[ours + name] = arrays[prefix + name].astype(np.float64)
        weights[f"{ours}map_w"] = np.pad(weights[f"{ours}map_w"], ((0, 2), (0, 0)))
        d_out += weights[f"{ours}map_w"].shape[1]
    selected = np.stack([arrays["dep_sel"], arrays["head_sel"]], axis=-1)  # [B, N, 2]
    d_in = arrays["x"].shape[-1] + 2
    for prefix, feature in (("dep", d_in - 2), ("head", d_in - 1)):
        for name, value in _policy(d_in, feature).items():
            weights[f"{prefix}_{name}"] = value
    x = arrays["x"]
    replaced = {"x": np.concatenate([x, selected.astype(x.dtype)], axis=-1)}
    for name in ("grad_x", "grad_x_f64"):
        if name in arrays:
            replaced[name] = np.pad(arrays[name], ((0, 0), (0, 0), (0, 2)))
    # A padded row of the released program depends on x there and on nothing else, so the
    # gradients of real rows are those of a cotangent that is zero at padding.
    replaced["grad_out"] = np.where(arrays["mask"][..., None], arrays["grad_out"], 0)
    options = {
        "direction": direction,
        "activation": config["activation"],
        "tanh_scale": config["tanh_scale"],
        "unselected": UNSELECTED[config["pooling_of_unselected"]],
        "selection": "threshold",
        "rss_hidden": 1,
        "rss_activation": "elu",
    }
    return options, weights, d_out, replaced
