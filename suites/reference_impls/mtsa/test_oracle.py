"""The oracles of MTSA, the paper's and the released: masks, edges, scores by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from suites.support.oracles import D_H, Array, Config, N, close

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


@pytest.mark.parametrize(("mask", "row"), [("forward", 0), ("backward", N - 1), ("diagonal", None)])
def test_a_query_without_a_key_attends_to_nothing(mask: str, row: int | None) -> None:
    config = Config("mtsa", mask, {"heads": 2, "masks": (mask, mask)})
    x, weights, rng = config.draw(N if row is not None else 1)
    g = rng.normal(size=(1, 2 * D_H))
    out, grad_x, grads = config(x, weights, np.array([row or 0]), g)
    for array in (out, grad_x, *grads.values()):
        assert not array.any()


def test_huge_scores_select_the_best_key_of_each_feature() -> None:
    options = {"heads": 1, "masks": ("diagonal",), "scale_t": "identity"}
    config = Config("mtsa", "argmax", options)
    x, weights, _ = config.draw()
    weights["s2_w"], weights["s2_b"] = weights["s2_w"] * 1e6, weights["s2_b"] * 1e6
    weights["o_w"] = np.eye(D_H)
    out = config(x, weights)[0]
    t = np.maximum(x @ weights["k_w"][0] @ weights["s1_w"][0] + weights["s1_b"][0], 0)
    s = t @ weights["s2_w"][0] + weights["s2_b"][0]
    v = x @ weights["v_w"][0]
    for i in range(N):
        keys = [j for j in range(N) if j != i]
        best = [keys[int(np.argmax(s[keys, c]))] for c in range(D_H)]
        np.testing.assert_array_equal(out[i], v[best, range(D_H)])


@pytest.mark.parametrize("mask", ALLOWED)
def test_equal_scores_average_the_keys_that_a_mask_allows(mask: str) -> None:
    config = Config("mtsa", mask, {"heads": 1, "masks": (mask,)})
    x, weights, _ = config.draw()
    weights |= {"q_w": 0 * weights["q_w"], "s2_w": 0 * weights["s2_w"], "o_w": np.eye(D_H)}
    want = mean_of_allowed(x @ weights["v_w"][0], ALLOWED[mask])
    out = config(x, weights)[0]
    close(out, want, 1e-14)


def test_a_distance_mask_multiplies_weights_by_its_exponential() -> None:
    config = Config("mtsa", "distance", {"heads": 1, "masks": ("distance:0.3",)})
    x, weights, _ = config.draw()
    weights |= {"q_w": 0 * weights["q_w"], "s2_w": 0 * weights["s2_w"], "o_w": np.eye(D_H)}
    p = np.array([[np.exp(-0.3 * abs(i - j)) for j in range(N)] for i in range(N)])
    want = p / p.sum(axis=1, keepdims=True) @ (x @ weights["v_w"][0])
    out = config(x, weights)[0]
    close(out, want, 1e-14)


def test_default_masks_are_forward_then_backward() -> None:
    config = Config("mtsa", "default", {"heads": 4})
    x, weights, _ = config.draw()
    masks = ("forward", "forward", "backward", "backward")
    np.testing.assert_array_equal(config(x, weights)[0], config(x, weights, masks=masks)[0])


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
    config = Config("mtsa_released", "directions", options)
    x, weights, _ = config.draw()
    weights |= {"q_w": 0 * weights["q_w"], "s2_w": 0 * weights["s2_w"]}
    out = config(x, weights)[0]
    for c, mask in enumerate(masks):
        want = mean_of_allowed(x @ weights["v_w"][c] + weights["v_b"][c], ALLOWED[mask])
        close(out[:, c * D_H : (c + 1) * D_H], want, 1e-14)


def test_released_input_layer_comes_before_everything() -> None:
    options = {"heads": 2, "scores_from_input": True, "activation": "elu"}
    config = Config("mtsa_released", "input", {**options, "input_hidden": 4})
    x, weights, _ = config.draw()
    z = x @ weights["in_w"] + weights["in_b"]
    close(
        config(x, weights)[0],
        Config("mtsa_released", "plainly", options)(np.where(z > 0, z, np.expm1(z)), weights)[0],
        1e-14,
    )


@pytest.mark.parametrize("on_values", [True, False])
def test_released_fused_path_from_input_only_lacks_the_bias_of_values(on_values: bool) -> None:
    options = {
        "heads": 2,
        "scores_from_input": True,
        "activation": "elu",
        "activation_on_values": on_values,
    }
    config = Config("mtsa_released", "fused", {**options, "accelerate": True})
    x, weights, _ = config.draw()
    np.testing.assert_array_equal(
        config(x, weights)[0],
        Config("mtsa_released", "plainly", options)(x, {**weights, "v_b": np.zeros((2, D_H))})[0],
    )


def test_without_a_key_the_fusion_gate_still_acts() -> None:
    options = {"heads": 2, "activation": "elu"}
    released = Config("mtsa_released", "one token", options)
    x, weights, _ = released.draw(1)
    out, _, grads = released(x, weights, None, np.ones((1, 2 * D_H)))
    for c in range(2):
        z = x[0] @ weights["v_w"][c] + weights["v_b"][c]
        v = np.where(z > 0, z, np.expm1(z))
        g = 1 / (1 + np.exp(-(v @ weights["g_w"][c][:D_H] + weights["g_b"][c])))
        np.testing.assert_allclose(out[0, c * D_H : (c + 1) * D_H], g * v, rtol=1e-14, atol=0)
    for name in ("q_w", "k_w", "s1_w", "s2_w"):
        assert not grads[name].any()
    assert grads["v_w"].any()
    assert grads["g_w"].any()

    disa = Config("disa", "forward", {"direction": "forward"})
    weights = disa.draw(1)[1]
    out, _, grads = disa(x, weights, None, np.ones((1, 3)))
    z = x[0] @ weights["map_w"] + weights["map_b"]
    h = np.where(z > 0, z, np.expm1(z))
    gate = h @ weights["fi_w"] + weights["fi_b"] + weights["fa_b"] + weights["o_b"]
    np.testing.assert_allclose(out[0], h / (1 + np.exp(-gate)), rtol=1e-14, atol=0)
    assert not grads["dep_w"].any()
    assert not grads["fa_w"].any()
    assert grads["fa_b"].any()
