"""From the golden folder biblosa (both directions, released form) to options and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reference_impls.biblosa.naive import fuse, rule
from reference_impls.golden_rows import Array, added_by_padded_rows, without_padded_rows
from reference_impls.naive import Oracle


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
    how = options["activation"], options["tanh_scale"]
    r = options["block_len"] or rule(arrays["x"].shape[1])

    def back(x: Array, n: int, rows: Array, g: Array) -> Array:
        both = Oracle(lambda x, W, rows: fuse(x, n, r, W, rows, "both", *how))
        grad_x = both(x, weights, rows, g)[1]
        assert grad_x is not None
        return grad_x

    added = added_by_padded_rows(arrays, back)
    return options, weights, arrays["output_f64"].shape[2], without_padded_rows(arrays, added)
