"""From the golden folders mtsa and mtsa_paper to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Adapted = tuple[dict[str, Any], dict[str, np.ndarray], int]
RELEASED_OPTIONS = (
    "heads",
    "head_dim",
    "scale_t",
    "activation",
    "activation_on_values",
    "scores_from_input",
    "source2token_hidden_layer",
    "fusion_gate",
    "directional",
    "include_self",
    "accelerate",
    "input_hidden",
    "output_hidden",
)
RELEASED_WEIGHTS = (
    "in_w",
    "in_b",
    "v_w",
    "v_b",
    "q_w",
    "k_w",
    "s1_w",
    "s1_b",
    "s2_w",
    "s2_b",
    "g_w",
    "g_b",
    "o_w",
    "o_b",
)
PAPER_WEIGHTS = ("q_w", "k_w", "v_w", "s1_w", "s1_b", "s2_w", "s2_b", "o_w")


def released(config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Adapted:
    """Adapt a case of the folder ``mtsa``.

    Returns
    -------
    tuple
        Options of ``mtsa_released``, float64 weights by state_dict name, d_out.
    """
    options = {name: config[name] for name in RELEASED_OPTIONS}
    weights = {w: arrays[w].astype(np.float64) for w in RELEASED_WEIGHTS if w in arrays}
    return options, weights, config["output_hidden"] or config["heads"] * config["head_dim"]


def paper(config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Adapted:
    """Adapt a case of the folder ``mtsa_paper``: masks such as {"window": 1} become "window:1".

    Returns
    -------
    tuple
        Options of ``mtsa``, float64 weights by state_dict name, d_out.
    """
    masks = [
        m if isinstance(m, str) else ":".join(str(part) for pair in m.items() for part in pair)
        for m in config["masks"]
    ]
    options = {
        "heads": config["heads"],
        "masks": masks,
        "scale_t": config["scale_t"],
        "scale_s": config["scale_s"],
        "activation": config["activation"],
        "key_dim": arrays["q_w"].shape[-1],
        "score_dim": arrays["s1_w"].shape[-1],
    }
    weights = {w: arrays[w].astype(np.float64) for w in PAPER_WEIGHTS}
    return options, weights, arrays["o_w"].shape[1]
