"""The float64 oracles of the peers: recurrent, convolutional, block-wise, pooling.

Their goldens, their gradients, and what their definitions imply.
"""

from __future__ import annotations

import importlib
import inspect
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reference_impls.biblosa.naive import rule
from reference_impls.disa.naive import naive as disa
from reference_impls.source2token.naive import naive as source2token

Array = np.ndarray
Shapes = dict[str, tuple[int, ...]]
GOLDEN = Path(__file__).parents[2] / "harness" / "verify" / "golden"
SENTENCE = ("kim_cnn", "additive", "disan")
D, D_H, N = 4, 3, 7


def oracle(name: str) -> Callable[..., Any]:
    """Return the naive function of a mechanism."""
    return importlib.import_module(f"reference_impls.{name}.naive").naive


@dataclass(frozen=True)
class Config:
    """One oracle in one configuration; `tail` padded positions if it is told of them."""

    name: str
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    tail: int = 0

    def __str__(self) -> str:
        return f"{self.name}-{self.label}"

    def __call__(self, x: Array, weights: Mapping[str, Array], *rest: Any, **more: Any) -> Any:
        padded = {"padded": len(x) + self.tail} if self.tail else {}
        return oracle(self.name)(x, weights, *rest, **{**self.options, **padded, **more})

    @property
    def tokens(self) -> bool:
        return self.name not in SENTENCE


def _disa_shapes(d_in: int, prefix: str) -> Shapes:
    shapes: Shapes = {f"{prefix}{w}_w": (D_H, D_H) for w in ("dep", "head", "fi", "fa")}
    shapes |= {f"{prefix}{b}_b": (D_H,) for b in ("map", "f", "fi", "fa", "o")}
    return shapes | {f"{prefix}map_w": (d_in, D_H)}


def _biblosa_shapes(o: Mapping[str, Any]) -> Shapes:
    one: Shapes = {
        "map_w": (D, D_H), "dh_w": (D_H, 2 * D_H), "s2t_w": (D_H, D_H), "f_b": (D_H,),
        "comb_w": (3 * D_H, 2 * D_H), "map_b": (D_H,), "s2t_b": (D_H,), "comb_b": (2 * D_H,),
        **_disa_shapes(D_H, "blk_"),
    }  # fmt: skip
    prefixes = ("fw_", "bw_") if o.get("direction", "both") == "both" else ("",)
    return {prefix + name: shape for prefix in prefixes for name, shape in one.items()}


def _gru_shapes(o: Mapping[str, Any]) -> Shapes:
    one: Shapes = {
        "gates_w": (D + D_H, 2 * D_H), "gates_b": (2 * D_H,),
        "cand_w": (D + D_H, D_H), "cand_b": (D_H,),
    }  # fmt: skip
    one |= {"cand_hb": (D_H,)} if o.get("reset") == "after" else {}
    return {prefix + name: shape for prefix in ("fw_", "bw_") for name, shape in one.items()}


def _kim_shapes(o: Mapping[str, Any]) -> Shapes:
    sizes = o.get("kernel_sizes", (3, 4, 5))
    return {f"w{k}": (k, D, D_H) for k in sizes} | {f"b{k}": (D_H,) for k in sizes}


def _hrchy_shapes(o: Mapping[str, Any]) -> Shapes:
    k = o.get("kernel_size", 5)
    shapes: Shapes = {}
    for layer in range(o.get("layers", 3)):
        shapes[f"l{layer}_w"] = (k, D_H if layer else D, 2 * D_H)
        shapes[f"l{layer}_b"] = (2 * D_H,)
    return shapes


def _additive_shapes(o: Mapping[str, Any]) -> Shapes:
    a = o.get("score_dim") or D
    return {"s1_w": (D, a), "s1_b": (a,), "s2_w": (a, 1), "s2_b": (1,)}


def _disan_shapes(o: Mapping[str, Any]) -> Shapes:
    pool: Shapes = {f"pooling.s{i}_w": (2 * D_H, 2 * D_H) for i in (1, 2)}
    pool |= {f"pooling.s{i}_b": (2 * D_H,) for i in (1, 2)}
    return _disa_shapes(D, "fusion.fw_") | _disa_shapes(D, "fusion.bw_") | pool


