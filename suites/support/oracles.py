"""Oracles with drawn weights, and their gradients against finite differences."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from harness.registry import resolve
from suites.support.batches import MECHANISMS, build, options_of, widths
from suites.support.command_line import ROOT

Array: TypeAlias = np.ndarray
Weights: TypeAlias = dict[str, Array]
Drawn: TypeAlias = tuple[Array, Weights, np.random.Generator]
GOLDEN = ROOT / "suites" / "harness" / "verify" / "golden"
N = 6
"""Tokens of most sequences here."""


def naive_of(name: str) -> Callable[..., Any]:
    """The oracle of a mechanism."""
    found: Callable[..., Any] = resolve(str(MECHANISMS[name].oracle))
    return found


@dataclass(frozen=True)
class Variant:
    """An oracle in a configuration of its record, with the widths of the modules' tests."""

    name: str
    variant: str
    tail: int = 0

    def __str__(self) -> str:
        return f"{self.name}-{self.variant}" + (f"-{self.tail}" if self.tail else "")

    def __call__(self, x: Array, weights: Mapping[str, Array], *rest: Any) -> Any:
        """The oracle's answer."""
        options = options_of(self.name, self.variant)
        if self.tail:
            options["padded"] = len(x) + self.tail
        return naive_of(self.name)(x, weights, *rest, **options)

    def draw(self, n: int = N) -> Drawn:
        """X [n, d_in], weights and the generator, the same for the same configuration."""
        state = build(f"{self.name}.plain", self.variant).state_dict()
        d_in, _ = widths(MECHANISMS[self.name], options_of(self.name, self.variant))
        rng = np.random.default_rng(zlib.crc32(f"{self}/{n}".encode()))
        weights = {key: 0.7 * rng.normal(size=tuple(w.shape)) for key, w in state.items()}
        return rng.normal(size=(n, d_in)), weights, rng


def close(got: Array, want: Array, atol: float = 1e-13) -> None:
    """Assert that two arrays agree up to rounding."""
    np.testing.assert_allclose(got, want, rtol=0, atol=atol)


def assert_alike(got: tuple[Any, ...], want: tuple[Any, ...], atol: float = 1e-13) -> None:
    """Assert that output, gradient of x and of all weights that ``want`` has agree."""
    close(got[0], want[0], atol)
    close(got[1], want[1], atol)
    for name, gradient in want[2].items():
        np.testing.assert_allclose(got[2][name], gradient, rtol=0, atol=atol, err_msg=name)


def central_difference(f: Callable[[float], float], h: float) -> float:
    """f'(0) by the fourth-order formula: rounding, near 1e-14 / h, is what is left."""
    return (8 * (f(h) - f(-h)) - f(2 * h) + f(-2 * h)) / (12 * h)


def assert_gradients(
    f: Callable[[Weights], float],
    points: Weights,
    gradients: Mapping[str, Array],
    rng: np.random.Generator,
) -> None:
    """Hold gradients against differences of f, in a random direction and along one axis."""
    assert set(points) == set(gradients)
    for name, point in points.items():
        assert gradients[name].shape == point.shape
        axis = np.zeros(point.shape)
        axis.flat[rng.integers(point.size)] = 1.0
        for u in (rng.normal(size=point.shape), axis):

            def value(h: float, name: str = name, u: Array = u) -> float:
                return f({**points, name: points[name] + h * u})

            expected = float(np.sum(gradients[name] * u))
            # The shorter step only counts where the longer one crosses a kink of an activation.
            errors = [abs(central_difference(value, h) - expected) for h in (2e-4, 2e-5)]
            assert min(errors) <= 1e-9 * max(1.0, abs(expected)), name


def assert_gradients_of(
    oracle: Callable[..., Any], x: Array, weights: Weights, rng: np.random.Generator
) -> None:
    """Hold an oracle's gradients against differences of its output; both passes say the same."""
    out = oracle(x, weights)[0]
    g = rng.normal(size=out.shape)
    again, grad_x, grads = oracle(x, weights, None, g)
    np.testing.assert_array_equal(again, out)

    def value(at: Weights) -> float:
        return float(np.sum(oracle(at.pop("x"), at)[0] * g))

    assert_gradients(value, {"x": x, **weights}, {"x": grad_x, **grads}, rng)
