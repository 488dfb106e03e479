"""Module : plain : oracle, the one comparison behind every verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from harness.verify.budget import Deviation, budget, error

OUTPUT = "output"
"""Name of what a module returns."""
Allow = Callable[[float | None, str, bool], float]
"""Allowed error, from that of the plain yardstick, the dtype, and whether it is a gradient's."""


@dataclass(frozen=True)
class Computed:
    """What a module or an oracle says of a batch, as float64 arrays.

    Attributes
    ----------
    values : mapping of ndarray
        By name; most often `OUTPUT` alone.
    gradients : mapping of ndarray
        Of ``sum(output * cotangent)`` with respect to ``x`` and to each weight, by its name.
    """

    values: Mapping[str, np.ndarray]
    gradients: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def output(self) -> np.ndarray:
        """The value named `OUTPUT`."""
        return self.values[OUTPUT]


def numpy64(tensor: torch.Tensor) -> np.ndarray:
    """Copy a tensor to a float64 array."""
    return tensor.detach().to(device="cpu", dtype=torch.float64).numpy().copy()


def computed(
    module: torch.nn.Module,
    x: torch.Tensor,
    mask: torch.Tensor | None,
    cotangent: torch.Tensor,
    training: bool = True,
    **keywords: Any,
) -> Computed:
    """What a module says of one batch; without `training` its gradients are left out.

    Raises
    ------
    ValueError
        If the output has another shape than the cotangent.
    """
    x = x.detach().clone().requires_grad_(training)
    module.zero_grad(set_to_none=True)
    with torch.set_grad_enabled(training):
        output = module(x, mask, **keywords)
    if tuple(output.shape) != tuple(cotangent.shape):
        raise ValueError(f"output is {list(output.shape)}, expected {list(cotangent.shape)}")
    values = {OUTPUT: numpy64(output)}
    if not training:
        return Computed(values)
    output.backward(cotangent.to(output.dtype))
    of = {"x": x, **{n: p for n, p in module.named_parameters() if p.requires_grad}}
    gradients = {
        name: np.zeros(t.shape) if t.grad is None else numpy64(t.grad) for name, t in of.items()
    }
    return Computed(values, gradients)


def compare(
    got: Computed,
    expected: Computed,
    plain: Computed | None,
    dtype: str,
    label: str = "",
    allow: Allow = budget,
) -> list[Deviation]:
    """Deviation of each tensor of `got` from what is expected, with the error that it may have.

    Parameters
    ----------
    got : Computed
        Of the module that is judged.
    expected : Computed
        In float64.
    plain : Computed or None
        Of the plain yardstick on the same batch; what it lacks has no yardstick.
    dtype : str
        Of the module's arithmetic.
    label : str
        Which batch it is, for the deviations' names.
    allow : callable
        The allowed error; that of the budget by default.
    """
    found = []
    nothing = Computed({})
    for part in ("values", "gradients"):
        of_plain = getattr(plain or nothing, part)
        for name, mine in getattr(got, part).items():
            want = getattr(expected, part)[name]
            yardstick = error(of_plain[name], want) if name in of_plain else None
            gradient = name if part == "gradients" else ""
            what = f"grad of {name}" if gradient else name
            allowed = allow(yardstick, dtype, bool(gradient))
            what = f"{what}, {label}" if label else what
            found.append(Deviation(what, error(mine, want), allowed, gradient))
    return found