SHAPES: dict[str, Callable[[Mapping[str, Any]], Shapes]] = {
    "bi_gru": _gru_shapes,
    "kim_cnn": _kim_shapes,
    "hrchy_cnn": _hrchy_shapes,
    "biblosa": _biblosa_shapes,
    "additive": _additive_shapes,
    "disan": _disan_shapes,
}
RELEASED = {"form": "released"}
CONFIGS = [
    Config("bi_gru", "default"),
    Config("bi_gru", "before", {"reset": "before"}),
    Config("bi_gru", "after", {"reset": "after"}),
    Config("kim_cnn", "default"),
    Config("kim_cnn", "1-2-9", {"kernel_sizes": (1, 2, 9)}),
    Config("kim_cnn", "padded", {"windows": "padded"}, tail=2),
    Config("kim_cnn", "padded-1-2-9", {"windows": "padded", "kernel_sizes": (1, 2, 9)}, tail=1),
    Config("hrchy_cnn", "default"),
    Config("hrchy_cnn", "one-layer-k2", {"layers": 1, "kernel_size": 2}),
    Config("hrchy_cnn", "two-layers-k4", {"layers": 2, "kernel_size": 4}),
    Config("hrchy_cnn", "released", RELEASED),
    Config("hrchy_cnn", "released-tail", RELEASED, tail=3),
    Config("hrchy_cnn", "released-k4", {**RELEASED, "kernel_size": 4, "layers": 2}, tail=1),
    Config("biblosa", "default"),
    *(Config("biblosa", f, {"activation": f}) for f in ("relu", "elu", "selu")),
    *(
        Config("biblosa", f"{d}-{form}", {"direction": d, "activation": "elu", "form": form}, tail)
        for d in ("both", "forward", "backward")
        for form, tail in (("paper", 0), ("released", 0), ("released", 4))
    ),
    *(Config("biblosa", f"block{r}", {"block_len": r}) for r in (1, 2, 7, 99)),
    Config("biblosa", "block2-released", {"block_len": 2, **RELEASED}, tail=5),
    Config("biblosa", "extra", {"extra": 1, "tanh_scale": 1.5}),
    Config("biblosa", "extra-released", {"extra": 1, "activation": "selu", **RELEASED}, tail=6),
    Config("additive", "default"),
    *(Config("additive", f, {"activation": f, "score_dim": 6}) for f in ("tanh", "relu", "elu")),
    Config("disan", "default"),
    Config("disan", "relu", {"activation": "relu"}),
    Config("disan", "selu", {"activation": "selu", "tanh_scale": 1.5}),
]
each_config = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c}-{c.tail}")
each_tokens = pytest.mark.parametrize(
    "config", [c for c in CONFIGS if c.tokens], ids=lambda c: f"{c}-{c.tail}"
)


def draw(config: Config, n: int) -> tuple[Array, dict[str, Array], np.random.Generator]:
    """Return x [n, D], weights and the generator, the same for the same configuration."""
    rng = np.random.default_rng(zlib.crc32(f"{config}{n}".encode()))
    shapes = SHAPES[config.name](config.options)
    weights = {name: rng.normal(size=shape) * 0.7 for name, shape in shapes.items()}
    return rng.normal(size=(n, D)), weights, rng


def close(got: Array, want: Array, atol: float = 1e-13) -> None:
    """Assert that two arrays agree up to rounding."""
    np.testing.assert_allclose(got, want, rtol=0, atol=atol)


# Goldens


def _options(kind: str, c: Mapping[str, Any], length: int) -> dict[str, Any]:
    """Return the options that a golden's configuration means."""
    padded = {"padded": length}
    if kind == "kim_cnn":
        return {"kernel_sizes": c["kernel_sizes"], "windows": "padded", **padded}
    if kind == "hrchy_cnn":
        return {"layers": c["layers"], "kernel_size": c["kernel_size"], **RELEASED, **padded}
    if kind == "biblosa":
        given = c["block_len"] if c["block_len_rule"] == "given" else None
        scores = {"activation": c["activation"], "tanh_scale": c["tanh_scale"]}
        return {"block_len": given, **scores, **RELEASED, **padded}
    if kind == "disan":
        return {"activation": c["activation"], "tanh_scale": c["tanh_scale"]}
    return {"reset": "before"}


KINDS = ("bi_gru", "kim_cnn", "hrchy_cnn", "biblosa", "disan")
CASES = [f"{kind}/{p.stem}" for kind in KINDS for p in sorted((GOLDEN / kind).glob("*.npz"))]


