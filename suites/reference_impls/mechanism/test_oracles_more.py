"""Oracles of the mechanisms built from others: ReSA, ReSAN, the stacked and multi-scale ones."""

from __future__ import annotations

import importlib
import itertools
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest


def module(folder: str, file: str = "naive") -> ModuleType:
    """Return the file with the oracle of a folder below ``reference_impls``."""
    return importlib.import_module(f"reference_impls.{folder}.{file}")


disa, mtsa, multi_head, source2token = map(module, ("disa", "mtsa", "multi_head", "source2token"))
msmsa, mtsa_nmt, mtsa_stack = map(module, ("msmsa", "mtsa_nmt", "mtsa_stack"))
resa, resan, rss = module("resa"), module("resan"), module("resa")
transformer, multi_scale = module("transformer"), module("multi_scale_transformer")
Array = np.ndarray
Shapes = dict[str, tuple[int, ...]]
GOLDEN = Path(__file__).parents[2] / "harness" / "verify" / "golden"
D, D_H, N = 4, 3, 6
SENTENCES = {"transformer", "multi_scale_transformer", "resan"}
DISA = ("dep_w", "head_w", "fi_w", "fa_w"), ("map_b", "f_b", "fi_b", "fa_b", "o_b")
RSS = {"w1": (3 * D, 3), "b1": (3,), "w2": (3, 1), "b2": (1,)}


@dataclass(frozen=True)
class Config:
    """One oracle in one configuration.

    Attributes
    ----------
    oracle : str
        Folder below ``reference_impls``.
    label : str
        What is special about it.
    options : mapping
    narrow : bool
        For sentences: whether x is narrower than the model, which then has in_w.
    """

    oracle: str
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    narrow: bool = False

    def __str__(self) -> str:
        return f"{self.oracle}-{self.label}"

    @property
    def naive(self) -> Callable[..., Any]:
        return module(self.oracle).naive


def _prefixed(prefixes: tuple[str, ...], shapes: Mapping[str, tuple[int, ...]]) -> Shapes:
    return {prefix + name: shape for prefix in prefixes for name, shape in shapes.items()}


def _heads(h: int, d: int, d_out: int) -> Shapes:
    one: Shapes = dict.fromkeys(("q_w", "k_w", "v_w"), (h, d, D_H))
    return {**one, "o_w": (h * D_H, d_out)}


def _norms(d: int, *names: str) -> Shapes:
    return {f"{name}_{part}": (d,) for name in names for part in ("scale", "offset")}


def _msmsa_shapes(c: Config) -> Shapes:
    layer = c.options.get("layer", False)
    return _heads(c.options["heads"], D, D if layer else 5) | (_norms(D, "ln") if layer else {})


def _resa_shapes(c: Config, d: int = 3) -> Shapes:
    one: Shapes = {
        "map_w": (D, d),
        **dict.fromkeys(DISA[0], (d, d)),
        **dict.fromkeys(DISA[1], (d,)),
    }
    both = c.options.get("direction", "both") == "both"
    return _prefixed(("fw_", "bw_") if both else ("",), one) | _prefixed(("dep_", "head_"), RSS)


def _resan_shapes(c: Config) -> Shapes:
    variant = c.options.get("variant", "full")
    wide = {"s2t_s1_w": (6, 6), "s2t_s2_w": (6, 6), "s2t_s1_b": (6,), "s2t_s2_b": (6,)}
    same = {"s2t_s1_w": (D, D), "s2t_s2_w": (D, D), "s2t_s1_b": (D,), "s2t_s2_b": (D,)}
    one_rss = _prefixed(("sel_",), RSS)
    if variant == "no_soft":
        return {**same, **one_rss}
    if variant == "neither":
        return {}
    fusion = _resa_shapes(c, 3 if c.options.get("direction", "both") == "both" else 6)
    if variant in ("one_rss", "no_hard"):
        fusion = {
            name: s for name, s in fusion.items() if name[-2:] not in ("w1", "b1", "w2", "b2")
        }
    return {**fusion, **wide, **(one_rss if variant == "one_rss" else {})}


def _stack_shapes(c: Config) -> Shapes:
    h = c.options["heads"]
    one = _heads(h, D, D) | _norms(D, "ln1", "ln2")
    one |= {"s2_w": (h, D, D_H), "s2_b": (h, D_H), "o_b": (D,), "ffn_w": (D, D), "ffn_b": (D,)}
    return _prefixed(tuple(f"l{i}_" for i in range(c.options.get("layers", 2))), one)


def _nmt_shapes(c: Config) -> Shapes:
    h = c.options["heads"]
    one = _heads(h, D, 5) | {"s1_w": (h, D_H, D_H), "s1_b": (h, D_H)}
    if c.options.get("hidden_activation"):
        one |= {"s2_w": (h, D_H, D_H), "s2_b": (h, D_H)}
    if not c.options.get("output_layer", True):
        del one["o_w"]
    return one


def _encoder_shapes(c: Config) -> Shapes:
    d = 5 if c.narrow else D
    one = _heads(c.options["heads"], d, d)
    if c.oracle == "transformer":
        one |= _norms(d, "ln1", "ln2")
        one |= {"ff1_w": (d, 7), "ff1_b": (7,), "ff2_w": (7, d), "ff2_b": (d,)}
    else:
        one |= _norms(d, "ln")
    outer: Shapes = {"cls": (d,)} if c.options.get("cls", True) else {}
    if c.narrow:
        outer["in_w"] = (D, d)
    return outer | _prefixed(tuple(f"l{i}_" for i in range(c.options.get("layers", 2))), one)


