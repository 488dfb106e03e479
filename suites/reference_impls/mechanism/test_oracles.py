"""The float64 oracles: their gradients, their restriction to rows, their edges, the goldens."""

from __future__ import annotations

import importlib
import json
import tracemalloc
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Array = np.ndarray
GOLDEN = Path(__file__).parents[2] / "harness" / "verify" / "golden"
D, D_H, D_I, D_A = 5, 2, 3, 4
N = 5
MASKS = (
    "none", "diagonal", "forward", "backward", "forward_inclusive", "backward_inclusive",
    "window:1", "distance:0.7",
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """One oracle in one configuration.

    Attributes
    ----------
    oracle : str
        ``folder.file`` below ``reference_impls``.
    label : str
        What is special about it.
    options : mapping
    """

    oracle: str
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.oracle.removesuffix('.naive')}-{self.label}"

    @property
    def naive(self) -> Callable[..., Any]:
        return importlib.import_module(f"reference_impls.{self.oracle}").naive

    @property
    def sentence(self) -> bool:
        return self.oracle.startswith("source2token")


def _mtsa_shapes(o: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    h, width = o["heads"], o["heads"] * D_H
    return {
        "q_w": (h, D, D_I), "k_w": (h, D, D_I), "v_w": (h, D, D_H), "s1_w": (h, D_I, D_A),
        "s1_b": (h, D_A), "s2_w": (h, D_A, D_H), "s2_b": (h, D_H), "o_w": (width, width),
    }  # fmt: skip


def _released_shapes(o: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    h, before, after = o["heads"], o.get("input_hidden"), o.get("output_hidden")
    d_x = before or D
    d_u = d_x if o.get("scores_from_input") else D_H
    hidden = o.get("source2token_hidden_layer", True)
    shapes: dict[str, tuple[int, ...]] = {
        "v_w": (h, d_x, D_H), "v_b": (h, D_H), "q_w": (h, d_u, D_H), "k_w": (h, d_u, D_H),
        "s2_w": (h, D_H if hidden else d_u, D_H), "s2_b": (h, D_H),
    }  # fmt: skip
    if o.get("accelerate") and o.get("scores_from_input"):
        del shapes["v_b"]
    if hidden:
        shapes |= {"s1_w": (h, d_u, D_H), "s1_b": (h, D_H)}
    if o.get("fusion_gate", True):
        shapes |= {"g_w": (h, 2 * D_H, D_H), "g_b": (h, D_H)}
    if before:
        shapes |= {"in_w": (D, before), "in_b": (before,)}
    if after:
        shapes |= {"o_w": (h * D_H, after), "o_b": (after,)}
    return shapes


def _multi_head_shapes(o: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("q_w", "k_w", "v_w"), (o["heads"], D, D_H))
    return shapes | ({"o_w": (o["heads"] * D_H, 7)} if o.get("output_layer", True) else {})


def _disa_shapes(o: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    one: dict[str, tuple[int, ...]] = {"map_w": (D, 3)}
    one |= dict.fromkeys(("dep_w", "head_w", "fi_w", "fa_w"), (3, 3))
    bias: tuple[int, ...] = (3,)
    one |= dict.fromkeys(("map_b", "f_b", "fi_b", "fa_b", "o_b"), bias)
    prefixes = ("fw_", "bw_") if o.get("direction", "both") == "both" else ("",)
    return {prefix + name: shape for prefix in prefixes for name, shape in one.items()}


def _lstm_shapes(o: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    one = {"weight_ih": (12, D), "weight_hh": (12, 3), "bias_ih": (12,), "bias_hh": (12,)}
    return {f"lstm.{name}_l0{s}": shape for s in ("", "_reverse") for name, shape in one.items()}


def _cnn_shapes(o: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    sizes = o.get("kernel_sizes", (3, 4, 5))
    return {f"w{k}": (k, D, 3) for k in sizes} | {f"b{k}": (3,) for k in sizes}


SHAPES: dict[str, Callable[[Mapping[str, Any]], dict[str, tuple[int, ...]]]] = {
    "mtsa.naive": _mtsa_shapes,
    "mtsa.naive_released": _released_shapes,
    "multi_head.naive": _multi_head_shapes,
    "source2token.naive": lambda o: {
        "s1_w": (D, D), "s2_w": (D, D), "s1_b": (D,), "s2_b": (D,),
    },
    "disa.naive": _disa_shapes,
    "bi_lstm.naive": _lstm_shapes,
    "multi_cnn.naive": _cnn_shapes,
}  # fmt: skip

RELEASED: dict[str, dict[str, Any]] = {
    "default": {},
    "elu": {"activation": "elu"},
    "selu-identity": {"activation": "selu", "scale_t": "identity"},
    "linear-values": {"activation_on_values": False},
    "scores-from-input": {"scores_from_input": True},
    "one-layer-scores": {"source2token_hidden_layer": False, "activation": "elu"},
    "no-gate": {"fusion_gate": False, "activation": "selu"},
    "no-direction": {"directional": False, "activation": "elu"},
    "include-self": {"include_self": True, "activation": "elu"},
    "accelerate": {"accelerate": True, "activation": "selu"},
    "accelerate-linear": {
        "accelerate": True, "activation": "elu", "activation_on_values": False,
    },
    "accelerate-from-input": {
        "accelerate": True, "activation": "elu", "scores_from_input": True,
    },
    "input-layer": {"input_hidden": 4, "activation": "elu"},
    "output-layer": {"output_hidden": 6},
    "both-layers-from-input": {
        "input_hidden": 4, "output_hidden": 3, "scores_from_input": True, "activation": "elu",
    },
}  # fmt: skip
CONFIGS = [
    *(
        Config(
            "mtsa.naive", f"{t}-{s}-{f}",
            {"heads": len(MASKS), "masks": MASKS, "scale_t": t, "scale_s": s, "activation": f},
        )
        for t in ("log_sigmoid", "identity")
        for s in ("log_sigmoid", "identity")
        for f in ("relu", "elu", "selu")
    ),
    Config("mtsa.naive", "default", {"heads": 4}),
    *(
        Config("mtsa.naive_released", name, {"heads": 4, **options})
        for name, options in RELEASED.items()
    ),
    *(
        Config(
            "multi_head.naive", f"{p}-{o}", {"heads": 3, "positions": p, "output_layer": o}
        )
        for p in ("paper", "released", None)
        for o in (True, False)
    ),
    *(Config("source2token.naive", f, {"activation": f}) for f in ("relu", "elu", "selu")),
    *(Config("disa.naive", k, {"direction": k}) for k in ("both", "forward", "backward")),
    Config("disa.naive", "diagonal-selu", {"direction": "diagonal", "activation": "selu"}),
    Config("disa.naive", "relu-2", {"activation": "relu", "tanh_scale": 2.0}),
    Config("bi_lstm.naive", "default"),
    Config("multi_cnn.naive", "default"),
    Config("multi_cnn.naive", "1-2-6", {"kernel_sizes": (1, 2, 6)}),
]  # fmt: skip
each_config = pytest.mark.parametrize("config", CONFIGS, ids=str)


def draw(config: Config, n: int) -> tuple[Array, dict[str, Array], np.random.Generator]:
    """Return x [n, D], weights and the generator, the same for the same configuration."""
    rng = np.random.default_rng(zlib.crc32(str(config).encode()))
    shapes = SHAPES[config.oracle](config.options)
    weights = {name: rng.normal(size=shape) * 0.7 for name, shape in shapes.items()}
    return rng.normal(size=(n, D)), weights, rng


def cotangent(config: Config, x: Array, weights: Mapping[str, Array], rng: Any) -> Array:
    """Return random numbers with the shape of the output."""
    return rng.normal(size=config.naive(x, weights, **config.options)[0].shape)


@each_config
def test_gradients_are_those_of_the_forward_pass(config: Config) -> None:
    x, weights, rng = draw(config, N)
    g = cotangent(config, x, weights, rng)
    out, grad_x, grads = config.naive(x, weights, None, g, **config.options)
    assert set(grads) == set(weights)
    np.testing.assert_array_equal(out, config.naive(x, weights, **config.options)[0])
    points, gradients = {"x": x, **weights}, {"x": grad_x, **grads}
    for name, point in points.items():
        assert gradients[name].shape == point.shape
        directions = [rng.normal(size=point.shape) for _ in range(2)]
        for index in rng.integers(point.size, size=3):
            directions.append(np.zeros(point.shape))
            directions[-1].flat[index] = 1.0
        for u in directions:

            def value(h: float, name: str = name, u: Array = u) -> float:
                moved = {**points, name: points[name] + h * u}
                at = moved.pop("x")
                return float(np.sum(config.naive(at, moved, **config.options)[0] * g))

            expected = float(np.sum(gradients[name] * u))
            errors = [abs(_central_difference(value, h) - expected) for h in (2e-4, 2e-5)]
            # The shorter step only counts where the longer one crosses a kink of an activation.
            assert min(errors) <= 1e-9 * max(1.0, abs(expected)), name


def _central_difference(f: Callable[[float], float], h: float) -> float:
    """Return f'(0) by the fourth-order formula: rounding, near 1e-14 / h, is what is left."""
    return (8 * (f(h) - f(-h)) - f(2 * h) + f(-2 * h)) / (12 * h)


@pytest.mark.parametrize("config", [c for c in CONFIGS if not c.sentence], ids=str)
def test_rows_restrict_the_full_computation(config: Config) -> None:
    x, weights, rng = draw(config, N + 2)
    full = config.naive(x, weights, **config.options)[0]
    for rows in ([4, 0, 5], [0], [N + 1], []):
        g = rng.normal(size=(len(rows), full.shape[1]))
        everywhere = np.zeros(full.shape)
        everywhere[rows] = g
        out, grad_x, grads = config.naive(
            x, weights, np.array(rows, dtype=int), g, **config.options
        )
        _, want_x, want = config.naive(x, weights, None, everywhere, **config.options)
        np.testing.assert_allclose(out, full[rows], rtol=0, atol=1e-13)
        np.testing.assert_allclose(grad_x, want_x, rtol=0, atol=1e-12)
        for name in weights:
            np.testing.assert_allclose(grads[name], want[name], rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "config", [c for c in CONFIGS if c.label in ("default", "both", "paper-True")], ids=str
)
def test_few_rows_never_cost_n_times_n(config: Config) -> None:
    n = 2000
    x, weights, _ = draw(config, n)
    rows = np.array([0, 1700])  # one without a key under the forward mask
    g = np.ones((2, config.naive(x[:2], weights, **config.options)[0].shape[1]))
    tracemalloc.start()
    config.naive(x, weights, rows, g, **config.options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n * 8 / 4  # bytes: a quarter of one n x n matrix


@pytest.mark.parametrize("factor", [100.0, 1e6])
@each_config
def test_large_scores_stay_finite(config: Config, factor: float) -> None:
    x, weights, rng = draw(config, N)
    g = cotangent(config, x, weights, rng)
    for name in weights:
        # The weights that make scores or, without attention, preactivations of gates.
        if name.startswith(("q_w", "s2_", "g_", "fw_dep", "bw_head", "dep", "fi_", "lstm.weight")):
            weights[name] = weights[name] * factor
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        out, grad_x, grads = config.naive(x, weights, None, g, **config.options)
    assert all(np.isfinite(a).all() for a in (out, grad_x, *grads.values()))


@each_config
def test_one_token(config: Config) -> None:
    x, weights, rng = draw(config, 1)
    g = cotangent(config, x, weights, rng)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        out, grad_x, grads = config.naive(x, weights, None, g, **config.options)
    assert len(out) == len(g)
    assert all(np.isfinite(a).all() for a in (out, grad_x, *grads.values()))
    if config.sentence:
        np.testing.assert_array_equal(out, x[0])


@pytest.mark.parametrize(("mask", "row"), [("forward", 0), ("backward", N - 1), ("diagonal", None)])
def test_a_query_without_a_key_attends_to_nothing(mask: str, row: int | None) -> None:
    config = Config("mtsa.naive", mask, {"heads": 2, "masks": (mask, mask)})
    x, weights, rng = draw(config, N if row is not None else 1)
    g = rng.normal(size=(1, 2 * D_H))
    out, grad_x, grads = config.naive(x, weights, np.array([row or 0]), g, **config.options)
    for array in (out, grad_x, *grads.values()):
        assert not array.any()


def test_without_a_key_the_fusion_gate_still_acts() -> None:
    x = draw(CONFIGS[0], 1)[0]
    options = {"heads": 2, "activation": "elu"}
    released = Config("mtsa.naive_released", "one token", options)
    weights = draw(released, 1)[1]
    out, _, grads = released.naive(x, weights, None, np.ones((1, 2 * D_H)), **options)
    for c in range(2):
        z = x[0] @ weights["v_w"][c] + weights["v_b"][c]
        v = np.where(z > 0, z, np.expm1(z))
        g = 1 / (1 + np.exp(-(v @ weights["g_w"][c][:D_H] + weights["g_b"][c])))
        np.testing.assert_allclose(out[0, c * D_H : (c + 1) * D_H], g * v, rtol=1e-14, atol=0)
    for name in ("q_w", "k_w", "s1_w", "s2_w"):
        assert not grads[name].any()
    assert grads["v_w"].any()
    assert grads["g_w"].any()

    disa = Config("disa.naive", "forward", {"direction": "forward"})
    weights = draw(disa, 1)[1]
    out, _, grads = disa.naive(x, weights, None, np.ones((1, 3)), **disa.options)
    z = x[0] @ weights["map_w"] + weights["map_b"]
    h = np.where(z > 0, z, np.expm1(z))
    gate = h @ weights["fi_w"] + weights["fi_b"] + weights["fa_b"] + weights["o_b"]
    np.testing.assert_allclose(out[0], h / (1 + np.exp(-gate)), rtol=1e-14, atol=0)
    assert not grads["dep_w"].any()
    assert not grads["fa_w"].any()
    assert grads["fa_b"].any()


def test_huge_scores_select_the_best_key_of_each_feature() -> None:
    options = {"heads": 1, "masks": ("diagonal",), "scale_t": "identity"}
    config = Config("mtsa.naive", "argmax", options)
    x, weights, _ = draw(config, N)
    weights["s2_w"], weights["s2_b"] = weights["s2_w"] * 1e6, weights["s2_b"] * 1e6
    weights["o_w"] = np.eye(D_H)
    out = config.naive(x, weights, **options)[0]
    t = np.maximum(x @ weights["k_w"][0] @ weights["s1_w"][0] + weights["s1_b"][0], 0)
    s = t @ weights["s2_w"][0] + weights["s2_b"][0]
    v = x @ weights["v_w"][0]
    for i in range(N):
        keys = [j for j in range(N) if j != i]
        best = [keys[int(np.argmax(s[keys, c]))] for c in range(D_H)]
        np.testing.assert_array_equal(out[i], v[best, range(D_H)])


ALLOWED: dict[str, Callable[[int, int], bool]] = {
    "none": lambda i, j: True,
    "diagonal": lambda i, j: j != i,
    "forward": lambda i, j: j < i,
    "backward": lambda i, j: j > i,
    "forward_inclusive": lambda i, j: j <= i,
    "backward_inclusive": lambda i, j: j >= i,
    "window:0": lambda i, j: j == i,
    "window:2": lambda i, j: -2 <= i - j <= 2,
}


def mean_of_allowed(v: Array, allowed: Callable[[int, int], bool]) -> Array:
    """Return what attention gives when all scores are equal; 0 without an allowed key."""
    keys = [[j for j in range(len(v)) if allowed(i, j)] for i in range(len(v))]
    return np.array([v[k].mean(axis=0) if k else np.zeros(v.shape[1]) for k in keys])


@pytest.mark.parametrize("mask", ALLOWED)
def test_equal_scores_average_the_keys_that_a_mask_allows(mask: str) -> None:
    config = Config("mtsa.naive", mask, {"heads": 1, "masks": (mask,)})
    x, weights, _ = draw(config, N)
    weights |= {"q_w": 0 * weights["q_w"], "s2_w": 0 * weights["s2_w"], "o_w": np.eye(D_H)}
    want = mean_of_allowed(x @ weights["v_w"][0], ALLOWED[mask])
    out = config.naive(x, weights, **config.options)[0]
    np.testing.assert_allclose(out, want, rtol=0, atol=1e-14)


def test_a_distance_mask_multiplies_weights_by_its_exponential() -> None:
    config = Config("mtsa.naive", "distance", {"heads": 1, "masks": ("distance:0.3",)})
    x, weights, _ = draw(config, N)
    weights |= {"q_w": 0 * weights["q_w"], "s2_w": 0 * weights["s2_w"], "o_w": np.eye(D_H)}
    p = np.array([[np.exp(-0.3 * abs(i - j)) for j in range(N)] for i in range(N)])
    want = p / p.sum(axis=1, keepdims=True) @ (x @ weights["v_w"][0])
    out = config.naive(x, weights, **config.options)[0]
    np.testing.assert_allclose(out, want, rtol=0, atol=1e-14)


def test_default_masks_are_forward_then_backward() -> None:
    config = Config("mtsa.naive", "default", {"heads": 4})
    x, weights, _ = draw(config, N)
    masks = ("forward", "forward", "backward", "backward")
    np.testing.assert_array_equal(
        config.naive(x, weights, heads=4)[0], config.naive(x, weights, heads=4, masks=masks)[0]
    )


@pytest.mark.parametrize(
    ("options", "masks"),
    [
        ({}, ("forward", "backward")),
        ({"include_self": True}, ("forward_inclusive", "backward_inclusive")),
        ({"directional": False}, ("diagonal", "diagonal")),
    ],
)
def test_released_directions(options: dict[str, Any], masks: tuple[str, str]) -> None:
    options = {"heads": 2, "fusion_gate": False, "activation_on_values": False, **options}
    config = Config("mtsa.naive_released", "directions", options)
    x, weights, _ = draw(config, N)
    weights |= {"q_w": 0 * weights["q_w"], "s2_w": 0 * weights["s2_w"]}
    out = config.naive(x, weights, **options)[0]
    for c, mask in enumerate(masks):
        want = mean_of_allowed(x @ weights["v_w"][c] + weights["v_b"][c], ALLOWED[mask])
        np.testing.assert_allclose(out[:, c * D_H : (c + 1) * D_H], want, rtol=0, atol=1e-14)


@pytest.mark.parametrize("direction", ["forward", "backward", "diagonal"])
def test_disa_directions(direction: str) -> None:
    config = Config("disa.naive", direction, {"direction": direction, "activation": "relu"})
    x, weights, _ = draw(config, N)
    for name in ("dep_w", "head_w", "fi_w", "fa_w"):
        weights[name] = 0 * weights[name]
    weights["o_b"] = np.full(3, -50.0)  # the gate takes the attended vector alone
    h = np.maximum(x @ weights["map_w"] + weights["map_b"], 0)
    out = config.naive(x, weights, **config.options)[0]
    np.testing.assert_allclose(out, mean_of_allowed(h, ALLOWED[direction]), rtol=0, atol=1e-14)


def test_disa_of_both_directions_is_two_blocks_side_by_side() -> None:
    config = Config("disa.naive", "both")
    x, weights, _ = draw(config, N)
    parts = []
    for prefix, direction in (("fw_", "forward"), ("bw_", "backward")):
        one = {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
        parts.append(config.naive(x, one, direction=direction)[0])
    np.testing.assert_array_equal(config.naive(x, weights)[0], np.concatenate(parts, axis=1))


def test_released_input_layer_comes_before_everything() -> None:
    options = {"heads": 2, "scores_from_input": True, "activation": "elu"}
    config = Config("mtsa.naive_released", "input", {**options, "input_hidden": 4})
    x, weights, _ = draw(config, N)
    z = x @ weights["in_w"] + weights["in_b"]
    np.testing.assert_allclose(
        config.naive(x, weights, **config.options)[0],
        config.naive(np.where(z > 0, z, np.expm1(z)), weights, **options)[0],
        rtol=0,
        atol=1e-14,
    )


@pytest.mark.parametrize("on_values", [True, False])
def test_released_fused_path_from_input_only_lacks_the_bias_of_values(on_values: bool) -> None:
    options = {
        "heads": 2, "scores_from_input": True, "activation": "elu",
        "activation_on_values": on_values,
    }  # fmt: skip
    config = Config("mtsa.naive_released", "fused", {**options, "accelerate": True})
    x, weights, _ = draw(config, N)
    np.testing.assert_array_equal(
        config.naive(x, weights, **config.options)[0],
        config.naive(x, {**weights, "v_b": np.zeros((2, D_H))}, **options)[0],
    )


@pytest.mark.parametrize(
    "file", ["mtsa.naive", "mtsa.naive_released", "source2token.naive", "disa.naive"]
)
def test_activations(file: str) -> None:
    activate = importlib.import_module(f"reference_impls.{file}").activate
    z = np.array([-800.0, -1.0, 0.5])
    low = 1.0507009873554805 * 1.6732632423543772
    for name, want in {
        "relu": [0, 0, 0.5],
        "elu": [-1, np.exp(-1) - 1, 0.5],
        "selu": [-low, low * (np.exp(-1) - 1), 1.0507009873554805 * 0.5],
    }.items():
        np.testing.assert_allclose(activate(z, name)[0], want, rtol=1e-15, atol=0)


ADAPTERS = {
    "mtsa": ("mtsa.naive_released", "mtsa.golden:released"),
    "mtsa_paper": ("mtsa.naive", "mtsa.golden:paper"),
    "multi_head": ("multi_head.naive", "multi_head.golden:released"),
    "multi_head_paper": ("multi_head.naive", "multi_head.golden:paper"),
    "source2token": ("source2token.naive", "source2token.golden:from_golden"),
    "disa": ("disa.naive", "disa.golden:from_golden"),
    "bi_lstm": ("bi_lstm.naive", "bi_lstm.golden:from_golden"),
    "multi_cnn": ("multi_cnn.naive", "multi_cnn.golden:from_golden"),
}
CASES = [f"{p.parent.name}/{p.stem}" for k in ADAPTERS for p in sorted((GOLDEN / k).glob("*.npz"))]


def test_every_folder_has_goldens() -> None:
    assert {case.partition("/")[0] for case in CASES} == set(ADAPTERS)


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    with np.load(GOLDEN / f"{case}.npz") as z:
        arrays = {name: z[name] for name in z.files}
    settings = json.loads(str(arrays.pop("config")))
    folder = case.partition("/")[0]
    oracle, adapter = ADAPTERS[folder]
    file, _, name = adapter.partition(":")
    adapt = getattr(importlib.import_module(f"reference_impls.{file}"), name)
    options, weights, d_out = adapt(settings, arrays)[:3]
    config = Config(oracle, case, options)
    want, want_x = arrays["output_f64"], arrays["grad_x_f64"]
    assert want.shape[-1] == d_out
    assert all(w.dtype == np.float64 for w in weights.values())
    tolerance = 1e-10 * max(1.0, float(np.abs(want).max()))
    for b, real in enumerate(arrays["mask"]):
        n = int(real.sum())
        assert real[:n].all()
        x, pick = arrays["x"][b].astype(np.float64), b if config.sentence else (b, slice(n))
        g = arrays["grad_out"][b].astype(np.float64)
        out, grad_x, _ = config.naive(
            x[:n], weights, None, g if config.sentence else g[:n], **options
        )
        np.testing.assert_allclose(out, want[pick], rtol=0, atol=tolerance)
        # Two released programs leave values at padding, which the cotangent counts.
        if folder == "multi_cnn":
            x[n:] = 0
            grad_x = config.naive(x, weights, None, g, **options)[1][:n]
        elif folder == "multi_head":
            grad_x = grad_x + _uniform_average(g[n:], weights["v_w"]) / len(g)
        np.testing.assert_allclose(grad_x, want_x[b, :n], rtol=0, atol=tolerance)


def _uniform_average(g: Array, v_w: Array) -> Array:
    """Return N times what padded rows [P, H*d_h] add to a token's gradient: they average all v."""
    total = g.sum(axis=0).reshape(len(v_w), -1)  # [H*d_h] -> [H, d_h]
    return np.einsum("hd,hfd->f", total, v_w)
