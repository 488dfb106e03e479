"""The error budget: how far from the float64 oracle an implementation may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.case import Case
from reference_impls.mechanism import Implementation

FACTOR = 2.0
"""An implementation may have twice the error of the plain yardstick in the same dtype."""

FLOOR = {
    **{"f64": 2.0**-44, "f32": 2.0**-19, "fast32": 2.0**-16},
    **{"tf32": 2.0**-9, "f16": 2.0**-9, "bf16": 2.0**-7},
}
"""Rounding floor, for where plain happens to round exactly: 2 units in the last place in half
precision, 16 in single, 256 in double (where a fault shows at 1e-3 all the same). A library's fast
float32 on a GPU has 128: three products in TF32 lose two digits of 24, exponentials that are
approximate as many, and its recurrent kernels pass both on from token to token."""

CAP = {"f64": 1e-10, "f32": 2e-5, "fast32": 1e-4, "tf32": 5e-2, "f16": 5e-2, "bf16": 1e-1}
"""Absolute cap, whatever plain does; float32 products in TF32 have the mantissa of float16."""

GRADIENT_FLOOR = 4.0
"""Factor on the floor for gradients: they are differences of products that nearly cancel (a row of
one key has a score gradient of exactly zero), which fused backward passes round by 32 units."""
GRADIENT_CAP = 10.0
"""Factor on the cap for gradients: with scores times 100 plain itself is at 3 times the cap of
values, because an error in a score is multiplied by the score's own size on the way back."""


def error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest deviation, relative to max(1, max|expected|); infinite if anything is not finite.

    Parameters
    ----------
    actual, expected : ndarray of float64
        Of one shape.

    Raises
    ------
    ValueError
        If the shapes differ.
    """
    if actual.shape != expected.shape:
        raise ValueError(f"shape {actual.shape} given, {expected.shape} expected")
    if actual.size == 0:
        return 0.0
    if not np.isfinite(actual).all():
        return math.inf
    scale = max(1.0, float(np.abs(expected).max()))
    return float(np.abs(actual - expected).max()) / scale


def arithmetic_of(case: Case, implementation: Implementation) -> str:
    """What the errors of a case are judged by: its dtype, unless less is asked for or declared."""
    if case.run_settings().tf32:
        return "tf32"
    return implementation.arithmetic(case.problem.dtype, case.problem.device)


def budget(plain_error: float | None, dtype: str, gradient: bool = False) -> float:
    """Allowed error: min(cap, 2 x plain's error + floor).

    Parameters
    ----------
    plain_error : float or None
        Error of the plain yardstick on the same tensor; None where there is none. Where it is
        not finite only the cap counts.
    dtype : {"f64", "f32", "fast32", "tf32", "f16", "bf16"}
    gradient : bool
        Whether the tensor is a gradient; floor and cap are wider then.
    """
    cap = CAP[dtype] * (GRADIENT_CAP if gradient else 1)
    floor = FLOOR[dtype] * (GRADIENT_FLOOR if gradient else 1)
    if plain_error is None or not math.isfinite(plain_error):
        return cap
    return min(cap, FACTOR * plain_error + floor)


@dataclass(frozen=True)
class Deviation:
    """One comparison of one tensor."""

    what: str  # tensor and shape, e.g. ``grad of x, N=65``
    error: float
    budget: float
    gradient: str = ""  # of what it is the gradient; empty for values

    @property
    def margin(self) -> float:
        """Budget over error: below 1 is wrong."""
        return math.inf if self.error == 0 else self.budget / self.error

    @property
    def ok(self) -> bool:
        """Within budget; not-a-number never is."""
        return self.error <= self.budget


def worst(deviations: Sequence[Deviation]) -> Deviation:
    """The deviation with the smallest margin."""
    return min(deviations, key=lambda d: d.margin)


def parted(found: Sequence[Deviation]) -> tuple[list[Deviation], list[Deviation]]:
    """Those of values, and those of gradients."""
    return [d for d in found if not d.gradient], [d for d in found if d.gradient]


def summary(found: Sequence[Deviation]) -> dict[str, Any]:
    """Fields of a row: the worst deviation of values and of gradients, and what is over budget."""
    row: dict[str, Any] = {}
    for what, some in zip(("value", "gradient"), parted(found), strict=True):
        if some:
            one = worst(some)
            row[f"{what}_error"] = one.error
            row[f"{what}_budget"] = one.budget
            row[f"{what}_margin"] = one.margin
            row[f"{what}_worst"] = one.what
            row[f"{what}_failures"] = [d.what for d in some if not d.ok][:10]
    return row
