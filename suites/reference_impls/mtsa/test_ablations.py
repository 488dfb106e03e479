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

import reference_impls.mtsa.optimized as algorithm
import reference_impls.mtsa_stack.modules as stack_plain
from harness.build import make
from harness.registry import builtins
from reference_impls.mechanism import BadOption
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


def test_pair_weights_without_token2token_are_the_mask_alone() -> None:
    q = torch.zeros(4, 3, 6, 0)
    groups, size = algorithm.runs(made("mtsa.algorithm1").masks)
    p = algorithm._pair_weights(q, q, groups, size, "identity", None)
    assert p.shape == (2, 1, 1, 6, 6)
    assert torch.equal(p[0, 0, 0], torch.ones(6, 6).tril(-1))
    assert torch.equal(p[1, 0, 0], torch.ones(6, 6).triu(1))


@pytest.mark.parametrize(
    ("option", "weights"), [("token2token", ("s2_w", "s2_b")), ("source2token", ("q_w",))]
)
def test_underflow_is_found_without_the_other_score(
    option: str, weights: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = made("mtsa.algorithm1", d_out=64, **{option: False}).float()
    with torch.no_grad():
        for name in weights:
            getattr(module, name).mul_(200)
    x, mask = batch((64, 40), seed=4)
    plain = made("mtsa.plain", d_out=64, **{option: False})
    plain.load_state_dict(module.state_dict())
    seen: list[int] = []
    original = algorithm._recomputed

    def spy(where: Tensor, *rest: Any) -> Tensor:
        seen.append(where.numel())
        return original(where, *rest)

    monkeypatch.setattr(algorithm, "_recomputed", spy)
    got, wanted = run(module, x.float(), mask), run(plain, x, mask)
    assert seen
    assert error(got["output"], wanted["output"]) < 2e-5
    assert all(value.isfinite().all() for value in got.values())


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


@pytest.mark.parametrize("name", ["mtsa.plain", "mtsa_released.algorithm1"])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_switch_that_is_no_bool_is_refused(name: str, option: str) -> None:
    with pytest.raises(BadOption, match=f"{option}=1; expected True or False"):
        made(name, **{option: 1})


def srl() -> nn.Module:
    """The stack of the labelling experiments: 10 layers, 200-d, 8 heads, identity."""
    mechanism = builtins()["mtsa_stack"]
    factory = mechanism.implementation("algorithm1").factory
    return make(mechanism, factory, 200, 200, 8, {**mechanism.options, "layers": 10})


def test_the_stack_of_semantic_role_labelling_runs_and_trains() -> None:
    module = srl()
    assert sum(p.numel() for p in module.parameters()) == 10 * (6 * 200**2 + 7 * 200)
    x = torch.randn(2, 30, 200)
    mask = torch.arange(30) < torch.tensor([[30], [11]])
    out = module(x.masked_fill(~mask[..., None], math.nan), mask)
    assert not out[1, 11:].any()
    # Layer normalisation with scale 1 and offset 0 comes last.
    assert error(out[mask].mean(-1), torch.zeros(41)) < 1e-5
    assert error(out[mask].var(-1, unbiased=False), torch.ones(41)) < 1e-3
    (out * torch.randn(out.shape)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or name == "l0_s2_b", name


def test_a_stack_is_its_layers_one_after_the_other() -> None:
    whole = build_stack(3)
    x, mask = batch((7, 4), padding=math.nan)
    wanted = x
    for layer in range(3):
        one = build_stack(1)
        weights = {
            k.replace(f"l{layer}_", "l0_"): w
            for k, w in whole.state_dict().items()
            if k.startswith(f"l{layer}_")
        }
        one.load_state_dict(weights)
        wanted = one(wanted, mask)
    assert error(whole(x, mask), wanted) < 1e-13


def build_stack(layers: int) -> Any:
    """A stack of width D_IN."""
    return made("mtsa_stack.algorithm1", d_out=D_IN, layers=layers)


def test_attention_of_a_stack_layer_is_the_released_mtsa() -> None:
    stack = build_stack(1)
    d = D_IN
    with torch.no_grad():
        stack.l0_ffn_w.zero_()
        stack.l0_ffn_b.zero_()
    released = made(
        "mtsa_released.plain",
        d_out=d,
        scale_t="identity",
        activation_on_values=False,
        scores_from_input=True,
        source2token_hidden_layer=False,
        fusion_gate=False,
        accelerate=True,
        output_hidden=d,
        head_dim=d // HEADS,
    )
    released.load_state_dict({k: stack.get_parameter(f"l0_{k}") for k in released.state_dict()})
    x, mask = batch((7, 4))

    def norm(k: int, z: Tensor) -> Tensor:
        centred = z - z.mean(-1, keepdim=True)
        root = (centred**2).mean(-1, keepdim=True).add(1e-6).sqrt()
        weight, offset = (stack.get_parameter(f"l0_ln{k}_{w}") for w in ("scale", "offset"))
        return centred / root * weight + offset

    h = norm(1, x)
    wanted = norm(2, h + released(h, mask))
    assert error(stack(x, mask)[mask], wanted[mask]) < 1e-13


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


def test_translation_form_without_source2token_layers_scale_is_the_papers() -> None:
    # W^(s2) = 1 in the paper's s = W2 f(W1 k) of positive preactivations is one layer.
    nmt = made(
        "mtsa_nmt.algorithm1",
        source2token_from_keys=True,
        source2token_scaled=False,
        scale_s="identity",
    )
    paper = made("mtsa.plain", masks=["none"] * HEADS, scale_t="identity")
    d_h = D_OUT // HEADS
    state = dict(nmt.state_dict())
    state["s1_b"] = state["s1_b"] + 100  # far from relu's kink; the softmax does not see it
    state["s2_w"] = torch.eye(d_h, dtype=torch.float64).expand(HEADS, d_h, d_h)
    state["s2_b"] = torch.zeros(HEADS, d_h, dtype=torch.float64)
    paper.load_state_dict(state)
    x, mask = batch((7, 4, 1), padding=math.nan)
    assert error(nmt(x, mask), paper(x, mask)) < 1e-12


def test_translation_forms_directions_are_inclusive_halves() -> None:
    module = build("mtsa_nmt.algorithm1", "bi_direction")
    assert isinstance(module, TensorizedLayer)
    texts = [mask.text for mask in module.masks]
    assert texts == ["forward_inclusive"] * 2 + ["backward_inclusive"] * 2
    with pytest.raises(BadOption, match="3 heads can't be halved"):
        made("mtsa_nmt.plain", 12, 15, 3, bi_direction=True)


def test_translation_form_refuses_widths_that_do_not_fit() -> None:
    with pytest.raises(BadOption, match="heads \\* head_dim is 12"):
        made("mtsa_nmt.plain", head_dim=3, output_layer=False)
