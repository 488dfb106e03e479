"""Stabilised Algorithm 1 where float32 underflows, and in half precision."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

import reference_impls.mtsa.optimized as algorithm
from harness.build import make
from reference_impls.kernels import core, underflow
from reference_impls.kernels.geometry import GeometryByLength
from reference_impls.masks import parse_all, runs
from reference_impls.mtsa.optimized import Algorithm1MTSA, Algorithm1ReleasedMTSA
from suites.support.batches import D_IN, MECHANISMS, assert_same, batch, build, error, run
from suites.support.parameters import few

SCALES = (1.0, 10.0, 50.0, 100.0)


def masked(*masks: str) -> GeometryByLength:
    """Of heads with these masks."""
    return GeometryByLength(parse_all(masks, len(masks)))


def exaggerated(factory: Any, scale: float, **options: Any) -> tuple[nn.Module, Tensor, Tensor]:
    """A float32 module with its scores multiplied, and a batch with padding."""
    torch.manual_seed(3)
    module = factory(D_IN, 64, heads=4, **options)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if name in ("q_w", "s2_w", "s2_b"):
                weight.mul_(scale)
    x, mask = batch((64, 40), seed=4)
    return module, x.float(), mask


@pytest.mark.parametrize("scale", few(SCALES, [1.0, 50.0]))
@pytest.mark.parametrize(
    ("factory", "options"),
    [
        (Algorithm1MTSA, {}),
        (Algorithm1MTSA, {"scale_t": "identity"}),
        (Algorithm1MTSA, {"masks": ["window:3", "distance:0.7", "diagonal", "none"]}),
        (
            Algorithm1MTSA,
            {"masks": ["window:3", "distance:0.7", "diagonal", "none"], "scale_t": "identity"},
        ),
        (Algorithm1ReleasedMTSA, {}),
        (Algorithm1ReleasedMTSA, {"scale_t": "identity", "activation": "elu"}),
    ],
)
def test_algorithm1_is_accurate_at_every_scale(
    factory: Any, options: dict[str, Any], scale: float
) -> None:
    module, x, mask = exaggerated(factory, scale, **options)
    name = "mtsa" if factory is Algorithm1MTSA else "mtsa_released"
    mechanism = MECHANISMS[name]
    assert mechanism.plain is not None
    plain = make(mechanism, mechanism.plain, D_IN, 64, 4, {**mechanism.options, **options})
    plain.load_state_dict(module.state_dict())
    single, double = run(plain, x, mask), run(plain.double(), x.double(), mask)
    got = run(module, x, mask)
    assert error(got["output"], double["output"]) <= 2e-5
    for key in double:
        assert error(got[key], double[key]) <= 3 * error(single[key], double[key]) + 8e-6, key


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ({}, 50.0),
        ({"scale_t": "identity"}, 50.0),
        ({"token2token": False}, 200.0),
        ({"source2token": False}, 200.0),
    ],
)
def test_recomputation_is_needed_and_found(
    options: dict[str, Any], scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x, mask = exaggerated(Algorithm1MTSA, scale, **options)
    wanted = module.double()(x.double(), mask)
    module.float()
    recomputed = Mock(wraps=underflow.recomputed)
    monkeypatch.setattr(underflow, "recomputed", recomputed)
    found = run(module, x, mask)
    assert error(found["output"], wanted) < 2e-5
    assert all(value.isfinite().all() for value in found.values())
    assert recomputed.call_count == 1
    assert recomputed.call_args.args[0].numel() > 0
    with torch.no_grad():  # in a form of its own: nothing is kept to be computed again
        assert error(module(x, mask), wanted) < 2e-5
    if options.get("source2token", True):  # else what is flagged would not be far off
        monkeypatch.setattr(algorithm, "least_denominator", lambda dtype, length: 0.0)
        assert not error(module(x, mask), wanted) < 1e-2


def test_no_recomputation_at_ordinary_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(underflow, "recomputed", None)
    for scale in (1.0, 10.0):
        module, x, mask = exaggerated(Algorithm1MTSA, scale)
        assert module(x, mask).isfinite().all()


def test_all_keys_out_of_sight_of_the_largest_score() -> None:
    # One key outshines the others by exp(300) in every feature, and only later queries see it.
    v = torch.randn(1, 1, 6, 3)
    s = torch.zeros(1, 1, 6, 3)
    s[:, :, 4] = 300
    q = torch.zeros(1, 1, 6, 2)
    k = q.clone()
    for leaf in (q, k, v, s):
        leaf.requires_grad_()
    out = algorithm.algorithm1(q, k, v, s, masked("forward"), "identity", None)
    out.sum().backward()
    for i in range(1, 5):
        assert error(out[0, 0, i], v[0, 0, :i].mean(0)) < 1e-6
    assert error(out[0, 0, 5], v[0, 0, 4]) < 1e-6
    assert not out[0, 0, 0].any()
    for leaf in (q, k, v, s):
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()


def test_where_the_host_cannot_decide_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x, mask = exaggerated(Algorithm1MTSA, 50.0)
    wanted = run(module, x, mask)
    monkeypatch.setattr(core, "host_can_decide", lambda _: False)
    got = run(module, x, mask)
    largest = wanted["s2_w"].abs().max()
    for found in (wanted, got):  # it has a gradient of rounding alone
        assert found.pop("s2_b").abs().max() < 1e-5 * largest
    assert_same(got, wanted, 1e-6)


@pytest.mark.parametrize("decides", [True, False])
def test_second_derivatives_of_what_was_computed_again(
    decides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One key outshines the others by exp(800), and the first queries do not see it.
    monkeypatch.setattr(core, "host_can_decide", lambda _: decides)
    torch.manual_seed(1)
    q, k, v, s = (torch.randn(1, 1, 4, 2, dtype=torch.float64) for _ in range(4))
    s[:, :, 3] += 800

    def attended(q: Tensor, k: Tensor, v: Tensor, s: Tensor) -> Tensor:
        return algorithm.algorithm1(q, k, v, s, masked("forward"), "log_sigmoid", None)

    assert attended(q, k, v, s)[0, 0, 1].any()
    leaves = [t.requires_grad_() for t in (q, k, v, s)]
    assert torch.autograd.gradcheck(attended, leaves)
    assert torch.autograd.gradgradcheck(attended, leaves)


def test_padded_queries_are_finite_whatever_they_see(monkeypatch: pytest.MonkeyPatch) -> None:
    # The padded query sees only keys that the largest one outshines by exp(300).
    monkeypatch.setattr(core, "exact", lambda a, *_: a)
    q, v, s = torch.zeros(1, 1, 5, 2), torch.randn(1, 1, 5, 3), torch.zeros(1, 1, 5, 3)
    s[:, :, 0] = 300
    mask = torch.tensor([[True, True, True, True, False]])
    out = algorithm.algorithm1(q, q, v, s, masked("window:1"), "log_sigmoid", mask)
    assert out[0, 0, 4].isfinite().all()
    assert not out[0, 0, 3].any()  # flagged


def test_bias_of_the_source2token_scores_has_no_gradient() -> None:
    # The softmax does not see what is added to all keys alike (sigma_s = identity).
    module = build("mtsa.algorithm1").float()
    x, mask = batch((257, 140), seed=5)
    found = run(module, 4 * x.float(), mask)
    assert found["s2_w"].abs().max() > 100
    assert found["s2_b"].abs().max() < 2e-5


def test_maximum_of_a_query_is_not_that_of_a_padded_key(monkeypatch: pytest.MonkeyPatch) -> None:
    # Scores of -200 at real keys, 0 at the padded one, whose key is zero.
    monkeypatch.setattr(core, "exact", lambda a, *_: a)
    q, k = torch.full((1, 1, 4, 1), 20.0), torch.full((1, 1, 4, 1), -10.0)
    k[:, :, 3] = 0
    v = torch.randn(1, 1, 4, 3)
    mask = torch.tensor([[True, True, True, False]])
    out = algorithm.algorithm1(q, k, v, torch.zeros_like(v), masked("none"), "identity", mask)
    assert error(out[0, 0, :3], v[0, 0, :3].mean(0).expand(3, 3)) < 1e-6


def test_heads_with_one_mask_are_grouped() -> None:
    def grouped(*texts: str) -> tuple[list[str], int]:
        groups, size = runs(parse_all(texts, len(texts)))
        return [g.text for g in groups], size

    assert grouped("forward", "forward", "backward", "backward") == (["forward", "backward"], 2)
    assert grouped("none", "none") == (["none"], 2)
    assert grouped("forward", "backward", "forward") == (["forward", "backward", "forward"], 1)
    assert grouped("none", "none", "none", "diagonal") == (["none"] * 3 + ["diagonal"], 1)