def test_every_kind_has_goldens() -> None:
    assert {case.partition("/")[0] for case in CASES} == set(KINDS)


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    with np.load(GOLDEN / f"{case}.npz") as z:
        arrays = {name: z[name] for name in z.files}
    settings = json.loads(str(arrays.pop("config")))
    x, mask, g, want, want_x = (
        arrays.pop(name) for name in ("x", "mask", "grad_out", "output_f64", "grad_x_f64")
    )
    for name in ("output", "grad_x"):
        arrays.pop(name)
    kind, length = case.partition("/")[0], mask.shape[1]
    weights = {name: w.astype(np.float64) for name, w in arrays.items()}
    if kind == "disan":  # named after its parts here
        weights = {
            f"pooling.{n[4:]}" if n.startswith("s2t_") else f"fusion.{n}": w
            for n, w in weights.items()
        }
    options = _options(kind, settings, length)
    tolerance = 1e-10 * max(1.0, float(np.abs(want).max()))
    for b, n in enumerate(mask.sum(axis=1)):
        assert mask[b, :n].all()
        # The released convolution and blocks hold values at padding, which the cotangent counts.
        rows = np.arange(length if "padded" in options else n)
        pick: Any = b if kind in SENTENCE else (b, rows)
        out, grad_x, _ = oracle(kind)(
            x[b, :n].astype(np.float64), weights, rows, g[pick].astype(np.float64), **options
        )
        close(out, want[pick], tolerance)
        close(grad_x, want_x[b, :n], tolerance)


# Every oracle


def _central_difference(f: Callable[[float], float], h: float) -> float:
    """Return f'(0) by the fourth-order formula: rounding, near 1e-14 / h, is what is left."""
    return (8 * (f(h) - f(-h)) - f(2 * h) + f(-2 * h)) / (12 * h)


@pytest.mark.parametrize("n", [1, N])
@each_config
def test_gradients_are_those_of_the_forward_pass(config: Config, n: int) -> None:
    x, weights, rng = draw(config, n)
    g = rng.normal(size=config(x, weights)[0].shape)
    out, grad_x, grads = config(x, weights, None, g)
    np.testing.assert_array_equal(out, config(x, weights)[0])
    assert set(grads) == set(weights)
    points, gradients = {"x": x, **weights}, {"x": grad_x, **grads}
    for name, point in points.items():
        assert gradients[name].shape == point.shape
        directions = [rng.normal(size=point.shape) for _ in range(2)]
        directions.append(np.zeros(point.shape))
        directions[-1].flat[rng.integers(point.size)] = 1.0
        for u in directions:

            def value(h: float, name: str = name, u: Array = u) -> float:
                moved = {**points, name: points[name] + h * u}
                at = moved.pop("x")
                return float(np.sum(config(at, moved)[0] * g))

            expected = float(np.sum(gradients[name] * u))
            errors = [abs(_central_difference(value, h) - expected) for h in (2e-4, 2e-5)]
            # The shorter step only counts where the longer one crosses a kink of an activation.
            assert min(errors) <= 1e-8 * max(1.0, abs(expected)), name


@each_tokens
def test_rows_are_a_slice_of_all_rows(config: Config) -> None:
    x, weights, rng = draw(config, N)
    full = config(x, weights)[0]
    for rows in ([4, 0, 5], [0], [N - 1], [2, 2], []):
        at = np.array(rows, dtype=int)
        g = rng.normal(size=(len(rows), full.shape[1]))
        everywhere = np.zeros(full.shape)
        np.add.at(everywhere, at, g)
        out, grad_x, grads = config(x, weights, at, g)
        _, want_x, want = config(x, weights, None, everywhere)
        close(out, full[at])
        close(grad_x, want_x, 1e-12)
        for name in weights:
            close(grads[name], want[name], 1e-12)


@each_config
def test_large_weights_stay_finite(config: Config) -> None:
    for n in (1, N):
        x, weights, rng = draw(config, n)
        large = {name: w * 100 for name, w in weights.items()}
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            out = config(x, large)[0]
            _, grad_x, grads = config(x, large, None, rng.normal(size=out.shape))
        assert all(np.isfinite(a).all() for a in (out, grad_x, *grads.values()))


@pytest.mark.parametrize("option", ["reset", "windows", "form", "direction", "activation"])
def test_unknown_names_are_errors(option: str) -> None:
    for config in CONFIGS:
        options = inspect.signature(oracle(config.name)).parameters
        if config.label == "default" and option in options:
            x, weights, _ = draw(config, N)
            with pytest.raises(KeyError):
                config(x, weights, **{option: "nonsense"})


PADDED = [
    ("kim_cnn", {"windows": "real"}, {"windows": "padded"}),
    ("hrchy_cnn", {"form": "paper"}, {"form": "released"}),
    ("biblosa", {"form": "paper"}, {"form": "released"}),
]