SHAPES: dict[str, Callable[[Config], Shapes]] = {
    "msmsa": _msmsa_shapes,
    "resa": _resa_shapes,
    "resan": _resan_shapes,
    "mtsa_stack": _stack_shapes,
    "mtsa_nmt": _nmt_shapes,
    "transformer": _encoder_shapes,
    "multi_scale_transformer": _encoder_shapes,
}
VARIANTS = ("full", "without_unselected_heads", "one_rss", "no_hard", "no_soft", "neither")
DIRECTIONS = ("both", "forward", "backward", "diagonal")
READINGS = ("all_real", "dependents", "others")
WINDOWS = (1, 3, 4.5, "n/2", "n/1", 100)
MULTI_SCALE: dict[str, dict[str, Any]] = {
    "no-cls": {"cls": False, "readout": "max", "alpha": -1.0},
    "scales": {"scales": ((1, 3, "n/2"), (3, 1, 5)), "ln_epsilon": 0.01},
    "candidates": {"candidates": (1, "n/2"), "alpha": 1.0, "width_reading": "radius"},
    "model-width": {"scaling": "model_width", "layers": 3},
}
CONFIGS = [
    Config("msmsa", "default", {"heads": 6}),
    *(
        Config(
            "msmsa", f"{reading}-{scaling}-{layer}",
            {
                "heads": 6, "scales": WINDOWS, "width_reading": reading, "scaling": scaling,
                "layer": layer, "ln_epsilon": 0.01,
            },
        )
        for reading in ("total", "radius")
        for scaling in ("head_width", "model_width")
        for layer in (False, True)
    ),
    *(
        Config("resa", f"{direction}-{reading}", {"direction": direction, "unselected": reading})
        for direction in DIRECTIONS
        for reading in READINGS
    ),
    *(
        Config("resa", "-".join(map(str, options.values())), options)
        for options in (
            {"activation": "relu", "tanh_scale": 2.0},
            {"activation": "selu", "rss_activation": "relu"},
            {"selection": "all"},
            {"rss_activation": "selu", "rss_hidden": 3},
        )
    ),
    *(Config("resan", variant, {"variant": variant}) for variant in VARIANTS),
    *(Config("resan", f"all-{v}", {"variant": v, "selection": "all"}) for v in VARIANTS),
    Config("resan", "dependents", {"unselected": "dependents", "activation": "selu"}),
    Config("resan", "one_rss-diagonal", {"variant": "one_rss", "direction": "diagonal"}),
    Config("resan", "forward-relu", {"direction": "forward", "activation": "relu"}),
    *(
        Config("mtsa_stack", f"{f}-{t}", {"heads": 2, "activation": f, "scale_t": t})
        for f in ("relu", "elu", "selu")
        for t in ("identity", "log_sigmoid")
    ),
    Config("mtsa_stack", "1-layer", {"heads": 4, "layers": 1, "ln_epsilon": 0.01}),
    *(
        Config(
            "mtsa_nmt", f"{t}-{s}-{scaled}-{keys}",
            {
                "heads": 2, "scale_t": t, "scale_s": s, "source2token_scaled": scaled,
                "source2token_from_keys": keys,
            },
        )
        for t in ("identity", "log_sigmoid")
        for s in ("identity", "log_sigmoid")
        for scaled in (True, False)
        for keys in (True, False)
    ),
    *(
        Config("mtsa_nmt", f"hidden-{f}", {"heads": 2, "hidden_activation": f})
        for f in ("relu", "elu", "selu")
    ),
    Config("mtsa_nmt", "directions", {"heads": 4, "bi_direction": True}),
    Config("mtsa_nmt", "no-output-layer", {"heads": 2, "output_layer": False}),
    *(
        Config("transformer", f"{readout}-{p}", {"heads": 2, "readout": readout, "positions": p}, p)
        for readout in ("concat", "sum")
        for p in (True, False)
    ),
    Config("transformer", "1-layer", {"heads": 2, "layers": 1, "ln_epsilon": 0.01, "ff_dim": 7}),
    *(
        Config("multi_scale_transformer", readout, {"heads": 4, "readout": readout}, wide)
        for readout, wide in (("concat", True), ("sum", False), ("max", False))
    ),
    *(
        Config("multi_scale_transformer", label, {"heads": 3, **options})
        for label, options in MULTI_SCALE.items()
    ),
]  # fmt: skip
each_config = pytest.mark.parametrize("config", CONFIGS, ids=str)


def draw(config: Config, n: int = N) -> tuple[Array, dict[str, Array], np.random.Generator]:
    """Return x [n, D], weights and the generator, the same for the same configuration.

    No probability of a selection lies near the threshold, and each RSS selects some tokens
    but not all.
    """
    for seed in itertools.count(zlib.crc32(str(config).encode())):
        rng = np.random.default_rng(seed)
        shapes = SHAPES[config.oracle](config)
        weights = {name: rng.normal(size=shape) * 0.7 for name, shape in shapes.items()}
        x = rng.normal(size=(n, D))
        drawn = [selections(x, weights, config, name) for name in ("dep", "head", "sel")]
        if all(_decided(p) for p in drawn if p.size):
            break
    return x, weights, rng


def _decided(p: Array) -> bool:
    chosen = int((p >= 0.5).sum())
    return bool(np.abs(p - 0.5).min() > 0.02) and (len(p) < 3 or 0 < chosen < len(p))


