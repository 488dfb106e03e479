"""What mutants survived before these tests: options refused, defaults, initial weights, odd masks,

``attention``, forced backends, and the encoders in training.
"""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import reference_impls.multi_head.modules as multi_head
import reference_impls.multi_head.modules as multi_head_layer
from harness.build import make
from harness.registry import resolve
from reference_impls.checks import glorot, host_can_decide, positive_int
from reference_impls.disa.modules import PlainDisa
from reference_impls.encoders import (
    Embedding,
    Encoder,
    PairRelatedness,
    SentenceClassifier,
)
from reference_impls.masks import parse, parse_all
from reference_impls.mechanism import BadOption, Unsupported
from reference_impls.mtsa.optimized import Algorithm1ReleasedMTSA, least_denominator
from reference_impls.mtsa_stack.modules import PlainStackedMTSA
from reference_impls.multi_head.modules import SdpaMultiHead
from reference_impls.source2token.modules import PlainSource2Token
from suites.support.batches import D_IN, D_OUT, FAST, MECHANISMS, PLAIN, batch, build, error, run

torch.set_num_threads(1)

ALL = [*FAST, *PLAIN]
LOOKED_AT = [name for name in ALL if hasattr(build(name), "attention")]


# Construction


@pytest.mark.parametrize("name", ALL)
def test_an_unknown_option_is_refused(name: str) -> None:
    mechanism = MECHANISMS[name.partition(".")[0]]
    implementation = mechanism.implementation(name.partition(".")[2])
    options = {**mechanism.options, **implementation.options, "no_such_option": 1}
    d_out = D_IN if mechanism.keeps_width else D_OUT
    with pytest.raises(BadOption, match="has no option 'no_such_option'"):
        make(mechanism, implementation.factory, D_IN, d_out, 4, options)


@pytest.mark.parametrize("name", [n for n in ALL if MECHANISMS[n.partition(".")[0]].keeps_width])
@pytest.mark.parametrize("d_out", [D_IN - 4, D_IN + 4])
def test_a_width_that_can_not_change_is_refused_both_ways(name: str, d_out: int) -> None:
    mechanism = MECHANISMS[name.partition(".")[0]]
    factory = mechanism.implementation(name.partition(".")[2]).factory
    with pytest.raises(BadOption, match=f"d_out={d_out}"):
        make(mechanism, factory, D_IN, d_out, 4, mechanism.options)


FACTORIES = sorted(
    {i.factory for m in MECHANISMS.values() for i in m.implementations if "cpu" in i.devices}
)


@pytest.mark.parametrize("factory", FACTORIES)
def test_without_options_a_factory_builds_what_a_record_says(factory: str) -> None:
    # Two records, a paper's and its program's, may share a factory and differ in options.
    same = []
    for mechanism in MECHANISMS.values():
        if factory not in {i.factory for i in mechanism.implementations}:
            continue
        d_out = (
            D_IN
            if mechanism.keeps_width
            else 4 * len(mechanism.options.get("kernel_sizes", range(4)))
        )
        heads = {"heads": 4} if mechanism.takes_heads else {}
        x, mask = batch((9, 5))
        built = []
        for options in ({}, mechanism.options):
            torch.manual_seed(0)
            module = resolve(factory)(D_IN, d_out, **heads, **options).double()
            built.append((module.state_dict(), module(x, mask)))
        (one, out), (two, wanted) = built
        shapes = [{name: w.shape for name, w in weights.items()} for weights in (one, two)]
        same.append(shapes[0] == shapes[1] and torch.equal(out, wanted))
    assert any(same)


@pytest.mark.parametrize("output", [{"head_dim": 9}, {"head_dim": 7}, {"output_hidden": 17}])
def test_released_mtsa_refuses_widths_that_are_not_d_out(output: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match="d_out=16, but"):
        Algorithm1ReleasedMTSA(D_IN, 16, heads=2, **output)


@pytest.mark.parametrize("value", [True, 2.0, 0, -1, "3", None])
def test_what_is_no_positive_integer_is_refused(value: Any) -> None:
    with pytest.raises(BadOption, match="expected an integer of at least 1"):
        positive_int("layers", value)


