"""MTSA without one of its parts (Table 3), in a stack (SRL) and in translation form."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import reference_impls.mtsa_stack.modules as stack_plain
from reference_impls.mtsa.layer import TensorizedLayer
from suites.support.batches import D_IN, D_OUT, HEADS, assert_same, batch, build, error, run

OPTIONS = ("token2token", "source2token")
NONE_OF = {
    ("mtsa", "token2token"): {"q_w"},  # s reads the keys
    ("mtsa", "source2token"): {"s1_w", "s1_b", "s2_w", "s2_b"},
    ("mtsa_released", "token2token"): {"q_w", "k_w"},
    ("mtsa_released", "source2token"): {"s1_w", "s1_b", "s2_w", "s2_b"},
}
ZERO = {"token2token": ("q_w",), "source2token": ("s2_w", "s2_b")}


@pytest.mark.parametrize("implementation", ["plain", "algorithm1"])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", ["mtsa", "mtsa_released"])
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_without_a_score_is_with_that_score_zero(
    name: str, option: str, implementation: str, scale_t: str
) -> None:
    whole = build(f"{name}.{implementation}", scale_t=scale_t)
    options: dict[str, Any] = {"scale_t": scale_t, option: False}
    part = build(f"{name}.{implementation}", **options)
    assert set(whole.state_dict()) - set(part.state_dict()) == NONE_OF[name, option]
    with torch.no_grad():
        for weight in ZERO[option]:
            getattr(whole, weight).zero_()
    part.load_state_dict({k: whole.state_dict()[k] for k in part.state_dict()})
    x, mask = batch((7, 4, 0), padding=math.nan)
    got, wanted = run(part, x, mask), run(whole, x, mask)
    assert_same(got, {k: wanted[k] for k in got}, 1e-12)


@pytest.mark.parametrize("file", ["naive", "naive_released"])
def test_oracles_refuse_weights_that_belong_to_another_configuration(file: str) -> None:
    naive = importlib.import_module(f"reference_impls.mtsa.{file}").naive
    name = {"naive": "mtsa.plain", "naive_released": "mtsa_released.plain"}[file]
    weights = {k: w.numpy() for k, w in build(name).state_dict().items()}
    for option in OPTIONS:
        with pytest.raises(AssertionError):
            naive(np.ones((2, D_IN)), weights, heads=HEADS, **{option: False})


@pytest.mark.parametrize(
    ("variant", "left"),
    [
        ("default", 6 * D_OUT),
        # Over pairs: no Q K^T, and with one column in place of d_h the denominators.
        ("no_token2token", 4 * D_OUT),
        ("no_source2token", 4 * D_OUT + 2 * HEADS),
        ("masks_alone", 2 * D_OUT + 2 * HEADS),
    ],
)
def test_algorithm1_does_no_products_for_a_score_that_is_not_there(variant: str, left: int) -> None:
    def products(n: int) -> int:
        with FlopCounterMode(display=False) as counter:
            build("mtsa.algorithm1", variant)(torch.randn(3, n, D_IN).double())
        return counter.get_total_flops()

    # What grows with N^2: the second difference of a quadratic polynomial, halved.
    f = [products(n) for n in (10, 20, 30)]
    assert (f[2] - 2 * f[1] + f[0]) / (2 * 100) / 3 == left


@pytest.mark.parametrize("name", ["mtsa.plain", "mtsa.algorithm1", "mtsa_released.algorithm1"])
def test_scores_that_are_not_there_are_shown_as_zeros(name: str) -> None:
    x, mask = batch((5, 3))
    for option in OPTIONS:
        module = build(name, f"no_{option}")
        assert isinstance(module, TensorizedLayer)
        shown = module.attention(x, mask)
        assert shown["token2token_scores"].shape == (HEADS, 2, 5, 5)
        assert shown["source2token_scores"].shape == (HEADS, 2, 5, D_OUT // HEADS)
        assert not shown[f"{option}_scores"].any()
        total = shown["token2token_weights"].sum(-1)
        assert error(total[0, 0, 1:], torch.ones(4)) < 1e-14


def test_attention_of_every_layer_of_a_stack_is_shown() -> None:
    module: Any = build("mtsa_stack.algorithm1")
    x, mask = batch((7, 4))
    shown = module.attention(x, mask)
    first, second = (shown[f"l{layer}_token2token_weights"] for layer in range(2))
    assert first.shape == second.shape == (HEADS, 2, 7, 7)
    assert error(second[0, 0].sum(-1), torch.ones(7).index_fill(0, torch.tensor(0), 0)) < 1e-14
    one: Any = build("mtsa_stack.algorithm1", "one_layer")
    one.load_state_dict({k: w for k, w in module.state_dict().items() if k.startswith("l0_")})
    torch.testing.assert_close(one.attention(x, mask)["l0_token2token_weights"], first)
    assert error(first, second) > 1e-3


def test_plain_stack_of_many_positions_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    module = build("mtsa_stack.plain")
    x, mask = batch((7, 4))
    wanted = run(module, x, mask)
    rows = torch.tensor([6, 0, 2])
    monkeypatch.setattr(stack_plain, "STEP", 2)
    torch.testing.assert_close(module(x, mask, rows), wanted["output"][:, rows])
    forward, every = module.forward, torch.arange(7)
    module.forward = lambda x, mask: forward(x, mask, every)
    assert_same(run(module, x, mask), wanted, 1e-12)
