"""From the golden folders multi_head and multi_head_paper to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Adapted = tuple[dict[str, Any], dict[str, np.ndarray], int]
PROJECTIONS = ("q_w", "k_w", "v_w")


def released(config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Adapted:
    """Adapt a case of the folder ``multi_head``: one array qkv_w [3, H, D, d_h], no output layer.

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out.
    """
    heads, head_dim = config["heads"], config["head_dim"]
    options = {
        "heads": heads,
        "positions": "released",
        "output_layer": False,
        "head_dim": head_dim,
    }
    weights = {
        name: w.astype(np.float64) for name, w in zip(PROJECTIONS, arrays["qkv_w"], strict=True)
    }
    return options, weights, heads * head_dim


def paper(config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Adapted:
    """Adapt a case of the folder ``multi_head_paper``.

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out.
    """
    options = {
        "heads": config["heads"],
        "positions": "paper" if config["positions"] else None,
        "output_layer": True,
        "head_dim": arrays["v_w"].shape[-1],
    }
    weights = {name: arrays[name].astype(np.float64) for name in (*PROJECTIONS, "o_w")}
    return options, weights, arrays["o_w"].shape[1]
