"""DiSA and DiSAN: their oracles by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from suites.reference_impls.mtsa.test_oracle import ALLOWED, mean_of_allowed
from suites.support.oracles import D_H, Config, close, naive_of

disa = naive_of("disa")
source2token = naive_of("source2token")


@pytest.mark.parametrize("direction", ["forward", "backward", "diagonal"])
def test_disa_directions(direction: str) -> None:
    config = Config("disa", direction, {"direction": direction, "activation": "relu"})
    x, weights, _ = config.draw()
    for name in ("dep_w", "head_w", "fi_w", "fa_w"):
        weights[name] = 0 * weights[name]
    weights["o_b"] = np.full(3, -50.0)  # the gate takes the attended vector alone
    h = np.maximum(x @ weights["map_w"] + weights["map_b"], 0)
    out = config(x, weights)[0]
    close(out, mean_of_allowed(h, ALLOWED[direction]), 1e-14)


def test_disa_of_both_directions_is_two_blocks_side_by_side() -> None:
    config = Config("disa", "both")
    x, weights, _ = config.draw()
    parts = []
    for prefix, direction in (("fw_", "forward"), ("bw_", "backward")):
        one = {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
        parts.append(config(x, one, direction=direction)[0])
    np.testing.assert_array_equal(config(x, weights)[0], np.concatenate(parts, axis=1))


@pytest.mark.parametrize("activation", ["elu", "relu"])
def test_disan_is_its_parts(activation: str) -> None:
    config = Config("disan", "parts", {"activation": activation, "tanh_scale": 2.0})
    x, weights, rng = config.draw()
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
    x, weights, _ = config.draw(1)
    blocks = {n.removeprefix("fusion."): w for n, w in weights.items() if n.startswith("fusion.")}
    close(config(x, weights)[0], disa(x, blocks)[0][0], 0.0)
