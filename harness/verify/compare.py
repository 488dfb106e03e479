"""Module : plain : oracle, the one comparison behind every verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


Weights = Mapping[str, np.ndarray]
Naive = Callable[..., tuple[np.ndarray, np.ndarray | None, dict[str, np.ndarray] | None]]


def reference(
    naive: Naive,
    x: np.ndarray,
    lengths: Sequence[int],
    weights: Weights,
    cotangent: np.ndarray,
    options: Mapping[str, Any],
    rows: Sequence[int] | None = None,
    padding_matters: bool = False,
) -> Computed:
    """Evaluate values and gradients sample by sample.

    Parameters
    ----------
    naive : callable
        ``naive(x, weights, rows, grad_out, **options)``, see a mechanism's ``naive.py``.
    x : ndarray [B, N, d_in] of float64
        What stands at padding is never read.
    lengths : sequence of int
        Real tokens of each sample; a sample of length 0 gives zeros.
    weights : mapping of float64 arrays
    cotangent : ndarray, shape of the output
        Must be zero at padding and outside `rows`.
    options : mapping
        The whole configuration.
    rows : sequence of int or None
        Query positions to evaluate; None is all.
    padding_matters : bool
        Whether the oracle is told the padded length N.

    Returns
    -------
    Computed
        The output [B, N, d_out] or [B, d_out], zero at padding and outside the selected rows; the
        gradients of ``x`` [B, N, d_in], zero at padding, and of every weight.
    """
    if padding_matters:
        options = {**options, "padded": x.shape[1]}
    output = np.zeros(cotangent.shape)
    grad_x = np.zeros(x.shape)
    grad_weights = {name: np.zeros(w.shape) for name, w in weights.items()}
    tokens = cotangent.ndim == 3
    for b, n in enumerate(lengths):
        if n == 0:
            continue
        picked = np.arange(n) if rows is None else np.array([r for r in rows if r < n], dtype=int)
        where: Any = (b, picked) if tokens else b
        out, gx, gw = naive(x[b, :n], weights, picked, cotangent[where], **options)
        assert gx is not None
        assert gw is not None
        output[where] = out
        grad_x[b, :n] = gx
        for name, g in gw.items():
            grad_weights[name] += g
    return Computed({OUTPUT: output}, {"x": grad_x, **grad_weights})


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
        As for `reference`.
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
