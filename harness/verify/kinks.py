"""Tell a wrong gradient from one taken at a kink.

At a pre-activation that rounding can push across zero the gradient of relu is either of two
values, and both are right. Seen from the oracle: a change of its inputs by a few units in the last
place of the tested dtype moves its own gradient by as much as the error that was found. Such a
point says nothing about an implementation and is drawn anew; a fault is an error that the oracle
does not make by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.verify.budget import error
from harness.verify.oracle import Naive, Weights, reference

UNIT = {"tf32": 2.0**-10, "f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
SHAKES = 8
DRAWS = 6
"""How often a point is drawn anew before its error counts all the same."""


def at_a_kink(
    naive: Naive,
    x: np.ndarray,
    lengths: Sequence[int],
    weights: Weights,
    cotangent: np.ndarray,
    options: Mapping[str, Any],
    errors: Mapping[str, float],
    dtype: str,
    rows: Sequence[int] | None = None,
    padding_matters: bool = False,
) -> bool:
    """Whether the oracle itself moves as far as every error that was found.

    Parameters
    ----------
    naive, x, lengths, weights, cotangent, options, rows, padding_matters
        As for `harness.verify.oracle.reference`.
    errors : mapping
        Name of a weight, or ``x``, whose gradient was over budget -> its error.
    dtype : str
        Sets the size of the shaking: 4 units in the last place, relative.
    """
    base = reference(naive, x, lengths, weights, cotangent, options, rows, padding_matters)
    moved = dict.fromkeys(errors, 0.0)
    for draw in range(SHAKES):
        rng = np.random.default_rng(draw)

        def shaken(a: np.ndarray, rng: np.random.Generator = rng) -> np.ndarray:
            return np.asarray(a * (1 + 4 * UNIT[dtype] * rng.uniform(-1, 1, a.shape)))

        other = reference(
            naive,
            shaken(x),
            lengths,
            {name: shaken(w) for name, w in weights.items()},
            cotangent,
            options,
            rows,
            padding_matters,
        )
        for name in errors:
            moved[name] = max(moved[name], error(other.gradients[name], base.gradients[name]))
    return all(moved[name] >= 0.5 * found for name, found in errors.items())
