"""Oracles with drawn weights, and their gradients against finite differences."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from harness.build import make
from harness.registry import resolve
from suites.support.batches import MECHANISMS, build, widths
from suites.support.command_line import ROOT
from suites.support.configurations import options_of

Array: TypeAlias = np.ndarray
Weights: TypeAlias = dict[str, Array]
Drawn: TypeAlias = tuple[Array, Weights, np.random.Generator]
GOLDEN = ROOT / "suites" / "harness" / "verify" / "golden"
D, D_H, N = 4, 3, 6
"""Width of x, of one head or direction, and tokens of most sequences here."""


def naive_of(name: str) -> Callable[..., Any]:
    """The oracle of a mechanism."""
    found: Callable[..., Any] = resolve(str(MECHANISMS[name].oracle))
    return found


def _widths(name: str, o: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Width of the output, and options for the plain module alone: small, and heads `D_H` wide."""
    if name in ("disa", "biblosa"):
        return (2 if o.get("direction", "both") == "both" else 1) * D_H, {}
    if name == "kim_cnn":
        return D_H * len(o.get("kernel_sizes", (3, 4, 5))), {}
    if name in ("msmsa", "mtsa_nmt"):
        out = o["heads"] * D_H if o.get("output_layer") is False else 5
        return D if o.get("layer") else out, {"head_dim": D_H}
    if name in ("transformer", "multi_scale_transformer"):
        twice = 2 if o.get("readout", "concat") == "concat" else 1
        hidden = {"ff_dim": 7} if name == "transformer" else {}
        return twice * (5 if o.get("narrow") else D), {"head_dim": D_H, **hidden}
    if name == "mtsa":
        return o["heads"] * D_H, {}
    if name == "mtsa_released":
        return o.get("output_hidden") or o["heads"] * D_H, {"head_dim": D_H}
    return D_H if name == "hrchy_cnn" else D, {}


@dataclass(frozen=True)
class Config:
    """An oracle in one configuration, with small widths.

    Attributes
    ----------
    name : str
        Of a mechanism.
    label : str
        Tells configurations apart; the numbers drawn depend on it.
    options : mapping
        Those that are not the oracle's own defaults.
    narrow : bool
        For sentence models: whether x is narrower than the model, which then has in_w.
    """

    name: str
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    narrow: bool = False

    def __str__(self) -> str:
        return f"{self.name}-{self.label}"

    def __call__(self, x: Array, weights: Mapping[str, Array], *rest: Any, **more: Any) -> Any:
        """The oracle's answer; ``more`` are other options."""
        return naive_of(self.name)(x, weights, *rest, **{**self.options, **more})

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the plain module's weights: oracle and module share their names."""
        d_out, own = _widths(self.name, {**self.options, "narrow": self.narrow})
        mechanism = MECHANISMS[self.name]
        given = {**mechanism.options, **self.options, **own}
        heads = given.pop("heads", 0)
        plain = make(mechanism, str(mechanism.plain), D, d_out, heads, given)
        return {key: tuple(w.shape) for key, w in plain.state_dict().items()}

    def draw(self, n: int = N) -> Drawn:
        """X [n, D], weights and the generator, the same for the same configuration."""
        return drawn(self.shapes(), n, D, f"{self}/{n}")


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
        """x, weights and the generator."""
        state = build(f"{self.name}.plain", self.variant).state_dict()
        d_in, _ = widths(MECHANISMS[self.name], options_of(self.name, self.variant))
        return drawn({key: tuple(w.shape) for key, w in state.items()}, n, d_in, f"{self}/{n}")


def drawn(shapes: Mapping[str, tuple[int, ...]], n: int, d_in: int, seed: str) -> Drawn:
    """X [n, d_in] and weights of these shapes, and the generator that they come from."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    weights = {key: 0.7 * rng.normal(size=shape) for key, shape in shapes.items()}
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


def normed(z: Array, epsilon: float = 0.0) -> Array:
    """Return z [n, d] with mean 0 and variance 1 in each row."""
    centred = z - z.sum(axis=1, keepdims=True) / z.shape[1]
    return centred / np.sqrt((centred**2).sum(axis=1, keepdims=True) / z.shape[1] + epsilon)


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
