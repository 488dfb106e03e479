"""From the golden folder mtsa_nmt to options, weights and an x that carries q, k and v."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

OPTIONS = (
    "heads",
    "scale_t",
    "scale_s",
    "source2token_scaled",
    "source2token_from_keys",
    "bi_direction",
)


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int, dict[str, np.ndarray]]:
    """Adapt a case: the program is given q (scaled already), k and v of every head.

    They stand side by side in x [b, n, 3*H*d_h], the weights pick each one's columns, and the heads
    [b, H, n, d_h] of the output become columns [b, n, H*d_h].

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out, and the arrays ``x`` and ``output*``.
    """
    heads, d_h = arrays["q"].shape[1], arrays["q"].shape[3]
    columns = np.eye(3 * heads * d_h).reshape(3 * heads * d_h, 3, heads, d_h)
    picks = np.moveaxis(columns, 0, 2)  # [3, H, 3*H*d_h, d_h]
    weights = {"q_w": picks[0] * math.sqrt(d_h), "k_w": picks[1], "v_w": picks[2]}
    weights |= {
        name: arrays[name].astype(np.float64)
        for name in ("s1_w", "s1_b", "s2_w", "s2_b")
        if name in arrays
    }
    hidden = config["hidden_activation"]
    options = {name: config[name] for name in OPTIONS}
    options |= {"hidden_activation": None if hidden == "none" else hidden, "output_layer": False}
    replaced = {name: _tokens(arrays[name]) for name in ("output", "output_f64")}
    replaced["x"] = np.concatenate([_tokens(arrays[name]) for name in ("q", "k", "v")], axis=-1)
    return options, weights, heads * d_h, replaced


def _tokens(values: np.ndarray) -> np.ndarray:
    """[b, H, n, d_h] -> [b, n, H*d_h]."""
    return np.moveaxis(values, 1, 2).reshape(*values.shape[::2], -1)
