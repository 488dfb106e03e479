"""Module : plain : oracle, the one comparison behind every verdict."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch

from harness.verify.budget import Deviation, budget, error

T = TypeVar("T")
OUTPUT = "output"
"""Name of what a module returns."""
Allow = Callable[[float | None, str, bool], float]
"""Allowed error, from that of the plain yardstick, the dtype, and whether it is a gradient's."""


@dataclass(frozen=True)
class Computed:
    """What a module or an oracle says of a batch, as float64 arrays."""

    values: Mapping[str, np.ndarray]  # by name; most often `OUTPUT` alone
    # Of ``sum(output * cotangent)`` with respect to ``x`` and to each weight, by its name.
    gradients: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def output(self) -> np.ndarray:
        """The value named `OUTPUT`."""
        return self.values[OUTPUT]

    def at(self, rows: Sequence[int]) -> Computed:
        """The same with the output [B, N, d_out] at some rows alone."""
        return replace(self, values={**self.values, OUTPUT: self.output[:, rows]})

    def saying(self, more: Mapping[str, np.ndarray]) -> Computed:
        """The same with more values."""
        return replace(self, values={**self.values, **more})


class WrongShape(ValueError):
    """A module returned a tensor of another shape than it should; the message names both."""


def numpy64(tensor: torch.Tensor) -> np.ndarray:
    """Copy a tensor to a float64 array."""
    return tensor.detach().to(device="cpu", dtype=torch.float64).numpy().copy()