@pytest.mark.parametrize("value", ["5", None, 0, -1.0, math.inf, math.nan])
def test_what_is_no_scale_of_disa_is_refused(value: Any) -> None:
    with pytest.raises(BadOption, match="expected a number above 0"):
        PlainDisa(D_IN, D_OUT, tanh_scale=value)


def test_masks_are_shared_and_can_not_be_changed() -> None:
    assert parse("forward") is parse("forward")
    with pytest.raises(FrozenInstanceError):
        parse("forward").lo = 0  # type: ignore[misc]


def test_masks_are_refused_in_one_line() -> None:
    with pytest.raises(BadOption, match="distance:A, A a number >= 0"):
        parse("distance:-0.5")
    assert parse("distance:0").slope == 0
    for given in (3, {"forward": 1, "none": 2}, iter(["none", "none"])):
        with pytest.raises(BadOption, match="expected a list with one text per head"):
            parse_all(given, 2)  # type: ignore[arg-type]


# Initial weights


@pytest.mark.parametrize(("shape", "taps"), [((300, 40), 1), ((3, 40, 300), 1), ((5, 90, 60), 5)])
def test_glorot_weights_fill_their_interval(shape: tuple[int, ...], taps: int) -> None:
    torch.manual_seed(0)
    weight = glorot(*shape, taps=taps)
    bound = math.sqrt(6 / (taps * (shape[-2] + shape[-1])))
    assert 0.99 * bound < weight.max() <= bound
    assert -bound <= weight.min() < -0.99 * bound
    assert abs(weight.mean()) < 0.03 * bound


def test_lstm_weights_are_glorot_per_gate() -> None:
    torch.manual_seed(0)
    weights = dict(build("bi_lstm.packed").state_dict())
    h = D_OUT // 2
    for direction in ("", "_reverse"):
        for name, fan_in in (("weight_ih", D_IN), ("weight_hh", h)):
            module = resolve("reference_impls.bi_lstm.modules:PackedBiLstm")(D_IN, D_OUT)
            weight = module.state_dict()[f"lstm.{name}_l0{direction}"]
            assert weight.shape == weights[f"lstm.{name}_l0{direction}"].shape == (4 * h, fan_in)
            bound = math.sqrt(6 / (fan_in + h))
            assert 0.95 * bound < weight.max() <= bound
            assert -bound <= weight.min() < -0.95 * bound
            assert not module.state_dict()[f"lstm.bias_ih_l0{direction}"].any()


# Batches


@pytest.mark.parametrize("name", ALL)
def test_samples_may_stand_in_any_order_and_alone(name: str) -> None:
    module = build(name)
    x, mask = batch((7, 0, 4, 7, 1), padding=math.nan)
    order = torch.tensor([1, 4, 2, 0, 3])  # lengths neither fall nor rise
    out = module(x, mask)
    assert error(module(x[order], mask[order]), out[order]) < 1e-13
    for b in range(len(x)):
        assert error(module(x[b : b + 1], mask[b : b + 1])[0], out[b]) < 1e-11


@pytest.mark.parametrize("name", FAST)
def test_padding_may_stand_anywhere_or_is_refused(name: str) -> None:
    module, plain = build(name), build(f"{name.partition('.')[0]}.plain")
    plain.load_state_dict(module.state_dict())
    x, _ = batch((6, 6, 6))
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 0, 0]]).bool()
    try:
        got = run(module, x, mask)
    except ValueError as reason:
        assert "expected padding on the right only" in str(reason)  # noqa: PT017
        return
    wanted = run(plain, x, mask)
    for key in wanted:
        assert error(got[key], wanted[key]) < 1e-11, key


@pytest.mark.parametrize("name", [n for n in ALL if n.startswith("source2token.")])
def test_one_feature_is_enough(name: str) -> None:
    factory = resolve(MECHANISMS["source2token"].implementation(name.partition(".")[2]).factory)
    module = factory(1, 1).double()
    x = torch.randn(2, 5, 1, dtype=torch.float64)
    assert error(module(x), module(x, torch.ones(2, 5).bool())) < 1e-13