@pytest.mark.parametrize(("name", "real", "released"), PADDED)
def test_padding_matters_to_the_released_forms_alone(
    name: str, real: dict[str, str], released: dict[str, str]
) -> None:
    x, weights, _ = draw(Config(name, "padding"), N)
    naive = oracle(name)
    for biases in [b for w, b in weights.items() if w.endswith("_b") or w[0] == "b"]:
        biases += 1.0  # so that relu passes what the padded tail holds
    alone, longer = (naive(x, weights, **real, padded=p)[0] for p in (None, 2 * N))
    np.testing.assert_array_equal(alone, longer)
    np.testing.assert_array_equal(alone, naive(x, weights)[0])  # the default
    alone, longer = (naive(x, weights, **released, padded=p)[0] for p in (None, 2 * N))
    assert np.abs(alone - longer).max() > 1e-2
    np.testing.assert_array_equal(alone, naive(x, weights, **released, padded=N)[0])


# Bi-GRU


def test_gru_with_reset_after_is_that_of_torch() -> None:
    config = Config("bi_gru", "torch", {"reset": "after"})
    x, weights, rng = draw(config, N)
    g = rng.normal(size=(N, 2 * D_H))
    gru = torch.nn.GRU(D, D_H, bidirectional=True, dtype=torch.float64)
    parameters = dict(gru.named_parameters())
    h = D_H
    with torch.no_grad():
        for prefix, suffix in (("fw_", "l0"), ("bw_", "l0_reverse")):
            W = {name[3:]: torch.from_numpy(w) for name, w in weights.items() if name[:3] == prefix}
            both = torch.cat([W["gates_w"], W["cand_w"]], dim=1).T  # [3h, D + h]
            parameters[f"weight_ih_{suffix}"].copy_(both[:, :D])
            parameters[f"weight_hh_{suffix}"].copy_(both[:, D:])
            parameters[f"bias_ih_{suffix}"].copy_(torch.cat([W["gates_b"], W["cand_b"]]))
            state = torch.cat([torch.zeros(2 * h), W["cand_hb"]])
            parameters[f"bias_hh_{suffix}"].copy_(state)
    at = torch.from_numpy(x).requires_grad_()
    want = gru(at)[0]
    (want * torch.from_numpy(g)).sum().backward()
    out, grad_x, grads = config(x, weights, None, g)
    close(out, want.detach().numpy())
    assert at.grad is not None
    close(grad_x, at.grad.numpy(), 1e-12)
    for prefix, suffix in (("fw_", "l0"), ("bw_", "l0_reverse")):
        kernel = np.concatenate([grads[prefix + "gates_w"], grads[prefix + "cand_w"]], axis=1).T
        for name, got in {
            "weight_ih": kernel[:, :D],
            "weight_hh": kernel[:, D:],
            "bias_ih": np.concatenate([grads[prefix + "gates_b"], grads[prefix + "cand_b"]]),
            "bias_hh": np.concatenate([grads[prefix + "gates_b"], grads[prefix + "cand_hb"]]),
        }.items():
            want_g = parameters[f"{name}_{suffix}"].grad
            assert want_g is not None
            close(got, want_g.numpy(), 1e-12)


def _gru(n: int = N, **change: Array) -> tuple[Array, dict[str, Array], dict[str, Array]]:
    """Return x, weights for reset "before" and for "after" without its own bias."""
    x, weights, _ = draw(Config("bi_gru", "gates"), n)
    weights |= {prefix + name: w for prefix in ("fw_", "bw_") for name, w in change.items()}
    zeros = {prefix + "cand_hb": np.zeros(D_H) for prefix in ("fw_", "bw_")}
    return x, weights, weights | zeros


def test_the_two_resets_agree_where_nothing_is_reset_and_differ_elsewhere() -> None:
    naive = oracle("bi_gru")
    open_gate = np.concatenate([np.full(D_H, 100.0), np.zeros(D_H)])  # r = 1, u = sigma(0 + ...)
    x, before, after = _gru(gates_b=open_gate)
    close(naive(x, before)[0], naive(x, after, reset="after")[0], 1e-14)
    x, before, after = _gru()
    gap = np.abs(naive(x, before)[0] - naive(x, after, reset="after")[0])
    assert gap.max() > 1e-3
    close(gap[0, :D_H], np.zeros(D_H), 1e-15)  # h_0 = 0: nothing to reset at the first token read
    close(gap[-1, D_H:], np.zeros(D_H), 1e-15)