def selections(x: Array, weights: Mapping[str, Array], config: Config, name: str) -> Array:
    """Return the probabilities [n] of one RSS; none if the configuration has not got it."""
    if f"{name}_w1" not in weights:
        return np.zeros(0)
    W = {part: weights[f"{name}_{part}"] for part in RSS}
    return rss.probabilities(x, W, config.options.get("rss_activation", "elu"))


def central_difference(f: Callable[[float], float], h: float) -> float:
    """Return f'(0) by the fourth-order formula: rounding, near 1e-14 / h, is what is left."""
    return (8 * (f(h) - f(-h)) - f(2 * h) + f(-2 * h)) / (12 * h)


def assert_gradients(
    f: Callable[[dict[str, Array]], float],
    points: dict[str, Array],
    gradients: Mapping[str, Array],
    rng: np.random.Generator,
) -> None:
    """Hold gradients against differences of f, in a random direction and along two axes."""
    assert set(points) == set(gradients)
    for name, point in points.items():
        assert gradients[name].shape == point.shape
        directions = [rng.normal(size=point.shape)]
        for index in rng.integers(point.size, size=2):
            directions.append(np.zeros(point.shape))
            directions[-1].flat[index] = 1.0
        for u in directions:

            def value(h: float, name: str = name, u: Array = u) -> float:
                return f({**points, name: points[name] + h * u})

            expected = float(np.sum(gradients[name] * u))
            # The shorter step only counts where the longer one crosses a kink of an activation.
            errors = (abs(central_difference(value, h) - expected) for h in (2e-4, 2e-5))
            assert any(e <= 1e-9 * max(1.0, abs(expected)) for e in errors), name


@each_config
def test_gradients_are_those_of_the_forward_pass(config: Config) -> None:
    x, weights, rng = draw(config)
    out = config.naive(x, weights, **config.options)[0]
    g = rng.normal(size=out.shape)
    again, grad_x, grads = config.naive(x, weights, None, g, **config.options)
    np.testing.assert_array_equal(again, out)

    def f(at: dict[str, Array]) -> float:
        return float(np.sum(config.naive(at.pop("x"), at, **config.options)[0] * g))

    assert_gradients(f, {"x": x, **weights}, {"x": grad_x, **grads}, rng)


@pytest.mark.parametrize("config", [c for c in CONFIGS if c.oracle not in SENTENCES], ids=str)
def test_rows_restrict_the_full_computation(config: Config) -> None:
    x, weights, rng = draw(config)
    full = config.naive(x, weights, **config.options)[0]
    for rows in ([4, 0, 5], [N - 1], []):
        g = rng.normal(size=(len(rows), full.shape[1]))
        everywhere = np.zeros(full.shape)
        everywhere[rows] = g
        out, *got = config.naive(x, weights, np.array(rows, dtype=int), g, **config.options)
        _, *want = config.naive(x, weights, None, everywhere, **config.options)
        np.testing.assert_allclose(out, full[rows], rtol=0, atol=1e-13)
        np.testing.assert_allclose(got[0], want[0], rtol=0, atol=1e-12)
        for name in weights:
            np.testing.assert_allclose(got[1][name], want[1][name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, N])
@each_config
def test_nothing_overflows(config: Config, n: int) -> None:
    x, weights, _ = draw(config, n)
    for name in weights:
        if name.endswith(("q_w", "s1_w", "s2_w", "dep_w", "head_w", "fi_w")):
            weights[name] = weights[name] * 1e6
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        out = config.naive(x, weights, **config.options)[0]
        _, grad_x, grads = config.naive(x, weights, None, np.ones(out.shape), **config.options)
    assert (out.ndim == 1) == (config.oracle in SENTENCES)
    assert all(np.isfinite(a).all() for a in (out, grad_x, *grads.values()))


def _msmsa_golden(config: Mapping[str, Any], a: dict[str, Array]) -> tuple[Any, dict[str, Any]]:
    names = ("heads", "scales", "width_reading", "scaling", "layer", "ln_epsilon")
    return a["x"], {name: config[name] for name in names}


def _stack_golden(config: Mapping[str, Any], a: dict[str, Array]) -> tuple[Any, dict[str, Any]]:
    options = {name: config[name] for name in ("heads", "layers", "scale_t", "activation")}
    return a["x"], {**options, "ln_epsilon": config["layer_norm_epsilon"]}


def _nmt_golden(config: Mapping[str, Any], a: dict[str, Array]) -> tuple[Any, dict[str, Any]]:
    """Lay q, k and v of all heads side by side; each head's maps pick its columns."""
    b, h, n, d = a["q"].shape
    maps = np.eye(3 * h * d).reshape(3 * h * d, 3, h, d).transpose(1, 2, 0, 3)
    a["q_w"], a["k_w"], a["v_w"] = maps[0] * np.sqrt(d), maps[1], maps[2]
    x = np.stack([a[name] for name in "qkv"]).transpose(1, 3, 0, 2, 4).reshape(b, n, 3 * h * d)
    a["output_f64"] = a["output_f64"].transpose(0, 2, 1, 3).reshape(b, n, h * d)
    names = ("scale_t", "scale_s", "source2token_scaled", "source2token_from_keys", "bi_direction")
    options = {name: config[name] for name in ("heads", *names)}
    assert config["hidden_activation"] == "none"
    return x, {**options, "hidden_activation": None, "output_layer": False}


