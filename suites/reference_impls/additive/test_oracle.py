"""Scalar additive attention: its oracle by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from suites.support.oracles import Array, Config, D, N, close, naive_of

source2token = naive_of("source2token")


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
def test_additive_attention_is_a_mean_weighted_by_one_score_per_token(activation: str) -> None:
    config = Config("additive", "mean", {"activation": activation, "score_dim": 6})
    x, weights, _ = config.draw()
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
    x, weights, _ = config.draw()
    for name in ("s1_w", "s2_w"):
        out = config(x, weights | {name: 0 * weights[name]})[0]
        close(out, x.mean(axis=0), 1e-15)
    close(config(x[:1], weights)[0], x[0], 0.0)


def test_additive_attention_knows_no_order_and_no_offset_of_the_scores() -> None:
    config = Config("additive", "order")
    x, weights, rng = config.draw()
    out, _, grads = config(x, weights, None, rng.normal(size=D))
    close(config(x[rng.permutation(N)], weights)[0], out, 1e-14)
    close(config(x, weights | {"s2_b": np.array([700.0])})[0], out, 1e-12)
    close(grads["s2_b"], np.zeros(1), 1e-14)


def test_additive_attention_with_huge_scores_selects_the_best_token() -> None:
    config = Config("additive", "best")
    x, weights, _ = config.draw()
    scores = np.tanh(x @ weights["s1_w"] + weights["s1_b"]) @ weights["s2_w"][:, 0]
    out = config(x, weights | {"s2_w": weights["s2_w"] * 1e6})[0]
    np.testing.assert_array_equal(out, x[scores.argmax()])


def test_additive_attention_is_source2token_with_equal_scores_for_all_features() -> None:
    config = Config("additive", "multi-dim", {"activation": "relu"})
    x, weights, _ = config.draw()
    wide = {**weights, "s2_w": np.tile(weights["s2_w"], D), "s2_b": np.tile(weights["s2_b"], D)}
    close(config(x, weights)[0], source2token(x, wide, activation="relu")[0], 1e-14)
