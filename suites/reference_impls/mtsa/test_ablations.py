"""MTSA without one of its parts (Table 3), in a stack (SRL) and in translation form."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import reference_impls.mtsa_stack.modules as stack_plain
from harness.build import make
from harness.registry import builtins
from reference_impls.mtsa.layer import TensorizedLayer
from suites.support.batches import D_IN, D_OUT, HEADS, assert_same, batch, build, error, run

torch.set_num_threads(1)

OPTIONS = ("token2token", "source2token")
NONE_OF = {
    ("mtsa", "token2token"): {"q_w"},  # s reads the keys
    ("mtsa", "source2token"): {"s1_w", "s1_b", "s2_w", "s2_b"},
    ("mtsa_released", "token2token"): {"q_w", "k_w"},
    ("mtsa_released", "source2token"): {"s1_w", "s1_b", "s2_w", "s2_b"},
}
ZERO = {"token2token": ("q_w",), "source2token": ("s2_w", "s2_b")}


def made(
    name: str, d_in: int = D_IN, d_out: int = D_OUT, heads: int = HEADS, **options: Any
) -> Any:
    """A float64 module whose biases are not zero."""
    mechanism = builtins()[name.partition(".")[0]]
    factory = mechanism.implementation(name.partition(".")[2]).factory
    module = make(mechanism, factory, d_in, d_out, heads, {**mechanism.options, **options}).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, dtype=torch.float64))
    return module


@pytest.mark.parametrize("implementation", ["plain", "algorithm1"])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", ["mtsa", "mtsa_released"])
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_without_a_score_is_with_that_score_zero(
    name: str, option: str, implementation: str, scale_t: str
) -> None:
    whole = made(f"{name}.{implementation}", scale_t=scale_t)
    part = made(f"{name}.{implementation}", scale_t=scale_t, **{option: False})
    assert set(whole.state_dict()) - set(part.state_dict()) == NONE_OF[name, option]
    with torch.no_grad():
        for weight in ZERO[option]:
            getattr(whole, weight).zero_()
    part.load_state_dict({k: whole.state_dict()[k] for k in part.state_dict()})
    x, mask = batch((7, 4, 0), padding=math.nan)
    got, wanted = run(part, x, mask), run(whole, x, mask)
    assert_same(got, {k: wanted[k] for k in got}, 1e-12)


@pytest.mark.parametrize("implementation", ["plain", "algorithm1"])
def test_without_both_scores_the_keys_that_a_mask_allows_are_averaged(implementation: str) -> None:
    masks = ["forward", "backward_inclusive", "window:1", "distance:0.5"]
    off = dict.fromkeys(OPTIONS, False)
    module = made(f"mtsa.{implementation}", masks=masks, **off)
    assert set(module.state_dict()) == {"v_w", "o_w"}
    n = 5
    x, _ = batch((n,))
    v = torch.einsum("nd,hde->hne", x[0], module.v_w)
    i, j = np.indices((n, n))
    weights = np.stack(
        [j < i, j >= i, np.abs(i - j) <= 1, np.exp(-0.5 * np.abs(i - j))], dtype=np.float64
    )
    weights /= np.maximum(weights.sum(2, keepdims=True), 1e-300)
    heads = torch.from_numpy(weights) @ v  # [H, N, d_h]
    wanted = heads.permute(1, 0, 2).flatten(1) @ module.o_w
    assert error(module(x)[0], wanted) < 1e-14


@pytest.mark.parametrize("file", ["naive", "naive_released"])
def test_oracles_refuse_weights_that_belong_to_another_configuration(file: str) -> None:
    naive = importlib.import_module(f"reference_impls.mtsa.{file}").naive
    name = {"naive": "mtsa.plain", "naive_released": "mtsa_released.plain"}[file]
    weights = {k: w.numpy() for k, w in made(name).state_dict().items()}
    for option in (*OPTIONS, "attention_dropout"):
        with pytest.raises(AssertionError):
            naive(
                np.ones((2, D_IN)), weights, heads=HEADS, **{option: option == "attention_dropout"}
            )


@pytest.mark.parametrize(
    ("off", "saved"),
    [
        # Over pairs: Q K^T, and with one column in place of d_h the denominators.
        ({"token2token": False}, 2 * 24),
        ({"source2token": False}, 2 * (24 - 4)),
        (dict.fromkeys(OPTIONS, False), 2 * 24 + 2 * (24 - 4)),
    ],
)
def test_algorithm1_does_no_products_for_a_score_that_is_not_there(
    off: dict[str, bool], saved: int
) -> None:
    def products(n: int, **options: Any) -> int:
        with FlopCounterMode(display=False) as counter:
            made("mtsa.algorithm1", 12, 24, 4, **options)(torch.randn(3, n, 12).double())
        return counter.get_total_flops()

    def per_pair(**options: Any) -> float:
        # What grows with N^2: the second difference of a quadratic polynomial, halved.
        f = [products(n, **options) for n in (10, 20, 30)]
        return (f[2] - 2 * f[1] + f[0]) / (2 * 100) / 3

    assert per_pair() == 6 * 24
    assert per_pair(**off) == 6 * 24 - saved


@pytest.mark.parametrize("name", ["mtsa.plain", "mtsa.algorithm1", "mtsa_released.algorithm1"])
def test_scores_that_are_not_there_are_shown_as_zeros(name: str) -> None:
    x, mask = batch((5, 3))
    for option in OPTIONS:
        module = made(name, **{option: False})
        assert isinstance(module, TensorizedLayer)
        shown = module.attention(x, mask)
        assert shown["token2token_scores"].shape == (HEADS, 2, 5, 5)
        assert shown["source2token_scores"].shape == (HEADS, 2, 5, D_OUT // HEADS)
        assert not shown[f"{option}_scores"].any()
        total = shown["token2token_weights"].sum(-1)
        assert error(total[0, 0, 1:], torch.ones(4)) < 1e-14


def build_stack(layers: int) -> Any:
    """A stack of width D_IN."""
    return made("mtsa_stack.algorithm1", d_out=D_IN, layers=layers)


def test_attention_of_every_layer_of_a_stack_is_shown() -> None:
    module = build_stack(2)
    x, mask = batch((7, 4))
    shown = module.attention(x, mask)
    first, second = (shown[f"l{layer}_token2token_weights"] for layer in range(2))
    assert first.shape == second.shape == (HEADS, 2, 7, 7)
    assert error(second[0, 0].sum(-1), torch.ones(7).index_fill(0, torch.tensor(0), 0)) < 1e-14
    one = build_stack(1)
    one.load_state_dict({k: w for k, w in module.state_dict().items() if k.startswith("l0_")})
    torch.testing.assert_close(one.attention(x, mask)["l0_token2token_weights"], first)
    assert error(first, second) > 1e-3


def test_plain_stack_of_many_positions_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    module = made("mtsa_stack.plain", d_out=D_IN)
    x, mask = batch((7, 4))
    wanted = run(module, x, mask)
    rows = torch.tensor([6, 0, 2])
    monkeypatch.setattr(stack_plain, "STEP", 2)
    torch.testing.assert_close(module(x, mask, rows), wanted["output"][:, rows])
    every = torch.arange(7)

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stack = module

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.stack(x, mask, every)

    got = run(Named(), x, mask)
    assert_same({k.removeprefix("stack."): v for k, v in got.items()}, wanted, 1e-12)


def test_translation_forms_directions_are_inclusive_halves() -> None:
    module = build("mtsa_nmt.algorithm1", "bi_direction")
    assert isinstance(module, TensorizedLayer)
    texts = [mask.text for mask in module.masks]
    assert texts == ["forward_inclusive"] * 2 + ["backward_inclusive"] * 2
