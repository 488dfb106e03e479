"""The bidirectional GRU: its oracle by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from suites.support.oracles import D_H, Array, Config, D, N, close, naive_of


def test_gru_with_reset_after_is_that_of_torch() -> None:
    config = Config("bi_gru", "torch", {"reset": "after"})
    x, weights, rng = config.draw()
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
    x, weights, _ = Config("bi_gru_released", "gates").draw(n)
    weights |= {prefix + name: w for prefix in ("fw_", "bw_") for name, w in change.items()}
    zeros = {prefix + "cand_hb": np.zeros(D_H) for prefix in ("fw_", "bw_")}
    return x, weights, weights | zeros


def test_the_two_resets_agree_where_nothing_is_reset_and_differ_elsewhere() -> None:
    naive = naive_of("bi_gru")
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
    np.testing.assert_array_equal(naive_of("bi_gru")(x, keep)[0], np.zeros((N, 2 * D_H)))
    closed = np.concatenate([np.full(D_H, -800.0), np.full(D_H, -800.0)])  # r = u = 0
    x, replace, _ = _gru(gates_b=closed)
    want = [np.tanh(x @ replace[p + "cand_w"][:D] + replace[p + "cand_b"]) for p in ("fw_", "bw_")]
    close(naive_of("bi_gru")(x, replace)[0], np.concatenate(want, axis=1), 1e-15)


@pytest.mark.parametrize("reset", ["before", "after"])
def test_gru_backward_is_forward_on_the_reversed_sequence(reset: str) -> None:
    config = Config("bi_gru", "mirror", {"reset": reset})
    x, weights, _ = config.draw()
    swapped = {("bw_" if n[:3] == "fw_" else "fw_") + n[3:]: w for n, w in weights.items()}
    mirrored = config(x[::-1], swapped)[0][::-1]
    close(config(x, weights)[0], np.roll(mirrored, D_H, axis=1), 0.0)
