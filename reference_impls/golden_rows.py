"""Golden cases of programs that hold values at padding, brought to zeros there, as ours are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Array = np.ndarray


def without_padded_rows(
    arrays: Mapping[str, Array], added: Array | float = 0.0
) -> dict[str, Array]:
    """The cotangent with zeros at padding, and the gradients of x that belong to it.

    Parameters
    ----------
    arrays : mapping
        Of a golden case, with ``mask`` [B, N].
    added : ndarray, shape of x, or 0
        What the cotangent's padded rows have added to the gradient of x.

    Returns
    -------
    dict
        What takes the place of the file's arrays; empty for a case without gradients.
    """
    if "grad_out" not in arrays:
        return {}
    gradients = {name: arrays[name] - added for name in ("grad_x", "grad_x_f64") if name in arrays}
    return {"grad_out": np.where(arrays["mask"][..., None], arrays["grad_out"], 0), **gradients}


def padded_rows(arrays: Mapping[str, Array], sample: int) -> tuple[int, Array, Array]:
    """Of one sample: its real tokens, the rows behind them, and the cotangent there [R, d_out]."""
    n = int(arrays["mask"][sample].sum())
    rows = np.arange(n, arrays["mask"].shape[1])
    return n, rows, arrays["grad_out"][sample, n:].astype(np.float64)
