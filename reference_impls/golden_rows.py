"""Golden cases of programs that hold values at padding, brought to zeros there, as ours are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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


def added_by_padded_rows(
    arrays: Mapping[str, Array], gradient: Callable[[Array, int, Array, Array], Array]
) -> Array:
    """What the padded rows of the cotangent have added to the gradient of x, in its shape.

    ``gradient(x, n, rows, g)`` tells it of one sample: x [N, D] of n real tokens, the rows behind
    them and their cotangent; it returns that of x or of its first rows.
    """
    added: Array = np.zeros(arrays["x"].shape)
    if "grad_out" in arrays:
        for sample, real in enumerate(arrays["mask"]):
            n = int(real.sum())
            g = arrays["grad_out"][sample, n:].astype(np.float64)
            x = arrays["x"][sample].astype(np.float64)
            back = gradient(x, n, np.arange(n, len(real)), g)
            added[sample, : len(back)] = back
    return added
