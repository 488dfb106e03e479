"""From the golden folder biblosa (both directions, released form) to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reference_impls.biblosa.naive import one_direction, rule
from reference_impls.golden_rows import padded_rows, without_padded_rows

DIRECTIONS = {"fw_": "forward", "bw_": "backward"}


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int, dict[str, np.ndarray]]:
    """Adapt a case; a block length that came from the rule is left to our rule.

    The program's padded rows hold values (of their own x and of their block's summary), and the
    cotangent counts them. Ours are zero, so what they add to the gradient of x is taken out.
    """
    options = {
        "block_len": config["block_len"] if config["block_len_rule"] == "given" else None,
        "activation": config["activation"],
        "tanh_scale": config["tanh_scale"],
    }
    weights = {
        name: array.astype(np.float64)
        for name, array in arrays.items()
        if name.startswith(("fw_", "bw_"))
    }
    added: np.ndarray = np.zeros_like(arrays["x"], dtype=np.float64)
    if "grad_out" in arrays:
        length, d = arrays["x"].shape[1], len(weights["fw_map_b"])
        r = options["block_len"] or rule(length)
        for sample in range(len(added)):
            n, rows, g = padded_rows(arrays, sample)
            x = arrays["x"][sample].astype(np.float64)
            for part, (prefix, kind) in enumerate(DIRECTIONS.items()):
                W = {name[3:]: w for name, w in weights.items() if name.startswith(prefix)}
                own = g[:, part * d : (part + 1) * d]
                added[sample] += one_direction(
                    x, n, r, W, rows, own, kind, options["activation"], options["tanh_scale"]
                )[1]
    return options, weights, arrays["output_f64"].shape[2], without_padded_rows(arrays, added)