def test_update_gate_keeps_or_replaces_the_state() -> None:
    x, keep, _ = _gru(gates_b=np.full(2 * D_H, 800.0))
    np.testing.assert_array_equal(oracle("bi_gru")(x, keep)[0], np.zeros((N, 2 * D_H)))
    closed = np.concatenate([np.full(D_H, -800.0), np.full(D_H, -800.0)])  # r = u = 0
    x, replace, _ = _gru(gates_b=closed)
    want = [np.tanh(x @ replace[p + "cand_w"][:D] + replace[p + "cand_b"]) for p in ("fw_", "bw_")]
    close(oracle("bi_gru")(x, replace)[0], np.concatenate(want, axis=1), 1e-15)


@pytest.mark.parametrize("reset", ["before", "after"])
def test_gru_backward_is_forward_on_the_reversed_sequence(reset: str) -> None:
    config = Config("bi_gru", "mirror", {"reset": reset})
    x, weights, _ = draw(config, N)
    swapped = {("bw_" if n[:3] == "fw_" else "fw_") + n[3:]: w for n, w in weights.items()}
    mirrored = config(x[::-1], swapped)[0][::-1]
    close(config(x, weights)[0], np.roll(mirrored, D_H, axis=1), 0.0)


# Kim's CNN


@pytest.mark.parametrize("n", [1, 2, 4, 5, N])
@pytest.mark.parametrize("tail", [0, 1, 4])
def test_kim_is_the_best_window(n: int, tail: int) -> None:
    sizes = (2, 3, 5)
    x, weights, _ = draw(Config("kim_cnn", "windows", {"kernel_sizes": sizes}), n)
    for windows, length in (("real", n), ("padded", n + tail)):
        want = []
        for k in sizes:
            long = np.zeros((max(length, k), D))
            long[:n] = x
            for f in range(D_H):
                scores = [
                    (long[i : i + k] * weights[f"w{k}"][:, :, f]).sum() + weights[f"b{k}"][f]
                    for i in range(len(long) - k + 1)
                ]
                want.append(max(0.0, *scores))
        options = {"kernel_sizes": sizes, "windows": windows, "padded": n + tail}
        close(oracle("kim_cnn")(x, weights, **options)[0], np.array(want), 1e-14)


def test_kim_real_windows_never_reach_beyond_the_sequence() -> None:
    x = np.ones((4, 1))
    weights = {"w3": -np.ones((3, 1, 1)), "b3": np.array([10.0])}
    for windows, want in (("real", 7.0), ("padded", 10.0)):  # 10 - 1 - 1 - 1, and 10 - 0
        for padded in (7, 12):
            options = {"kernel_sizes": (3,), "windows": windows, "padded": padded}
            assert oracle("kim_cnn")(x, weights, **options)[0].tolist() == [want]
    options = {"kernel_sizes": (3,), "windows": "real"}
    out, grad_x, grads = oracle("kim_cnn")(x[:2], weights, None, np.ones(1), **options)
    assert out.tolist() == [8.0]  # one window of a short sequence: a zero behind it
    assert grad_x.tolist() == [[-1.0], [-1.0]]
    assert grads["w3"].ravel().tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("n", [2, N])
def test_kim_padded_windows_are_real_windows_of_zeros(n: int) -> None:
    x, weights, rng = draw(Config("kim_cnn", "zeros"), n)
    g = rng.normal(size=9)
    got = oracle("kim_cnn")(x, weights, None, g, windows="padded", padded=n + 6)
    want = oracle("kim_cnn")(np.concatenate([x, np.zeros((6, D))]), weights, None, g)
    close(got[0], want[0], 0.0)
    close(got[1], want[1][:n], 0.0)
    for name in weights:
        close(got[2][name], want[2][name], 1e-14)


# Hierarchical CNN


def test_hrchy_layer_by_hand() -> None:
    """Width 1, kernel 3, two layers: the formulas with numbers."""
    x = np.array([[2.0], [-1.0]])
    weights = {
        "l0_w": np.array([[[1.0, 0.0]], [[2.0, 1.0]], [[-1.0, 0.0]]]), "l0_b": np.array([0.5, 0.0]),
        "l1_w": np.array([[[0.0, 1.0]], [[1.0, 0.0]], [[3.0, 0.0]]]), "l1_b": np.array([0.0, -1.0]),
    }  # fmt: skip

    def s(z: float) -> float:
        return 1 / (1 + float(np.exp(-z)))

    options = {"layers": 2, "kernel_size": 3}
    y = [5.5 * s(2), 0.5 * s(-1)]  # A: 0.5 + 2*2 + 1, 0.5 + 2 - 2;  B: x itself
    want = [y[0] + (y[0] + 3 * y[1]) * s(-1), y[1] + y[1] * s(y[0] - 1)]
    out = oracle("hrchy_cnn")(x, weights, **options)[0]
    close(out, np.array(want)[:, None], 1e-14)
    # Relu: gates with a negative B, of token 1 and of the second layer, open to a half.
    y = [5.5 * s(2), 0.5 * s(0)]
    want = [y[0] + (y[0] + 3 * y[1]) * s(0), y[1] + y[1] * s(y[0] - 1)]
    out = oracle("hrchy_cnn")(x, weights, **options, form="released")[0]
    close(out, np.array(want)[:, None], 1e-14)
    # A padded position 2 has A = 0.5 + x_1 = -0.5, hence 0 after relu; position 3 has 0.5 * s(0).
    out = oracle("hrchy_cnn")(x, weights, np.arange(4), **options, form="released", padded=4)[0]
    tail = [0.0 + 3 * 0.25 * s(0), 0.25 + 0.25 * s(0)]
    close(out, np.array([*want, *tail])[:, None], 1e-14)


