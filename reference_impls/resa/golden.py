"""From the golden folders resa and rss: options and weights; the selections travel in x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reference_impls.disa import NAMES
from reference_impls.golden_rows import Adapted, Arrays, Config, without_padded_rows

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


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case: x becomes [x ; dependents ; heads], which only the policies read."""
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
    # A padded row of the released program depends on x there and on nothing else: it adds nothing
    # to the gradients of real rows.
    replaced = without_padded_rows(arrays)
    for name in ("grad_x", "grad_x_f64"):
        if name in replaced:
            replaced[name] = np.pad(replaced[name], ((0, 0), (0, 0), (0, 2)))
    replaced["x"] = np.concatenate([x, selected.astype(x.dtype)], axis=-1)
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


def policy(
    config: Config, arrays: Arrays, build: Callable[..., nn.Module], dtype: torch.dtype
) -> dict[str, Tensor]:
    """What a layer's policy makes of the random numbers that the program drew (folder ``rss``).

    Returns
    -------
    dict
        Probabilities, actions, their log-probabilities and the share that is selected, by the
        names of the file's arrays.
    """
    weights = {name: torch.from_numpy(arrays[name]) for name in ("w1", "b1", "w2", "b2")}
    d_in, hidden = arrays["x"].shape[-1], len(arrays["b1"])
    layer: Any = build(
        d_in, 2, 0, {"rss_hidden": hidden, "rss_activation": config["activation"]}
    ).to(dtype)
    with torch.no_grad():
        for name, weight in weights.items():
            layer.get_parameter(f"head_{name}").copy_(weight)
    x, mask = torch.from_numpy(arrays["x"]).to(dtype), torch.from_numpy(arrays["mask"])
    x = x.masked_fill(~mask[..., None], 0)
    made = layer.decide("head", x, mask, torch.from_numpy(arrays["uniform"]).to(dtype))
    return {
        "output": made.probability,
        "actions": made.actions,
        "logp": made.log_probability,
        "percentage": made.share,
    }