def grad_or_zeros(tensor: torch.Tensor) -> torch.Tensor:
    """Its gradient; one that was not computed is no deviation unless it counts as zeros."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def trained(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Weights that are trained, by name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def computed(
    module: torch.nn.Module,
    x: torch.Tensor,
    mask: torch.Tensor | None,
    cotangent: torch.Tensor,
    training: bool = True,
    said: Callable[[], Mapping[str, torch.Tensor]] = dict,
    **keywords: Any,
) -> Computed:
    """What a module says of one batch; without `training` its gradients are left out.

    Parameters
    ----------
    said : callable
        Asked after the pass: more values [B]. Those with gradients have the cotangents 1 to B.

    Raises
    ------
    WrongShape
        If the output has another shape than the cotangent.
    """
    x = x.detach().clone().requires_grad_(training)
    module.zero_grad(set_to_none=True)
    with torch.set_grad_enabled(training):
        output = module(x, mask, **keywords)
    if tuple(output.shape) != tuple(cotangent.shape):
        raise WrongShape(f"output is {list(output.shape)}, expected {list(cotangent.shape)}")
    more = said()
    values = {OUTPUT: numpy64(output), **{name: numpy64(value) for name, value in more.items()}}
    if not training:
        return Computed(values)
    learned = [value for value in more.values() if value.requires_grad]
    torch.autograd.backward(
        [output, *learned],
        [cotangent.to(output.dtype), *(torch.arange(1, len(v) + 1).to(v) for v in learned)],
    )
    of = {"x": x, **trained(module)}
    return Computed(values, {name: numpy64(grad_or_zeros(t)) for name, t in of.items()})


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


UNIT = {
    **{"f64": 2.0**-52, "f32": 2.0**-23, "fast32": 2.0**-20},
    **{"tf32": 2.0**-10, "f16": 2.0**-10, "bf16": 2.0**-7},
}
SHAKES = 8
LIKELY = 5.0
"""Standard deviations from what is expected that a number of draws may be: 1 in 2 million is."""
DRAWS = 6
"""How often a point is drawn anew before its error counts all the same."""


def shaken(a: torch.Tensor, units: float, generator: torch.Generator) -> torch.Tensor:
    """Each number changed by at most this share of it, at random."""
    noise = torch.rand(a.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return (a * (1 + units * noise.to(a.device))).to(a.dtype)


@dataclass(frozen=True)
class Question:
    """What an oracle is asked of one point; it sees one unpadded float64 sequence at a time."""

    # ``naive(x, weights, rows, grad_out, **options)``, see a mechanism's ``naive.py``.
    naive: Callable[..., tuple[np.ndarray, np.ndarray | None, dict[str, np.ndarray] | None]]
    x: np.ndarray  # [B, N, d_in] of float64; what stands at padding is never read
    lengths: Sequence[int]  # real tokens of each sample; a sample of length 0 gives zeros
    weights: Mapping[str, np.ndarray]  # of float64
    cotangent: np.ndarray  # of the output's shape; must be zero at padding and outside `rows`
    options: Mapping[str, Any]  # the whole configuration
    rows: Sequence[int] | None = None  # query positions to evaluate; None is all
    padding_matters: bool = False  # whether the oracle is told the padded length N
    # drawn, odds: what the module drew, and what the oracle says of that: `Drawn.of` and
    # `Mechanism.odds`.
    drawn: Callable[[int, int], dict[str, Any]] | None = None
    odds: (
        Callable[..., tuple[dict[str, float], dict[str, tuple[np.ndarray, np.ndarray]]]] | None
    ) = None

    @property
    def digest(self) -> str:
        """Of all that decides the answer but the oracle's code; not of one about draws."""
        oracle = f"{self.naive.__module__}:{self.naive.__qualname__}"
        said = [oracle, sorted(self.options.items()), list(self.lengths), self.rows]
        found = hashlib.sha256(repr([*said, self.padding_matters]).encode())
        for name, array in sorted({**self.weights, "": self.cotangent, " x": self.x}.items()):
            found.update(f"{name} {array.shape} {array.dtype}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def _draws(self, b: int) -> dict[str, Any]:
        """The oracle's ``drawn`` of a sample, if any, with the cotangent that `computed` has."""
        if self.drawn is None:
            return {}
        return {"drawn": {**self.drawn(b, self.lengths[b]), "cotangent": b + 1.0}}

    def _odds(self) -> Iterator[tuple[int, dict[str, float], dict[str, tuple[Any, Any]]]]:
        """What is said of the draws of every sample, and happened beside its probability."""
        for b, n in enumerate(self.lengths):
            if self.odds is not None and n:
                draws = self._draws(b)
                yield b, *self.odds(self.x[b, :n], self.weights, **draws, **self.options)

    def unlikely(self, label: str) -> list[Deviation]:
        """Kinds of draws that happened more, or less, often than chance allows."""
        coins: dict[str, list[tuple[Any, Any]]] = {}
        for _, _, of_sample in self._odds():
            for name, coin in of_sample.items():
                coins.setdefault(name, []).append(coin)
        found = []
        for name, all_of in coins.items():
            happened, p = (np.concatenate([one[k].ravel() for one in all_of]) for k in (0, 1))
            off = abs(float((happened - p).sum()))
            if off > LIKELY * math.sqrt(float((p * (1 - p)).sum())):
                drawn, expected = f"{happened.sum():,} of {happened.size:,}", f"{p.sum():,.0f}"
                what = f"draws of {name}, {drawn} where {expected} are expected, {label}"
                found.append(Deviation(what, math.inf, 0.0))
        return found

    def answer(self) -> Computed:
        """Evaluate values and gradients sample by sample.

        Returns
        -------
        Computed
            The output [B, N, d_out] or [B, d_out], zero at padding and outside the selected rows;
            the gradients of ``x`` [B, N, d_in], zero at padding, and of every weight.
        """
        options = dict(self.options)
        if self.padding_matters:
            options["padded"] = self.x.shape[1]
        output = np.zeros(self.cotangent.shape)
        grad_x = np.zeros(self.x.shape)
        grad_weights = {name: np.zeros(w.shape) for name, w in self.weights.items()}
        for b, n in enumerate(self.lengths):
            if n == 0:
                continue
            rows = range(n) if self.rows is None else [r for r in self.rows if r < n]
            picked = np.array(rows, dtype=int)
            where: Any = (b, picked) if self.cotangent.ndim == 3 else b
            out, gx, gw = self.naive(
                self.x[b, :n],
                self.weights,
                picked,
                self.cotangent[where],
                **options,
                **self._draws(b),
            )
            assert gx is not None
            assert gw is not None
            output[where] = out
            grad_x[b, :n] = gx
            for name, g in gw.items():
                grad_weights[name] += g
        values: dict[str, np.ndarray] = {OUTPUT: output}
        for b, said, _ in self._odds():
            for name, value in said.items():
                values.setdefault(name, np.zeros(len(self.lengths)))[b] = value
        return Computed(values, {"x": grad_x, **grad_weights})

    def at_a_kink(self, found: Sequence[Deviation], expected: Computed, dtype: str) -> bool:
        """Whether gradients alone are over budget, and the oracle itself moves as far as they.

        At a pre-activation that rounding can push across zero the gradient of relu is either of
        two values, and both are right. Seen from the oracle: a change of its inputs by a few units
        in the last place of the tested dtype moves its own gradient by as much as the error that
        was found. Such a point says nothing about an implementation and is drawn anew; a fault is
        an error that the oracle does not make by itself.

        What is expected is `answer` as it stands; the dtype sets the size of the shaking: 4 units
        in the last place, relative.
        """
        errors = {d.gradient: d.error for d in found if not d.ok}
        # A fault of the values (named "" here) is no kink.
        if not errors or "" in errors or not all(map(math.isfinite, errors.values())):
            return False
        moved = dict.fromkeys(errors, 0.0)
        for draw in range(SHAKES):
            rng = np.random.default_rng(draw)

            def shaken(a: np.ndarray, rng: np.random.Generator = rng) -> np.ndarray:
                return np.asarray(a * (1 + 4 * UNIT[dtype] * rng.uniform(-1, 1, a.shape)))

            x = shaken(self.x)
            weights = {name: shaken(w) for name, w in self.weights.items()}
            other = replace(self, x=x, weights=weights).answer()
            for name in errors:
                apart = error(other.gradients[name], expected.gradients[name])
                moved[name] = max(moved[name], apart)
        return all(moved[name] >= 0.5 * size for name, size in errors.items())


def off_kinks(draw: Callable[[int], tuple[T, bool]], seed: int) -> tuple[T, bool, int]:
    """The first of `DRAWS` points that is at no kink, or the last one.

    Parameters
    ----------
    draw : callable
        What is found at the point of a seed, and whether that lies at a kink.

    Returns
    -------
    tuple of (found, bool, int)
        What is found there, whether that one lies at a kink too, and how many were drawn.
    """
    for count in range(DRAWS):
        found, kink = draw(seed + 1000 * count)
        if not kink:
            break
    return found, kink, count + 1