def test_hrchy_forms_agree_where_no_preactivation_is_negative() -> None:
    x, weights, _ = draw(Config("hrchy_cnn", "positive"), N)
    positive = {name: np.abs(w) for name, w in weights.items()}
    naive = oracle("hrchy_cnn")
    released = naive(np.abs(x), positive, **RELEASED)[0]
    np.testing.assert_array_equal(naive(np.abs(x), positive)[0], released)
    assert np.abs(naive(x, weights)[0] - naive(x, weights, **RELEASED)[0]).max() > 1e-2


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_hrchy_released_sees_the_padded_tail_only_so_far(layers: int) -> None:
    config = Config("hrchy_cnn", "tail", {**RELEASED, "layers": layers})
    n = 12
    x, weights, _ = draw(config, n)
    x = np.abs(x)  # all positive, so that relu never hides a change of the layer below
    weights = {name: np.abs(w) for name, w in weights.items()}
    reach = 2 * (layers - 1)  # a layer looks 2 tokens ahead; the first sees zeros, tail or no tail
    alone, far, farther = (config(x, weights, padded=n + t)[0] for t in (0, reach, 3 * reach))
    close(far, farther, 1e-12)
    changed = np.abs(alone - far).max(axis=1) > 1e-9
    assert changed.tolist() == [i >= n - reach for i in range(n)]
    if reach:
        shorter = config(x, weights, padded=n + reach - 1)[0]
        assert np.abs(shorter - far).max() > 1e-9


@pytest.mark.parametrize("kernel", [2, 3, 4, 5])
def test_hrchy_receptive_field(kernel: int) -> None:
    config = Config("hrchy_cnn", "field", {"layers": 2, "kernel_size": kernel})
    n, t = 15, 7
    x, weights, _ = draw(config, n)
    moved = x.copy()
    moved[t] += 1.0
    changed = np.abs(config(moved, weights)[0] - config(x, weights)[0]).max(axis=1) > 0
    front, behind = (kernel - 1) // 2, kernel - 1 - (kernel - 1) // 2
    assert changed.tolist() == [t - 2 * behind <= i <= t + 2 * front for i in range(n)]


# Bi-BloSA


def test_block_rule_is_exact() -> None:
    cubes = {6: 108, 8: 256, 10: 500, 12: 864, 14: 1372, 16: 2048, 32: 16384}
    for k, n in cubes.items():
        assert [rule(n - 1), rule(n), rule(n + 1)] == [k, k, k + 1]
    assert [rule(n) for n in range(1, 15)] == [2, 2, 2, 2] + 9 * [3] + [4]
    for n in range(1, 3000):
        assert (rule(n) - 1) ** 3 < 2 * n <= rule(n) ** 3


BLOSA = Config("biblosa", "blocks", {"activation": "elu"})


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 13, 14])
def test_paper_blocks_follow_the_rule_of_the_real_length(n: int) -> None:
    x, weights, _ = draw(BLOSA, n)
    want = BLOSA(x, weights, block_len=rule(n))[0]
    np.testing.assert_array_equal(BLOSA(x, weights)[0], want)
    extra = BLOSA(x, weights, block_len=rule(n) + 1)[0]
    np.testing.assert_array_equal(BLOSA(x, weights, extra=1)[0], extra)
    if n > 3:
        assert np.abs(want - extra).max() > 1e-6
    # A given block length is what it says.
    np.testing.assert_array_equal(BLOSA(x, weights, extra=1, block_len=rule(n))[0], want)
    # The released form is the same where there is no padding.
    np.testing.assert_array_equal(BLOSA(x, weights, **RELEASED)[0], want)


