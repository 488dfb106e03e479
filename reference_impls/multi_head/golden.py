"""From the golden folders of multi-head attention to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reference_impls.golden_rows import without_padded_rows

Adapted = tuple[dict[str, Any], dict[str, np.ndarray], int]
AdaptedArrays = tuple[dict[str, Any], dict[str, np.ndarray], int, dict[str, np.ndarray]]
PROJECTIONS = ("q_w", "k_w", "v_w")


def released(config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> AdaptedArrays:
    """Adapt a case of the folder ``multi_head``: one array qkv_w [3, H, D, d_h], no output layer.

    The program's padded rows hold the plain average of v over all N positions, and the cotangent
    counts them. Ours are zero, so what they add to the gradient of x is taken out.

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out, arrays without padded rows.
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
    added: np.ndarray | float = 0.0
    if "grad_out" in arrays:
        padded = ~arrays["mask"]  # [b, n]
        g = arrays["grad_out"].astype(np.float64)
        of_padded = np.where(padded[..., None], g, 0).sum(axis=1)  # [b, H*d_h]
        of_padded = of_padded.reshape(-1, heads, head_dim) / padded.shape[1]
        added = np.einsum("bhd,hfd->bf", of_padded, weights["v_w"])[:, None]  # [b, 1, D]
    return options, weights, heads * head_dim, without_padded_rows(arrays, added)


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


def relu(config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Adapted:
    """Adapt a case of the folder ``multi_head_relu``: heads are consecutive groups of columns.

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out.
    """
    heads, units = config["heads"], arrays["q_w"].shape[1]
    weights: dict[str, np.ndarray] = {}
    for name in PROJECTIONS:
        w = arrays[name].astype(np.float64).reshape(-1, heads, units // heads)  # [D, H, d_h]
        weights[name] = w.transpose(1, 0, 2).copy()
        bias = arrays[name[0] + "_b"].astype(np.float64)
        weights[name[0] + "_b"] = bias.reshape(heads, -1)
    options = {
        "heads": heads,
        "positions": None,
        "output_layer": False,
        "head_dim": units // heads,
        "relu_projections": True,
    }
    return options, weights, units
