"""The torch modules among themselves, and what torch does with modules."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from harness.registry import resolve
from reference_impls.bi_lstm.modules import PackedBiLstm
from reference_impls.checks import glorot, host_can_decide
from reference_impls.mtsa.optimized import least_denominator
from reference_impls.mtsa.plain import PlainMTSA
from reference_impls.multi_head.modules import MatmulMultiHead, PlainMultiHead
from suites.support.batches import (
    D_IN,
    D_OUT,
    FAST,
    MECHANISMS,
    PLAIN,
    WITH_VARIANTS,
    assert_same,
    batch,
    build,
    by_day,
    error,
    module_of,
    run,
    widths,
)
from suites.support.parameters import few


@pytest.mark.parametrize(("name", "variant"), by_day(WITH_VARIANTS))
def test_equals_plain(name: str, variant: str) -> None:
    module = build(name, variant)
    plain = build(f"{name.partition('.')[0]}.plain", variant)
    plain.load_state_dict(module.state_dict())
    short = ((1, 1), (2, 1, 0), (3, 2)) if variant == "default" else ()
    for lengths in (*short, (7, 4, 1, 0)):
        x, mask = batch(lengths, padding=math.nan)
        assert_same(run(module, x, mask), run(plain, x, mask), 1e-11)


def test_the_host_decides_nothing_while_compiling() -> None:
    def look(x: Tensor) -> Tensor:
        return x + 1 if host_can_decide(x) else x - 1

    x = torch.zeros(2)
    torch._dynamo.reset()
    compiled: Any = torch.compile(look, fullgraph=True, backend="eager")
    assert bool((look(x) == 1).all())
    assert bool((compiled(x) == -1).all())


@pytest.mark.parametrize("name", FAST)
def test_activations_may_be_computed_again(name: str) -> None:
    module, (x, mask) = build(name), batch((7, 4))
    wanted, forward = run(module, x, mask), module.forward
    module.forward = lambda *inputs: checkpoint(forward, *inputs, use_reentrant=False)
    assert_same(run(module, x, mask), wanted, 0.0)


@pytest.mark.parametrize("name", FAST)
def test_autocast(name: str) -> None:
    module = build(name).float()
    x, mask = batch((7, 4, 1, 0), padding=math.nan)
    x = x.float().requires_grad_()
    wanted = module(x, mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = module(x, mask)
    assert 0 < error(low, wanted) < 0.05
    low.float().sum().backward()
    assert x.grad is not None
    for gradient in (x.grad, *(p.grad for p in module.parameters() if p.grad is not None)):
        assert gradient.isfinite().all()
    assert torch.equal(module(x, mask), wanted)


COMPILED = ["mtsa.algorithm1", "multi_head.sdpa_math"]
OF_WINDOWS = ("msmsa.", "msmsa_layer.", "multi_scale_transformer.", "transformer.")
OTHERS = ["disa.broadcast", "multi_cnn.gemm"]
OTHERS += [name for name in (*PLAIN, *FAST) if name.startswith(OF_WINDOWS)]


@pytest.mark.parametrize("name", few([*COMPILED, *OTHERS], COMPILED))
def test_compiles_into_one_graph(name: str) -> None:
    module = build(name)
    torch._dynamo.reset()
    compiled: Any = torch.compile(module, fullgraph=True, backend="eager")
    for lengths in ((5, 3, 0), (70, 70, 2)):
        x, mask = batch(lengths)
        assert error(compiled(x, mask), module(x, mask)) < 1e-12
    assert error(compiled(x, None), module(x, None)) < 1e-12


def test_least_denominator_grows_with_the_length() -> None:
    assert least_denominator(torch.float64, 10**6) == 1e-280
    assert least_denominator(torch.float32, 4) == 1e-30
    assert least_denominator(torch.float32, 1000) == pytest.approx(2e-29, rel=1e-12, abs=0)


def test_sums_of_exponentials_do_not_overflow_in_float16() -> None:
    # 700 weights of up to exp(5) add to more than 65504, the largest float16.
    module = build("disa.broadcast")
    x, mask = batch((700, 400))
    x = 30 * x
    wanted = module(x, mask)
    out = module.half()(x.half(), mask)
    assert error(out, wanted) < 2e-2


# Weights


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
        d_out = widths(mechanism, {})[1]
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


def test_one_set_of_weights_serves_all_implementations() -> None:
    for mechanism in MECHANISMS.values():
        shapes = {
            frozenset(
                (n, tuple(w.shape))
                for n, w in module_of(f"{mechanism.name}.{i.name}").state_dict().items()
            )
            for i in mechanism.implementations
        }
        assert len(shapes) == 1, mechanism.name


def test_records_do_not_import_torch_or_numpy() -> None:
    names = ", ".join(sorted({m.folder for m in MECHANISMS.values()}))
    code = f"import sys, {names}; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_score_weights_multiply_every_score() -> None:
    for factory in (PlainMultiHead, MatmulMultiHead):
        heads = factory(D_IN, D_OUT, heads=2, positions=None, output_layer=False).double()
        x, _ = batch((5,))
        with torch.no_grad():
            heads.q_w.mul_(1e4)
        # With scores that far apart the softmax picks one key: the output is one of the values.
        values = x @ heads.v_w[0]  # [1, N, d_h]
        out = heads(x)[..., : values.shape[-1]]
        assert (out[0, :, None] - values).abs().amax(-1).amin(-1).max() < 1e-6
    assert MECHANISMS["mtsa"].score_weights == ("q_w", "s2_w", "s2_b")
    module = PlainMTSA(D_IN, D_OUT, heads=2).double()
    before = module.project(batch((5,))[0])
    with torch.no_grad():
        for name in MECHANISMS["mtsa"].score_weights:
            getattr(module, name).mul_(3)
    after = module.project(batch((5,))[0])
    assert error(after[0] @ after[1].mT, 3 * before[0] @ before[1].mT) < 1e-14
    assert error(after[3], 3 * before[3]) < 1e-14


@pytest.mark.parametrize(("shape", "taps"), [((300, 40), 1), ((3, 40, 300), 1), ((5, 90, 60), 5)])
def test_glorot_weights_fill_their_interval(shape: tuple[int, ...], taps: int) -> None:
    torch.manual_seed(0)
    weight = glorot(*shape, taps=taps)
    bound = math.sqrt(6 / (taps * (shape[-2] + shape[-1])))
    assert 0.99 * bound < weight.max() <= bound
    assert -bound <= weight.min() < -0.99 * bound
    assert abs(weight.mean()) < 0.03 * bound


def test_lstm_weights_are_glorot_per_gate_and_one_bias_is_frozen_at_zero() -> None:
    torch.manual_seed(0)
    module, h = PackedBiLstm(D_IN, D_OUT), D_OUT // 2
    weights = module.state_dict()
    for direction in ("", "_reverse"):
        for name, fan_in in (("weight_ih", D_IN), ("weight_hh", h)):
            weight = weights[f"lstm.{name}_l0{direction}"]
            assert weight.shape == (4 * h, fan_in)
            bound = math.sqrt(6 / (fan_in + h))
            assert 0.95 * bound < weight.max() <= bound
            assert -bound <= weight.min() < -0.95 * bound
        assert not weights[f"lstm.bias_ih_l0{direction}"].any()
    frozen = {n for n, p in module.named_parameters() if not p.requires_grad}
    assert frozen == {"lstm.bias_hh_l0", "lstm.bias_hh_l0_reverse"}
    assert not any(weights[name].any() for name in frozen)


def test_positions_stay_exact_when_the_dtype_changes() -> None:
    module = build("multi_head.sdpa")
    x, mask = batch((7, 4))
    wanted = module(x, mask)
    module.bfloat16()(x.bfloat16(), mask)
    exact = build("multi_head.sdpa")
    module.double().load_state_dict(exact.state_dict())
    assert torch.equal(module(x, mask), wanted)
    longer, long_mask = batch((40, 3))
    assert error(module(longer, long_mask), exact(longer, long_mask)) == 0
    assert not any("position" in key for key in module.state_dict())