def test_released_blocks_follow_the_rule_of_the_padded_length() -> None:
    x, weights, _ = draw(BLOSA, N)
    for length in (N, 13, 14, 33):
        options = {**RELEASED, "padded": length}
        np.testing.assert_array_equal(
            BLOSA(x, weights, **options)[0],
            BLOSA(x, weights, **options, block_len=rule(length))[0],
        )


def test_padding_reaches_real_rows_through_empty_blocks_alone() -> None:
    x, weights, _ = draw(BLOSA, 8)
    options = {**RELEASED, "block_len": 3}
    alone, filled, longer = (BLOSA(x, weights, **options, padded=p)[0] for p in (8, 9, 10))
    np.testing.assert_array_equal(alone, filled)  # the third block just gets its full length
    np.testing.assert_array_equal(alone[:, :D_H], longer[:, :D_H])  # forward: empty blocks follow
    assert (np.abs(alone - longer)[:, D_H:].max(axis=1) > 1e-6).all()  # backward: from all blocks


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_one_block_is_masked_attention_of_all_tokens(direction: str) -> None:
    options: dict[str, Any] = {"direction": direction, "activation": "elu"}
    config = Config("biblosa", "single", {**options, "block_len": N})
    x, W, _ = draw(config, N)
    out = config(x, W)[0]
    np.testing.assert_array_equal(out, config(x, W, block_len=50)[0])
    # The same scores as DiSA's; a gate that takes the attended vector alone brings out a.
    own = {name: W[name] for name in ("map_w", "map_b", "f_b")}
    own |= {"dep_w": W["dh_w"][:, :D_H], "head_w": W["dh_w"][:, D_H:]}
    own |= dict.fromkeys(("fi_w", "fa_w"), np.zeros((D_H, D_H)))
    own |= dict.fromkeys(("fi_b", "fa_b"), np.zeros(D_H))
    h, a = (disa(x, own | {"o_b": np.full(D_H, z)}, **options)[0] for z in (800.0, -800.0))
    z = a @ W["s2t_w"] + W["s2t_b"]
    p = np.exp(z) / np.exp(z).sum(axis=0)
    blk = {name[4:]: w for name, w in W.items() if name.startswith("blk_")}
    z = (p * a).sum(axis=0) @ blk["map_w"] + blk["map_b"]
    h_o = np.where(z > 0, z, np.expm1(z))  # alone, a block has nothing to attend to
    gate = h_o @ blk["fi_w"] + blk["fi_b"] + blk["fa_b"] + blk["o_b"]
    G = np.tile(h_o / (1 + np.exp(-gate)), (N, 1))
    cq = np.concatenate([h, a, G], axis=1) @ W["comb_w"] + W["comb_b"]
    c, q = cq[:, :D_H], 1 / (1 + np.exp(-cq[:, D_H:]))
    close(out, q * np.where(c > 0, c, np.expm1(c)) + (1 - q) * h, 1e-13)


def test_blocks_of_one_token_are_position_wise() -> None:
    x, weights, _ = draw(BLOSA, N)
    moved = x.copy()
    moved[3] += 1.0
    changed = BLOSA(moved, weights, block_len=1)[0] != BLOSA(x, weights, block_len=1)[0]
    assert changed.any(axis=1).tolist() == [i == 3 for i in range(N)]


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_row_sees_its_own_block_and_those_of_its_direction(direction: str) -> None:
    config = Config("biblosa", "sees", {"direction": direction, "activation": "elu"})
    x, weights, _ = draw(config, 9)
    moved = x.copy()
    moved[4] += 1.0
    changed = config(moved, weights, block_len=3)[0] != config(x, weights, block_len=3)[0]
    seen = [i >= 3 if direction == "forward" else i < 6 for i in range(9)]
    assert changed.any(axis=1).tolist() == seen