def _resa_golden(config: Mapping[str, Any], a: dict[str, Array]) -> tuple[Any, dict[str, Any]]:
    """Make the given selections two more features, which the RSS read and the maps do not."""
    x = np.concatenate([a["x"], a["dep_sel"][..., None], a["head_sel"][..., None]], axis=2)
    width = x.shape[2]
    for name in [name for name in a if name.endswith("map_w")]:
        a[name] = np.concatenate([a[name], np.zeros((2, a[name].shape[1]))])
    for name, feature in (("dep", width - 2), ("head", width - 1)):
        a[f"{name}_w1"], a[f"{name}_b1"] = np.eye(3 * width)[:, [feature]], np.zeros(1)
        a[f"{name}_w2"], a[f"{name}_b2"] = np.full((1, 1), 10.0), np.full(1, -5.0)
    if config["direction"] != "both":
        for name in [name for name in a if name.startswith("fw_")]:
            a[name[3:]] = a.pop(name)
    readings = {
        "all_other_valid_tokens": "others", "selected_dependents": "dependents",
        "all_valid_tokens": "all_real",
    }  # fmt: skip
    return x, {
        "direction": config["direction"] or "diagonal", "activation": config["activation"],
        "tanh_scale": config["tanh_scale"],
        "unselected": readings[config["pooling_of_unselected"]],
    }  # fmt: skip


ADAPTERS = {
    "msmsa": _msmsa_golden, "mtsa_stack": _stack_golden, "mtsa_nmt": _nmt_golden,
    "resa": _resa_golden,
}  # fmt: skip
CASES = [f"{k}/{p.stem}" for k in ADAPTERS for p in sorted((GOLDEN / k).glob("*.npz"))]
NOT_WEIGHTS = {
    "x", "q", "k", "v", "bias", "mask", "dep_sel", "head_sel", "output", "output_f64", "grad_out",
    "grad_x", "grad_x_f64",
}  # fmt: skip


