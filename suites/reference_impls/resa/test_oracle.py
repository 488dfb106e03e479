"""The oracles of ReSA and ReSAN: policies, readings and variants by hand."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from harness.verify.golden import load
from reference_impls.resa import naive as resa
from suites.support.oracles import (
    GOLDEN,
    Array,
    Config,
    D,
    N,
    assert_gradients,
    close,
    naive_of,
)

resa_naive, disa = naive_of("resa"), naive_of("disa")
resan = naive_of("resan")
source2token = naive_of("source2token")

READINGS = ("all_real", "dependents", "others")
DIRECTIONS = ("both", "forward", "backward", "diagonal")
RSS = {"w1": (3 * D, 3), "b1": (3,), "w2": (3, 1), "b2": (1,)}


def draw(config: Config) -> tuple[Array, dict[str, Array], np.random.Generator]:
    """As `Config.draw`; no probability lies near the threshold, and every RSS selects some."""
    for again in itertools.count():
        x, weights, rng = replace(config, label=f"{config.label} {again}").draw()
        decided = [selections(x, weights, config, name) for name in ("dep", "head", "sel")]
        if all(
            np.abs(p - 0.5).min() > 0.02 and 0 < (p >= 0.5).sum() < N for p in decided if p.size
        ):
            break
    return x, weights, rng


def selections(x: Array, weights: Mapping[str, Array], config: Config, name: str) -> Array:
    """Return the probabilities [n] of one RSS; none if the configuration has not got it."""
    if f"{name}_w1" not in weights:
        return np.zeros(0)
    W = {part: weights[f"{name}_{part}"] for part in RSS}
    return resa.probabilities(x, W, config.options.get("rss_activation", "elu"))


def test_rss_golden() -> None:
    golden = load(GOLDEN / "rss" / "policy.npz")
    config, arrays = golden.config, golden.arrays
    a = {k: v if v.dtype == bool else v.astype(np.float64) for k, v in arrays.items()}
    for b, n in enumerate(a["mask"].sum(axis=1)):
        p = resa.probabilities(a["x"][b, :n], a, config["activation"])
        # This file holds the authors' float32 results only.
        close(p, a["output"][b, :n], 1e-5)
        chosen = resa.actions(p, a["uniform"][b, :n])
        np.testing.assert_array_equal(chosen, a["actions"][b, :n])
        close(resa.log_probabilities(p, chosen), a["logp"][b, :n], 1e-5)
        assert resa.share(chosen) == pytest.approx(a["percentage"][b], abs=1e-6)


@pytest.mark.parametrize("f", ["elu", "relu", "selu"])
def test_rss_gradients(f: str) -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(N, D))
    W = {name: rng.normal(size=shape) for name, shape in RSS.items()}
    chosen, g = rng.random(N) < 0.5, rng.normal(size=N)
    grad_x, grads = resa.gradients(x, W, chosen, g, f)

    def value(at: dict[str, Array]) -> float:
        p = resa.probabilities(at.pop("x"), at, f)
        return float(resa.log_probabilities(p, chosen) @ g)

    assert_gradients(value, {"x": x, **W}, {"x": grad_x, **grads}, rng)


def test_rss_by_hand() -> None:
    x = np.array([[1.0], [3.0]])  # m = 2, z = [1, 2, 2] and [3, 2, 6]
    W = {"w1": np.array([[1.0], [-2.0], [0.5]]), "b1": np.array([0.0]), "w2": np.full((1, 1), 2.0)}
    p = resa.probabilities(x, {**W, "b2": np.array([1.0])})
    hidden = [np.exp(-2.0) - 1, 2.0]  # elu of -2 and of 2
    np.testing.assert_allclose(p, [1 / (1 + np.exp(-1 - 2 * t)) for t in hidden], rtol=1e-15)
    np.testing.assert_array_equal(resa.actions(p, p), [True, True])
    np.testing.assert_array_equal(resa.actions(p, np.nextafter(p, 1)), [False, False])
    assert resa.share(np.array([True, False, False, True])) == 0.5


def test_improbable_actions_count_as_much_as_the_clip_and_have_no_gradient() -> None:
    W = {"w1": np.zeros((3, 1)), "b1": np.zeros(1), "w2": np.zeros((1, 1)), "b2": np.array([-30.0])}
    x, chosen = np.array([[1.0], [2.0]]), np.array([True, False])
    p = resa.probabilities(x, W)
    np.testing.assert_allclose(
        resa.log_probabilities(p, chosen), [np.log(1e-10), -np.exp(-30)], rtol=1e-2
    )
    _, grads = resa.gradients(x, W, chosen, np.array([1.0, 0.0]))
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
    g = rng.normal(size=resa_naive(x, weights, direction=direction)[0].shape)
    got = resa_naive(x, weights, None, g, direction=direction, unselected=reading, selection=how)
    want = disa(x, disa_weights(weights), None, g, direction=direction)
    close(got[0], want[0], 1e-14)
    close(got[1], want[1])
    for name in weights:
        expected = want[2].get(name, np.zeros(weights[name].shape))
        close(got[2][name], expected)


@pytest.mark.parametrize("direction", ["forward", "backward", "diagonal"])
def test_a_selected_head_sees_disa_of_its_selected_dependents(direction: str) -> None:
    x, weights, _ = draw(Config("resa", "sub", {"direction": direction}))
    dep, head = np.array([1, 0, 1, 1, 0, 1]) > 0, np.array([0, 1, 1, 0, 1, 0]) > 0
    out = resa.fuse(x, weights, np.arange(N), None, dep, head, direction)[0]
    for i in np.flatnonzero(head).tolist():
        tokens = [j for j in range(N) if dep[j] or j == i]
        alone = disa(x[tokens], disa_weights(weights), [tokens.index(i)], direction=direction)
        close(out[[i]], alone[0], 1e-14)


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
    weights = {name: np.zeros((1, 1)) for name in ("dep_w", "head_w", "fi_w", "fa_w")} | {
        name: np.zeros(1) for name in ("map_b", "f_b", "fi_b", "fa_b", "o_b")
    }
    weights |= {"map_w": np.ones((1, 1)), "o_b": np.array([-60.0])}
    dep, head = np.array([1, 0, 1, 0]) > 0, np.array([1, 0, 0, 1]) > 0

    def fuse(x: Array, dep: Array, head: Array) -> Array:
        return resa.fuse(
            x, weights, np.arange(len(x)), None, dep, head, "forward", "relu", 5.0, reading
        )[0][:, 0]

    close(fuse(x, dep, head), np.array(want), 1e-14)
    nobody = fuse(x, dep & False, head)
    assert nobody[3] == pytest.approx(0.0, abs=1e-14)
    assert (abs(nobody[1]) < 1e-14) == (reading == "dependents")
    alone = fuse(x[:1], np.array([True]), np.array([False]))[0]
    assert alone == pytest.approx(0.0 if reading == "others" else 1.0, abs=1e-14)


def test_a_token_is_selected_from_one_half_on() -> None:
    config = Config("resa", "threshold")
    x, weights, _ = draw(config)
    chosen = {
        name: resa.actions(selections(x, weights, config, name), np.full(N, 0.5))
        for name in ("dep", "head")
    }
    want = resa.fuse(x, weights, np.arange(N), None, chosen["dep"], chosen["head"])[0]
    np.testing.assert_array_equal(resa_naive(x, weights)[0], want)
    zero = weights | {f"{k}_{p}": 0 * weights[f"{k}_{p}"] for k in chosen for p in RSS}  # p = .5
    np.testing.assert_array_equal(resa_naive(x, zero)[0], resa_naive(x, zero, selection="all")[0])
    with pytest.raises(ValueError, match="actions"):
        resa_naive(x, weights, selection="sampled")


def s2t(y: Array, weights: Mapping[str, Array], f: str = "elu") -> Array:
    """Return source2token of the tokens y [n, d], with the weights that begin with s2t_."""
    return source2token(
        y, {k[4:]: w for k, w in weights.items() if k.startswith("s2t_")}, activation=f
    )[0]


@pytest.mark.parametrize("f", ["elu", "relu"])
def test_resan_without_hard_attention_is_disan(f: str) -> None:
    x, weights, _ = draw(Config("resan", "disan", {"variant": "no_hard"}))
    want = s2t(disa(x, disa_weights(weights), activation=f)[0], weights, f)
    out = resan(x, weights, variant="no_hard", activation=f)[0]
    close(out, want)
    for variant in ("full", "without_unselected_heads"):
        out = resan(x, weights, variant=variant, selection="all", activation=f)[0]
        close(out, want)


@pytest.mark.parametrize("reading", READINGS)
def test_resan_pools_all_tokens_or_the_selected_heads(reading: str) -> None:
    config = Config("resan", "pools")
    x, weights, _ = draw(config)
    heads = selections(x, weights, config, "head") >= 0.5
    tokens = resa_naive(x, weights, unselected=reading)[0]
    for variant, pool in (("full", tokens), ("without_unselected_heads", tokens[heads])):
        out = resan(x, weights, unselected=reading, variant=variant)[0]
        close(out, s2t(pool, weights))
    kept = resan(x, weights, variant="without_unselected_heads")[0]
    close(out, kept)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_resan_of_one_rss_is_disan_of_the_selected_tokens(direction: str) -> None:
    options = {"variant": "one_rss", "direction": direction}
    config = Config("resan", "sub", options)
    x, weights, rng = draw(config)
    chosen = selections(x, weights, config, "sel") >= 0.5
    g = rng.normal(size=6)
    out, grad_x, _ = resan(x, weights, None, g, **options)
    want = resan(x[chosen], weights, None, g, variant="no_hard", direction=direction)
    close(out, want[0])
    close(grad_x[chosen], want[1])
    assert not grad_x[~chosen].any()


def test_resan_without_soft_attention_pools_words() -> None:
    config = Config("resan", "words", {"variant": "no_soft"})
    x, weights, _ = draw(config)
    chosen = selections(x, weights, config, "sel") >= 0.5
    for selection, pool in (("threshold", x[chosen]), ("all", x)):
        out = resan(x, weights, variant="no_soft", selection=selection)[0]
        close(out, s2t(pool, weights), 1e-14)
    close(resan(x, {}, variant="neither")[0], x.sum(axis=0) / N, 1e-14)


@pytest.mark.parametrize("variant", ["without_unselected_heads", "one_rss", "no_soft"])
def test_resan_of_an_empty_pool_is_zero(variant: str) -> None:
    x, weights, _ = draw(Config("resan", "empty", {"variant": variant}))
    for name in ("head_b2", "sel_b2"):
        if name in weights:
            weights[name] = np.array([-1e3])
    out = resan(x, weights, variant=variant)[0]
    _, grad_x, grads = resan(x, weights, None, np.ones(out.shape), variant=variant)
    assert out.shape == (D if variant == "no_soft" else 6,)
    assert not any(a.any() for a in (out, grad_x, *grads.values()))