# Attention, for looking at


@pytest.mark.parametrize("name", LOOKED_AT)
def test_attention_takes_what_forward_takes(name: str) -> None:
    module: Any = build(name)
    x, mask = batch((6, 3, 0))
    wanted = module.attention(x, mask)
    for content in (math.nan, 1e6):
        found = module.attention(x.masked_fill(~mask[..., None], content), mask)
        for key in wanted:
            assert torch.equal(found[key], wanted[key]), key
    whole, ones = module.attention(x, None), module.attention(x, torch.ones_like(mask))
    for key in wanted:
        assert whole[key].shape == wanted[key].shape
        assert error(whole[key], ones[key]) < 1e-14, key
    for bad, real, message in (
        (x[..., :5], None, "expected"),
        (x, mask.double(), "expected torch.bool"),
        (x.long(), None, "floating"),
    ):
        with pytest.raises(ValueError, match=message):
            module.attention(bad, real)


def test_scores_of_source2token_are_those_of_eq_3() -> None:
    # A bias on all keys alike changes no weight: only the scores show it.
    module = PlainSource2Token(D_IN, D_IN).double()
    nn.init.normal_(module.s1_b)
    nn.init.normal_(module.s2_b)
    x, mask = batch((5, 2))
    hidden = torch.relu(x @ module.s1_w + module.s1_b)
    wanted = hidden @ module.s2_w + module.s2_b
    assert error(module.attention(x, mask)["scores"], wanted) < 1e-14


# Multi-head: positions and forced backends


def test_positions_are_computed_once_for_each_power_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    original = multi_head_layer.sinusoids

    def spy(length: int, *rest: Any) -> Tensor:
        made.append(length)
        return original(length, *rest)

    monkeypatch.setattr(multi_head_layer, "sinusoids", spy)
    module = build("multi_head.sdpa")
    for n in (8, 8, 5, 9, 16, 17):
        module(*batch((n, 2)))
    assert made == [8, 16, 32]


def test_positions_made_without_gradients_serve_training() -> None:
    module: Any = build("multi_head.sdpa")
    x, mask = batch((5, 3))
    with torch.inference_mode():
        module(x, mask)
    [table] = module.positions._tables.values()
    assert not table.is_inference()
    wanted = run(build("multi_head.sdpa"), x, mask)
    got = run(module, x, mask)
    assert torch.equal(got["x"], wanted["x"])


class Anywhere:
    """As much of a query as is asked for: a device and a dtype."""

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        self.device, self.dtype = SimpleNamespace(type=device), dtype


@pytest.mark.parametrize(
    ("backend", "device", "dtype", "masked", "reason"),
    [
        ("efficient", "cpu", torch.float32, False, "runs on CUDA only"),
        ("cudnn", "cpu", torch.float16, False, "runs on CUDA only"),
        ("flash", "cpu", torch.float32, True, ""),
        ("math", "cpu", torch.float64, True, ""),
        ("flash", "cuda", torch.float16, True, "takes no padding mask on CUDA"),
        ("flash", "cuda", torch.float16, False, ""),
        ("flash", "cuda", torch.float32, False, "not float32"),
        ("cudnn", "cuda", torch.float32, True, "not float32"),
        ("cudnn", "cuda", torch.bfloat16, True, ""),
        ("efficient", "cuda", torch.float32, True, ""),
        ("math", "cuda", torch.float64, True, ""),
    ],
)
def test_a_backend_is_refused_where_it_is_known_not_to_run(
    backend: str, device: str, dtype: torch.dtype, masked: bool, reason: str
) -> None:
    query: Any = Anywhere(device, dtype)
    said = multi_head._refusal(backend, query, torch.ones(1) if masked else None)
    assert (reason in said) if reason else not said