def read(case: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return config and arrays of a golden file, its numbers as float64."""
    with np.load(GOLDEN / f"{case}.npz") as z:
        arrays = {name: z[name] for name in z.files}
    config = json.loads(str(arrays.pop("config")))
    return config, {k: a if a.dtype == bool else a.astype(np.float64) for k, a in arrays.items()}


def test_every_folder_has_goldens() -> None:
    assert {case.partition("/")[0] for case in CASES} == set(ADAPTERS)


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    settings, a = read(case)
    folder = case.partition("/")[0]
    x, options = ADAPTERS[folder](settings, a)
    naive = module(folder).naive
    weights = {name: w for name, w in a.items() if name not in NOT_WEIGHTS}
    want = a["output_f64"]
    tolerance = 1e-10 * max(1.0, float(np.abs(want).max()))
    for b, n in enumerate(a["mask"].sum(axis=1)):
        g = a["grad_out"][b, :n] if "grad_out" in a else None
        out, grad_x, _ = naive(x[b, :n], weights, None, g, **options)
        np.testing.assert_allclose(out, want[b, :n], rtol=0, atol=tolerance)
        if g is not None:
            want_x = a["grad_x_f64"][b, :n]
            got, selected = np.split(grad_x, [want_x.shape[1]], axis=1)
            np.testing.assert_allclose(got, want_x, rtol=0, atol=tolerance)
            assert not selected.any()


def test_rss_golden() -> None:
    config, a = read("rss/policy")
    for b, n in enumerate(a["mask"].sum(axis=1)):
        p = rss.probabilities(a["x"][b, :n], a, config["activation"])
        # This file holds the authors' float32 results only.
        np.testing.assert_allclose(p, a["output"][b, :n], rtol=0, atol=1e-5)
        chosen = rss.actions(p, a["uniform"][b, :n])
        np.testing.assert_array_equal(chosen, a["actions"][b, :n])
        np.testing.assert_allclose(
            rss.log_probabilities(p, chosen), a["logp"][b, :n], rtol=0, atol=1e-5
        )
        assert rss.share(chosen) == pytest.approx(a["percentage"][b], abs=1e-6)


@pytest.mark.parametrize("f", ["elu", "relu", "selu"])
def test_rss_gradients(f: str) -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(N, D))
    W = {name: rng.normal(size=shape) for name, shape in RSS.items()}
    chosen, g = rng.random(N) < 0.5, rng.normal(size=N)
    grad_x, grads = rss.gradients(x, W, chosen, g, f)

    def value(at: dict[str, Array]) -> float:
        p = rss.probabilities(at.pop("x"), at, f)
        return float(rss.log_probabilities(p, chosen) @ g)

    assert_gradients(value, {"x": x, **W}, {"x": grad_x, **grads}, rng)


def test_rss_by_hand() -> None:
    x = np.array([[1.0], [3.0]])  # m = 2, z = [1, 2, 2] and [3, 2, 6]
    W = {"w1": np.array([[1.0], [-2.0], [0.5]]), "b1": np.array([0.0]), "w2": np.full((1, 1), 2.0)}
    p = rss.probabilities(x, {**W, "b2": np.array([1.0])})
    hidden = [np.exp(-2.0) - 1, 2.0]  # elu of -2 and of 2
    np.testing.assert_allclose(p, [1 / (1 + np.exp(-1 - 2 * t)) for t in hidden], rtol=1e-15)
    np.testing.assert_array_equal(rss.actions(p, p), [True, True])
    np.testing.assert_array_equal(rss.actions(p, np.nextafter(p, 1)), [False, False])
    assert rss.share(np.array([True, False, False, True])) == 0.5


def test_improbable_actions_count_as_much_as_the_clip_and_have_no_gradient() -> None:
    W = {"w1": np.zeros((3, 1)), "b1": np.zeros(1), "w2": np.zeros((1, 1)), "b2": np.array([-30.0])}
    x, chosen = np.array([[1.0], [2.0]]), np.array([True, False])
    p = rss.probabilities(x, W)
    np.testing.assert_allclose(
        rss.log_probabilities(p, chosen), [np.log(1e-10), -np.exp(-30)], rtol=1e-2
    )
    _, grads = rss.gradients(x, W, chosen, np.array([1.0, 0.0]))
    assert not grads["b2"].any()


def disa_weights(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the weights that are not of an RSS or of source2token."""
    rest = ("w1", "b1", "w2", "b2")
    return {k: w for k, w in weights.items() if k[-2:] not in rest and not k.startswith("s2t_")}


@pytest.mark.parametrize("how", ["all", "threshold"])
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_resa_with_every_token_selected_is_disa(direction: str, reading: str, how: str) -> None:
    config = Config("resa", "all", {"direction": direction})
    x, weights, rng = draw(config)
    for name in ("dep_b2", "head_b2"):
        weights[name] = np.array([1e3 if how == "threshold" else -1e3])
    g = rng.normal(size=resa.naive(x, weights, direction=direction)[0].shape)
    got = resa.naive(x, weights, None, g, direction=direction, unselected=reading, selection=how)
    want = disa.naive(x, disa_weights(weights), None, g, direction=direction)
    np.testing.assert_allclose(got[0], want[0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(got[1], want[1], rtol=0, atol=1e-13)
    for name in weights:
        expected = want[2].get(name, np.zeros(weights[name].shape))
        np.testing.assert_allclose(got[2][name], expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("direction", ["forward", "backward", "diagonal"])
def test_a_selected_head_sees_disa_of_its_selected_dependents(direction: str) -> None:
    x, weights, _ = draw(Config("resa", "sub", {"direction": direction}))
    dep, head = np.array([1, 0, 1, 1, 0, 1]) > 0, np.array([0, 1, 1, 0, 1, 0]) > 0
    out = resa.fuse(x, weights, np.arange(N), None, dep, head, direction)[0]
    for i in np.flatnonzero(head).tolist():
        tokens = [j for j in range(N) if dep[j] or j == i]
        alone = disa.naive(x[tokens], disa_weights(weights), [tokens.index(i)], direction=direction)
        np.testing.assert_allclose(out[[i]], alone[0], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("reading", "want"),
    [
        ("all_real", [0, 15 / 4, 15 / 4, 5 / 2]),
        ("dependents", [0, 5 / 2, 5 / 2, 5 / 2]),
        ("others", [0, 13 / 3, 11 / 3, 5 / 2]),
    ],
)
def test_unselected_heads_by_hand(reading: str, want: list[float]) -> None:
    x = np.array([[1.0], [2.0], [4.0], [8.0]])  # h = x, equal scores, and a gate that takes a
    weights = {name: np.zeros((1, 1)) for name in DISA[0]} | {name: np.zeros(1) for name in DISA[1]}
    weights |= {"map_w": np.ones((1, 1)), "o_b": np.array([-60.0])}
    dep, head = np.array([1, 0, 1, 0]) > 0, np.array([1, 0, 0, 1]) > 0

    def fuse(x: Array, dep: Array, head: Array) -> Array:
        return resa.fuse(
            x, weights, np.arange(len(x)), None, dep, head, "forward", "relu", 5.0, reading
        )[0][:, 0]

    np.testing.assert_allclose(fuse(x, dep, head), want, rtol=0, atol=1e-14)
    nobody = fuse(x, dep & False, head)
    assert nobody[3] == pytest.approx(0.0, abs=1e-14)
    assert (abs(nobody[1]) < 1e-14) == (reading == "dependents")
    alone = fuse(x[:1], np.array([True]), np.array([False]))[0]
    assert alone == pytest.approx(0.0 if reading == "others" else 1.0, abs=1e-14)


def test_a_token_is_selected_from_one_half_on() -> None:
    config = Config("resa", "threshold")
    x, weights, _ = draw(config)
    chosen = {
        name: rss.actions(selections(x, weights, config, name), np.full(N, 0.5))
        for name in ("dep", "head")
    }
    want = resa.fuse(x, weights, np.arange(N), None, chosen["dep"], chosen["head"])[0]
    np.testing.assert_array_equal(resa.naive(x, weights)[0], want)
    zero = weights | {f"{k}_{p}": 0 * weights[f"{k}_{p}"] for k in chosen for p in RSS}  # p = .5
    np.testing.assert_array_equal(resa.naive(x, zero)[0], resa.naive(x, zero, selection="all")[0])
    with pytest.raises(ValueError, match="actions"):
        resa.naive(x, weights, selection="sampled")


@pytest.mark.parametrize(
    ("scale", "n", "want"),
    [
        (1, 9, 1), (2, 9, 3), (3, 9, 3), (4.5, 9, 5), (0.5, 9, 1), (100, 9, 101), ("n/16", 9, 1),
        ("n/4", 7, 1), ("n/4", 8, 3), ("n/4", 15, 3), ("n/4", 16, 5), ("n/2", 20, 11),
    ],
)  # fmt: skip
def test_scales_are_forced_odd(scale: float | str, n: int, want: int) -> None:
    assert msmsa.width(scale, n) == want


@pytest.mark.parametrize("scales", [(2 * N - 1, 50), ("n/1", "n/1")])
def test_windows_beyond_the_sentence_are_full_attention(scales: tuple[float | str, ...]) -> None:
    x, weights, rng = draw(Config("msmsa", "full", {"heads": 2}))
    g = rng.normal(size=(N, 5))
    reading = "radius" if isinstance(scales[0], str) else "total"
    options = {"heads": 2, "scales": scales, "width_reading": reading}
    got = msmsa.naive(x, weights, None, g, **options)
    want = multi_head.naive(x, weights, None, g, heads=2, positions=None)
    np.testing.assert_allclose(got[0], want[0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(got[1], want[1], rtol=0, atol=1e-13)
    for name in weights:
        np.testing.assert_allclose(got[2][name], want[2][name], rtol=0, atol=1e-13)


def test_scale_1_works_position_by_position() -> None:
    x, weights, _ = draw(Config("msmsa", "1", {"heads": 2}))
    values = np.concatenate([x @ weights["v_w"][c] for c in range(2)], axis=1)
    out = msmsa.naive(x, weights, heads=2, scales=(1, 1))[0]
    np.testing.assert_allclose(out, values @ weights["o_w"], rtol=0, atol=1e-14)


def test_equal_scores_average_a_window_cut_at_the_ends() -> None:
    x, weights, _ = draw(Config("msmsa", "mean", {"heads": 1}))
    weights["q_w"] = 0 * weights["q_w"]
    v = x @ weights["v_w"][0]
    for scale, reading, half in ((3, "total", 1), (3, "radius", 3), ("n/2", "total", 1)):
        mean = [v[max(0, i - half) : i + half + 1].mean(axis=0) for i in range(N)]
        out = msmsa.naive(x, weights, heads=1, scales=[scale], width_reading=reading)[0]
        np.testing.assert_allclose(out, mean @ weights["o_w"], rtol=0, atol=1e-14)


def test_model_width_divides_scores_by_the_root_of_the_models_width() -> None:
    x, weights, _ = draw(Config("msmsa", "scaling", {"heads": 2}))
    narrower = weights | {"q_w": weights["q_w"] * np.sqrt(D_H / D)}
    np.testing.assert_allclose(
        msmsa.naive(x, weights, heads=2, scales=(3, 5), scaling="model_width")[0],
        msmsa.naive(x, narrower, heads=2, scales=(3, 5))[0],
        rtol=0,
        atol=1e-14,
    )


def test_default_scales_are_repeated_over_the_heads() -> None:
    x, weights, _ = draw(Config("msmsa", "cycle", {"heads": 6}), 40)
    scales = (1, 3, "n/16", "n/8", "n/4", 1)
    np.testing.assert_array_equal(
        msmsa.naive(x, weights, heads=6)[0], msmsa.naive(x, weights, heads=6, scales=scales)[0]
    )


def normed(z: Array, epsilon: float = 0.0) -> Array:
    """Return z [n, d] with mean 0 and variance 1 in each row."""
    centred = z - z.sum(axis=1, keepdims=True) / z.shape[1]
    return centred / np.sqrt((centred**2).sum(axis=1, keepdims=True) / z.shape[1] + epsilon)


def test_multi_scale_layer_is_norm_of_input_plus_relu() -> None:
    x, weights, _ = draw(Config("msmsa", "layer", {"heads": 2, "layer": True}))
    plain = {k: w for k, w in weights.items() if not k.startswith("ln")}
    inner = msmsa.naive(x, plain, heads=2)[0]
    want = normed(x + np.maximum(inner, 0), 0.1) * weights["ln_scale"] + weights["ln_offset"]
    out = msmsa.naive(x, weights, heads=2, layer=True, ln_epsilon=0.1)[0]
    np.testing.assert_allclose(out, want, rtol=0, atol=1e-13)


@pytest.mark.parametrize("layer", [True, False])
def test_reversed_sentences_give_reversed_tokens(layer: bool) -> None:
    x, weights, _ = draw(Config("msmsa", "reverse", {"heads": 5, "layer": layer}))
    forth = msmsa.naive(x, weights, heads=5, layer=layer)[0]
    back = msmsa.naive(x[::-1], weights, heads=5, layer=layer)[0]
    np.testing.assert_allclose(back[::-1], forth, rtol=0, atol=1e-13)


def test_stack_without_attention_is_layers_of_feed_forward_and_norms() -> None:
    x, weights, _ = draw(Config("mtsa_stack", "zero", {"heads": 2}))
    for i in range(2):
        weights[f"l{i}_o_w"] = 0 * weights[f"l{i}_o_w"]
        weights[f"l{i}_o_b"] = np.abs(weights[f"l{i}_o_b"])
    want = x
    for i in range(2):
        W = {k[3:]: w for k, w in weights.items() if k.startswith(f"l{i}_")}
        want = want + np.maximum(want @ W["ffn_w"] + W["ffn_b"], 0)
        want = normed(want, 1e-6) * W["ln1_scale"] + W["ln1_offset"] + W["o_b"]
        want = normed(want, 1e-6) * W["ln2_scale"] + W["ln2_offset"]
    np.testing.assert_allclose(mtsa_stack.naive(x, weights, heads=2)[0], want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("directions", [True, False])
@pytest.mark.parametrize("scale_s", ["identity", "log_sigmoid"])
def test_nmt_with_scores_of_keys_is_mtsa(scale_s: str, directions: bool) -> None:
    options = {"heads": 2, "hidden_activation": "elu", "scale_s": scale_s}
    x, weights, rng = draw(Config("mtsa_nmt", "paper", options))
    g = rng.normal(size=(N, 5))
    got = mtsa_nmt.naive(
        x, weights, None, g, source2token_scaled=False, source2token_from_keys=True,
        bi_direction=directions, **options,
    )  # fmt: skip
    masks = ("forward_inclusive", "backward_inclusive") if directions else ("none", "none")
    want = mtsa.naive(
        x, weights, None, g, heads=2, masks=masks, scale_t="identity", scale_s=scale_s,
        activation="elu",
    )  # fmt: skip
    np.testing.assert_allclose(got[0], want[0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(got[1], want[1], rtol=0, atol=1e-13)
    for name in weights:
        np.testing.assert_allclose(got[2][name], want[2][name], rtol=0, atol=1e-13)


@pytest.mark.parametrize("from_keys", [True, False])
def test_nmt_scores_come_scaled_from_keys_or_values(from_keys: bool) -> None:
    x, weights, _ = draw(Config("mtsa_nmt", "scores", {"heads": 1, "output_layer": False}))
    weights["q_w"] = 0 * weights["q_w"]
    v = x @ weights["v_w"][0]
    u = x @ weights["k_w"][0] if from_keys else v
    score = 1 / (1 + np.exp(-(u @ weights["s1_w"][0] + weights["s1_b"][0]) / np.sqrt(D_H)))
    out = mtsa_nmt.naive(x, weights, heads=1, source2token_from_keys=from_keys, output_layer=False)[
        0
    ]
    want = (score * v).sum(axis=0) / score.sum(axis=0)
    np.testing.assert_allclose(out, np.tile(want, (N, 1)), rtol=0, atol=1e-13)


def test_transformer_of_zero_weights_is_the_norm_of_its_input() -> None:
    config = Config("transformer", "zero", {"heads": 2, "layers": 1})
    x, weights, _ = draw(config)
    for name in weights:
        if name.startswith("l0_"):
            weights[name] = np.full(weights[name].shape, float(name.endswith("scale")))
    H = np.vstack([weights["cls"], x])
    m, i = np.arange(D) // 2, np.arange(N + 1)[:, None]
    angle = i / 10000 ** (2 * m / D)
    placed = H + np.where(np.arange(D) % 2 == 0, np.sin(angle), np.cos(angle))
    for positions, start in ((True, placed), (False, H)):
        top = normed(start)  # of variance 1: the second norm changes nothing
        want = np.concatenate([top[0], top[1:].max(axis=0)])
        for readout, expected in (("concat", want), ("sum", want[:D] + want[D:])):
            out = transformer.naive(
                x, weights, positions=positions, readout=readout, ln_epsilon=0.0, **config.options
            )[0]
            np.testing.assert_allclose(out, expected, rtol=0, atol=1e-13)


def test_transformer_layer_is_attention_then_feed_forward() -> None:
    config = Config("transformer", "one", {"heads": 2, "layers": 1}, narrow=True)
    x, weights, _ = draw(config)
    W = {k.removeprefix("l0_"): w for k, w in weights.items()}
    H = np.vstack([W["cls"], x @ W["in_w"]])
    attended = multi_head.naive(H, W, heads=2, positions=None)[0]
    Z = normed(H + attended, 1e-5) * W["ln1_scale"] + W["ln1_offset"]
    F = np.maximum(Z @ W["ff1_w"] + W["ff1_b"], 0) @ W["ff2_w"] + W["ff2_b"]
    top = normed(Z + F, 1e-5) * W["ln2_scale"] + W["ln2_offset"]
    out = transformer.naive(x, weights, positions=False, **config.options)[0]
    want = np.concatenate([top[0], top[1:].max(axis=0)])
    np.testing.assert_allclose(out, want, rtol=0, atol=1e-12)
    shuffled = transformer.naive(x[::-1], weights, positions=False, **config.options)[0]
    np.testing.assert_allclose(shuffled, out, rtol=0, atol=1e-12)
    assert np.abs(transformer.naive(x, weights, **config.options)[0] - out).max() > 1e-3


def test_head_numbers_of_the_papers_example() -> None:
    want = [[5, 2, 2, 1, 0], [4, 2, 2, 1, 1], [2, 2, 2, 2, 2]]
    assert multi_scale.head_numbers(0.5, 10, 3, 5) == want
    omega = multi_scale.scales_of_layers(0.5, 10, 3, (1, 3, "n/16", "n/8", "n/4"))
    assert omega[0] == [1, 1, 1, 1, 1, 3, 3, "n/16", "n/16", "n/8"]
    assert multi_scale.head_numbers(0.5, 5, 1, 5) == [[1, 1, 1, 1, 1]]


@pytest.mark.parametrize("alpha", [-1.0, -0.5, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("heads", [1, 4, 5, 10, 30])
def test_head_numbers_share_out_all_heads(alpha: float, heads: int) -> None:
    rows = multi_scale.head_numbers(alpha, heads, 4, 5)
    assert [sum(row) for row in rows] == [heads] * 4
    assert min(min(row) for row in rows) >= 0
    small = [sum(row[:2]) for row in rows[:-1]]
    assert small == sorted(small, reverse=alpha > 0)
    if heads % 5 == 0:
        assert rows[-1] == [heads // 5] * 5
        assert alpha != 0 or rows[0] == rows[-1]


@pytest.mark.parametrize("narrow", [True, False])
def test_multi_scale_transformer_is_layers_over_cls_and_tokens(narrow: bool) -> None:
    scales = ((1, "n/2"), ("n/3", 3))
    x, weights, _ = draw(Config("multi_scale_transformer", "by hand", {"heads": 2}, narrow))
    H = np.vstack([weights["cls"], x @ weights["in_w"] if narrow else x])
    for i, widths in enumerate(((1, 3), (3, 3))):  # of 7 positions: n/2 is 3.5, n/3 is 2.3
        W = {k[3:]: w for k, w in weights.items() if k.startswith(f"l{i}_")}
        H = msmsa.naive(H, W, heads=2, scales=widths, layer=True)[0]
    peak = H[1:].max(axis=0)
    for readout, want in (
        ("concat", np.concatenate([H[0], peak])), ("sum", H[0] + peak), ("max", peak),
    ):  # fmt: skip
        out = multi_scale.naive(x, weights, heads=2, scales=scales, readout=readout)[0]
        np.testing.assert_allclose(out, want, rtol=0, atol=1e-13)


def test_multi_scale_transformer_without_cls_reads_no_order() -> None:
    options = {"heads": 4, "cls": False, "readout": "max"}
    x, weights, _ = draw(Config("multi_scale_transformer", "order", options))
    both = [multi_scale.naive(s, weights, **options)[0] for s in (x, x[::-1])]
    np.testing.assert_allclose(both[0], both[1], rtol=0, atol=1e-13)
    words = [multi_scale.naive(x[[i]], weights, **options)[0] for i in range(N)]
    alone = multi_scale.naive(x, weights, scales=[[1] * 4] * 2, **options)[0]
    np.testing.assert_allclose(alone, np.max(words, axis=0), rtol=0, atol=1e-13)


def s2t(y: Array, weights: Mapping[str, Array], f: str = "elu") -> Array:
    """Return source2token of the tokens y [n, d], with the weights that begin with s2t_."""
    return source2token.naive(
        y, {k[4:]: w for k, w in weights.items() if k.startswith("s2t_")}, activation=f
    )[0]


@pytest.mark.parametrize("f", ["elu", "relu"])
def test_resan_without_hard_attention_is_disan(f: str) -> None:
    x, weights, _ = draw(Config("resan", "disan", {"variant": "no_hard"}))
    want = s2t(disa.naive(x, disa_weights(weights), activation=f)[0], weights, f)
    out = resan.naive(x, weights, variant="no_hard", activation=f)[0]
    np.testing.assert_allclose(out, want, rtol=0, atol=1e-13)
    for variant in ("full", "without_unselected_heads"):
        out = resan.naive(x, weights, variant=variant, selection="all", activation=f)[0]
        np.testing.assert_allclose(out, want, rtol=0, atol=1e-13)


@pytest.mark.parametrize("reading", READINGS)
def test_resan_pools_all_tokens_or_the_selected_heads(reading: str) -> None:
    config = Config("resan", "pools")
    x, weights, _ = draw(config)
    heads = selections(x, weights, config, "head") >= 0.5
    tokens = resa.naive(x, weights, unselected=reading)[0]
    for variant, pool in (("full", tokens), ("without_unselected_heads", tokens[heads])):
        out = resan.naive(x, weights, unselected=reading, variant=variant)[0]
        np.testing.assert_allclose(out, s2t(pool, weights), rtol=0, atol=1e-13)
    kept = resan.naive(x, weights, variant="without_unselected_heads")[0]
    np.testing.assert_allclose(out, kept, rtol=0, atol=1e-13)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_resan_of_one_rss_is_disan_of_the_selected_tokens(direction: str) -> None:
    options = {"variant": "one_rss", "direction": direction}
    config = Config("resan", "sub", options)
    x, weights, rng = draw(config)
    chosen = selections(x, weights, config, "sel") >= 0.5
    g = rng.normal(size=6)
    out, grad_x, _ = resan.naive(x, weights, None, g, **options)
    want = resan.naive(x[chosen], weights, None, g, variant="no_hard", direction=direction)
    np.testing.assert_allclose(out, want[0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(grad_x[chosen], want[1], rtol=0, atol=1e-13)
    assert not grad_x[~chosen].any()


def test_resan_without_soft_attention_pools_words() -> None:
    config = Config("resan", "words", {"variant": "no_soft"})
    x, weights, _ = draw(config)
    chosen = selections(x, weights, config, "sel") >= 0.5
    for selection, pool in (("threshold", x[chosen]), ("all", x)):
        out = resan.naive(x, weights, variant="no_soft", selection=selection)[0]
        np.testing.assert_allclose(out, s2t(pool, weights), rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        resan.naive(x, {}, variant="neither")[0], x.sum(axis=0) / N, rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("variant", ["without_unselected_heads", "one_rss", "no_soft"])
def test_resan_of_an_empty_pool_is_zero(variant: str) -> None:
    x, weights, _ = draw(Config("resan", "empty", {"variant": variant}))
    for name in ("head_b2", "sel_b2"):
        if name in weights:
            weights[name] = np.array([-1e3])
    out = resan.naive(x, weights, variant=variant)[0]
    _, grad_x, grads = resan.naive(x, weights, None, np.ones(out.shape), variant=variant)
    assert out.shape == (D if variant == "no_soft" else 6,)
    assert not any(a.any() for a in (out, grad_x, *grads.values()))