def test_block_directions_mirror_each_other_and_stand_side_by_side() -> None:
    x, weights, _ = draw(BLOSA, 9)  # three full blocks
    parts = []
    for prefix, direction in (("fw_", "forward"), ("bw_", "backward")):
        one = {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
        parts.append(BLOSA(x, one, direction=direction)[0])
        other = {"forward": "backward", "backward": "forward"}[direction]
        close(parts[-1], BLOSA(x[::-1], one, direction=other)[0][::-1])
    np.testing.assert_array_equal(BLOSA(x, weights)[0], np.concatenate(parts, axis=1))


def test_padded_positions_of_released_blocks_do_not_depend_on_their_neighbours() -> None:
    x, weights, _ = draw(BLOSA, 4)
    options = {**RELEASED, "block_len": 3, "padded": 6}
    out = BLOSA(x, weights, np.arange(6), **options)[0]
    assert out.shape == (6, 2 * D_H)
    np.testing.assert_array_equal(out[4], out[5])  # h = f(b), a = 0, G of the same block
    assert np.abs(out[4:]).max() > 1e-3


# Pooling


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
def test_additive_attention_is_a_mean_weighted_by_one_score_per_token(activation: str) -> None:
    config = Config("additive", "mean", {"activation": activation, "score_dim": 6})
    x, weights, _ = draw(config, N)
    activations: dict[str, Callable[[Array], Array]] = {
        "tanh": np.tanh,
        "relu": lambda z: np.maximum(z, 0),
        "elu": lambda z: np.where(z > 0, z, np.expm1(z)),
    }
    f = activations[activation]
    scores = [
        float((weights["s2_w"].T @ f(weights["s1_w"].T @ x_j + weights["s1_b"])).item())
        for x_j in x
    ]
    e = np.exp(scores)
    close(config(x, weights)[0], sum(e[j] * x[j] for j in range(N)) / e.sum(), 1e-14)


def test_additive_attention_without_score_weights_is_the_mean() -> None:
    config = Config("additive", "zero")
    x, weights, _ = draw(config, N)
    for name in ("s1_w", "s2_w"):
        out = config(x, weights | {name: 0 * weights[name]})[0]
        close(out, x.mean(axis=0), 1e-15)
    close(config(x[:1], weights)[0], x[0], 0.0)


def test_additive_attention_knows_no_order_and_no_offset_of_the_scores() -> None:
    config = Config("additive", "order")
    x, weights, rng = draw(config, N)
    out, _, grads = config(x, weights, None, rng.normal(size=D))
    close(config(x[rng.permutation(N)], weights)[0], out, 1e-14)
    close(config(x, weights | {"s2_b": np.array([700.0])})[0], out, 1e-12)
    close(grads["s2_b"], np.zeros(1), 1e-14)


def test_additive_attention_with_huge_scores_selects_the_best_token() -> None:
    config = Config("additive", "best")
    x, weights, _ = draw(config, N)
    scores = np.tanh(x @ weights["s1_w"] + weights["s1_b"]) @ weights["s2_w"][:, 0]
    out = config(x, weights | {"s2_w": weights["s2_w"] * 1e6})[0]
    np.testing.assert_array_equal(out, x[scores.argmax()])


def test_additive_attention_is_source2token_with_equal_scores_for_all_features() -> None:
    config = Config("additive", "multi-dim", {"activation": "relu"})
    x, weights, _ = draw(config, N)
    wide = {**weights, "s2_w": np.tile(weights["s2_w"], D), "s2_b": np.tile(weights["s2_b"], D)}
    close(config(x, weights)[0], source2token(x, wide, activation="relu")[0], 1e-14)


@pytest.mark.parametrize("activation", ["elu", "relu"])
def test_disan_is_its_parts(activation: str) -> None:
    config = Config("disan", "parts", {"activation": activation, "tanh_scale": 2.0})
    x, weights, rng = draw(config, N)
    g = rng.normal(size=2 * D_H)
    blocks = []
    for prefix, direction in (("fusion.fw_", "forward"), ("fusion.bw_", "backward")):
        one = {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
        options: dict[str, Any] = {"activation": activation, "tanh_scale": 2.0}
        options["direction"] = direction
        blocks.append((one, options, disa(x, one, **options)[0]))
    pool = {n.removeprefix("pooling."): w for n, w in weights.items() if n.startswith("pooling.")}
    u = np.concatenate([block[2] for block in blocks], axis=1)
    want, g_u, g_pool = source2token(u, pool, None, g, activation=activation)
    assert g_u is not None
    assert g_pool is not None
    out, grad_x, grads = config(x, weights, None, g)
    close(out, want, 1e-14)
    want_x = np.zeros(x.shape)
    prefixes = ("fusion.fw_", "fusion.bw_")
    for start, prefix, (one, options, _) in zip((0, D_H), prefixes, blocks, strict=True):
        _, g_x, g_w = disa(x, one, None, g_u[:, start : start + D_H], **options)
        assert g_x is not None
        assert g_w is not None
        want_x += g_x
        for name, g_name in g_w.items():
            close(grads[prefix + name], g_name, 1e-14)
    close(grad_x, want_x, 1e-14)
    for name, g_name in g_pool.items():
        close(grads["pooling." + name], g_name, 1e-14)


def test_disan_of_one_token_is_that_token() -> None:
    config = Config("disan", "single")
    x, weights, _ = draw(config, 1)
    blocks = {n.removeprefix("fusion."): w for n, w in weights.items() if n.startswith("fusion.")}
    close(config(x, weights)[0], disa(x, blocks)[0][0], 0.0)