@pytest.mark.parametrize(
    ("message", "masked", "raised"),
    [
        ("No available kernel. Aborting execution.", True, "head width 4, a mask"),
        ("No viable backend for it", False, "head width 4, no mask"),
        ("something else", True, None),
    ],
)
def test_a_backend_without_a_kernel_is_unsupported(
    message: str, masked: bool, raised: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Tensor:
        raise RuntimeError(message)

    module = SdpaMultiHead(D_IN, D_OUT, heads=4, backend="math").double()
    x, mask = batch((3, 2))
    monkeypatch.setattr(multi_head, "scaled_dot_product_attention", fail)
    if raised is None:
        with pytest.raises(RuntimeError, match=message):
            module(x, None)
        return
    with pytest.raises(Unsupported, match=f"sdpa backend math has no kernel on cpu .*{raised}"):
        module(x, mask if masked else None)


def test_a_forced_backend_compiles_into_one_graph() -> None:
    module = build("multi_head.sdpa_math")
    torch._dynamo.reset()
    compiled: Any = torch.compile(module, fullgraph=True, backend="eager")
    x, mask = batch((5, 3, 0))
    assert error(compiled(x, mask), module(x, mask)) < 1e-12


# Numbers


def test_sums_of_exponentials_do_not_overflow_in_float16() -> None:
    # 700 weights of up to exp(5) add to more than 65504, the largest float16.
    module = build("disa.broadcast")
    x, mask = batch((700, 400))
    x = 30 * x
    wanted = module(x, mask)
    out = module.half()(x.half(), mask)
    assert error(out, wanted) < 2e-2


def test_the_host_decides_nothing_while_compiling() -> None:
    seen: list[bool] = []

    def look(x: Tensor) -> Tensor:
        return x + 1 if host_can_decide(x) else x - 1

    x = torch.zeros(2)
    torch._dynamo.reset()
    compiled: Any = torch.compile(look, fullgraph=True, backend="eager")
    seen += [bool((look(x) == 1).all()), bool((compiled(x) == -1).all())]
    assert seen == [True, True]


def test_least_denominator_grows_with_the_length() -> None:
    assert least_denominator(torch.float64, 10**6) == 1e-280
    assert least_denominator(torch.float32, 4) == 1e-30
    assert least_denominator(torch.float32, 1000) == pytest.approx(2e-29, rel=1e-12, abs=0)


# Encoders


def _encoder(width: int) -> tuple[Embedding, Encoder]:
    class First(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x[:, 0]

    table = torch.randn(4, width)
    table[0] = 0
    return Embedding(table), Encoder(First(), None, 0.0)


def test_the_hidden_layer_drops_features_in_training_only() -> None:
    torch.manual_seed(0)
    ids = torch.tensor([[1, 2], [3, 0]])
    classifier = SentenceClassifier(*_encoder(6), width=6, hidden=200, classes=3, dropout=0.5)
    pair = PairRelatedness(*_encoder(6), width=6, hidden=200, degrees=5, dropout=0.5)
    for model, given in ((classifier, (ids,)), (pair, (ids, ids.flip(0)))):
        assert not torch.equal(model(*given), model(*given))
        model.eval()
        assert torch.equal(model(*given), model(*given))


def test_word_vectors_are_trained_but_that_of_padding() -> None:
    embedding, _ = _encoder(3)
    x, mask = embedding(torch.tensor([[1, 3, 0], [1, 0, 0]]))
    (x * 2).sum().backward()
    grad = embedding.words.weight.grad
    assert grad is not None
    assert grad.tolist() == [[0.0] * 3, [4.0] * 3, [0.0] * 3, [2.0] * 3]
    assert mask.tolist() == [[True, True, False], [True, False, False]]


@pytest.mark.parametrize("value", [0, -0.5, math.inf, math.nan, "1e-5", None])
def test_the_stacks_epsilon_is_a_number_above_zero(value: Any) -> None:
    with pytest.raises(BadOption, match=r"ln_epsilon=.*; expected a number above 0"):
        PlainStackedMTSA(D_IN, D_IN, heads=2, ln_epsilon=value)


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_the_stack_at_some_positions_is_the_stack(layers: int) -> None:
    module = PlainStackedMTSA(D_IN, D_IN, heads=2, layers=layers).double()
    x, mask = batch((9, 5))
    rows = torch.tensor([0, 3, 7])
    assert error(module.fuse(x, mask, rows), module(x, mask)[:, rows]) < 1e-12
