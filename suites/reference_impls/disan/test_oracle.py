"""DiSAN: its oracle by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from suites.support.oracles import D_H, Config, close, naive_of

disa = naive_of("disa")
source2token = naive_of("source2token")


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
