"""From the golden folders mtsa and mtsa_paper to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reference_impls.mtsa import RELEASED

Adapted = tuple[dict[str, Any], dict[str, np.ndarray], int]


def _weights(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: arrays[name].astype(np.float64) for name in arrays if name[-2:] in ("_w", "_b")}


def released(config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Adapted:
    """Adapt a case of the folder ``mtsa``.

    Returns
    -------
    tuple
        Options of ``mtsa_released``, float64 weights by state_dict name, d_out.
    """
    options = {name: config[name] for name in ("heads", *RELEASED) if name in config}
    return (
        options,
        _weights(arrays),
        config["output_hidden"] or config["heads"] * config["head_dim"],
    )


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
    return options, _weights(arrays), arrays["o_w"].shape[1]
