"""Golden cases of programs that hold values at padding, brought to zeros there, as ours are.

Records have the adapters and are read without numpy: here too arrays only meet their own methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

Config: TypeAlias = Mapping[str, Any]
Arrays: TypeAlias = Mapping[str, Any]
Adapted: TypeAlias = tuple[Any, ...]
"""See `reference_impls.mechanism.Mechanism.goldens`."""


def float64(arrays: Arrays, names: Iterable[str]) -> dict[str, Any]:
    """Weights of these names."""
    return {name: arrays[name].astype("float64") for name in names}


def without_padded_rows(arrays: Arrays, added: Any = 0.0) -> dict[str, Any]:
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
    return {"grad_out": arrays["grad_out"] * arrays["mask"][..., None], **gradients}


def added_by_padded_rows(arrays: Arrays, gradient: Callable[[Any, int, Any, Any], Any]) -> Any:
    """What the padded rows of the cotangent have added to the gradient of x, in its shape.

    ``gradient(x, n, rows, g)`` tells it of one sample: x [N, D] of n real tokens, the rows behind
    them and their cotangent; it returns that of x or of its first rows.
    """
    added = 0.0 * arrays["x"].astype("float64")
    if "grad_out" in arrays:
        for sample, real in enumerate(arrays["mask"]):
            (rows,) = (~real).nonzero()
            g = arrays["grad_out"][sample, rows].astype("float64")
            x = arrays["x"][sample].astype("float64")
            back = gradient(x, int(real.sum()), rows, g)
            added[sample, : len(back)] = back
    return added
