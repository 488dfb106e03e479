"""From the golden folder bi_lstm (TensorFlow's cell) to weights in torch's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def _torch_order(columns: np.ndarray) -> np.ndarray:
    """Reorder [..., 4h] from (input, candidate, forget, output) to torch's order of gates."""
    i, candidate, forget, o = np.split(columns, 4, axis=-1)  # [..., 4h] -> 4 times [..., h]
    return np.concatenate([i, forget, candidate, o], axis=-1)  # [..., 4h]


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int]:
    """Adapt a case; the constant ``forget_bias`` joins the bias of the forget gate."""
    hidden = int(config["hidden"])
    weights = {}
    for prefix, suffix in (("fw_", ""), ("bw_", "_reverse")):
        kernel = _torch_order(arrays[prefix + "kernel"].astype(np.float64)).T  # [4h, D + h]
        bias = _torch_order(arrays[prefix + "bias"].astype(np.float64))
        bias[hidden : 2 * hidden] += config["forget_bias"]
        weights[f"lstm.weight_ih_l0{suffix}"] = kernel[:, :-hidden].copy()
        weights[f"lstm.weight_hh_l0{suffix}"] = kernel[:, -hidden:].copy()
        weights[f"lstm.bias_ih_l0{suffix}"] = bias
        weights[f"lstm.bias_hh_l0{suffix}"] = np.zeros(4 * hidden)
    return {}, weights, 2 * hidden
