"""The records' formulas: weights, operations, bytes; options in a case's name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from harness.build import make
from harness.case import parse, split_name
from harness.errors import UsageError
from harness.measure.ceilings import work_of
from harness.plan import make_plan
from harness.registry import Registry, builtins
from harness.verify.check import check
from harness.verify.run import fitting
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.tiled import cutting
from reference_impls.mechanism import BadOption, Size
from reference_impls.msmsa import windowed
from reference_impls.msmsa.scales import Scale
from reference_impls.msmsa.windowed import cached_windows
from suites.harness.measure import test_roofline as roofline
from suites.harness.measure.test_roofline import operations, torchs_count
from suites.programs.goals import plan
from suites.support.batches import MECHANISMS, mechanism_of
from suites.support.parameters import few

GOALS = plan.registry()


def test_a_name_may_carry_options() -> None:
    assert split_name("mtsa.plain") == ("mtsa.plain", ())
    assert split_name("a.b[x=1,y=1;2]") == ("a.b", (("x", "1"), ("y", "1;2")))
    for text in ("a.b[x=1", "a.b[x]", "a.b[x=1]c"):
        with pytest.raises(UsageError):
            split_name(text)


@pytest.mark.parametrize(
    "name",
    [
        "transformer.plain[layers=3,ff_dim=5]-B2-N9-D12x16-H4",
        "transformer.plain[layers=1]-B2-N9-D12x16-H4",
    ],
)
def test_formulas_read_options(name: str) -> None:
    case = f"{name}-f32-forward-cpu+1-thread"
    assert operations(case) == torchs_count(case)


def test_formulas_read_scales_and_layers() -> None:
    wide, narrow = (
        operations(f"msmsa.windowed[scales={scales}]-B2-N64-D16-H4-f32-forward-cpu")
        for scales in ("129;129;129;129", "1;1;1;1")
    )
    # positionwise heads: values and W^o alone
    assert narrow == 2 * 64 * (2 * 16 * 16 + 2 * 16 * 16)
    assert wide == 2 * 64 * (2 * 16 * 48 + 2 * 16 * 16 + 4 * 64 * 16)
    size = "-B2-N32-D12x16-H4-f32-forward-cpu"
    name = "multi_scale_transformer.windowed"
    assert operations(f"{name}[layers=2]{size}") == operations(name + size)
    assert operations(f"{name}[layers=3]{size}") > operations(name + size)
    full = operations(f"{name}[layers=3,candidates=n/1;,width_reading=radius]{size}")
    # 33 tokens with [CLS], 8 features: the input layer, and in each of three layers all pairs
    assert full == 2 * 2 * (32 * 12 * 8 + 3 * 33 * (4 * 8 * 8 + 2 * 33 * 8))
    assert math.isnan(operations(f"{name}[readout=sum]-B2-N32-D12x8-H4-f32-forward-cpu"))


def test_all_cases_of_the_models_have_operations_and_one_baseline() -> None:
    made = make_plan("models", "cpu", Registry())
    counts = {
        case.id: work_of(builtins()[case.mechanism], case).operations
        for case in made.cases
        if case.problem.phase == "forward" and case.problem.length == 201
    }
    assert not any(map(math.isnan, counts.values()))
    base, full, windows = (
        next(v for k, v in counts.items() if part in k)
        for part in ("transformer.sdpa", "width_reading", "windowed[layers=3]")
    )
    assert base > full > windows


def test_options_given_to_verify_make_the_configuration_that_is_checked() -> None:
    full = {"layers": "3", "candidates": "n/1;", "width_reading": "radius"}
    assert check("multi_scale_transformer.windowed", "f32", "cpu", options=full)["verdict"] == "ok"


def test_an_option_with_an_entry_per_head_is_verified_with_that_many_heads() -> None:
    six = fitting("msmsa.windowed", (("scales", "1;1;3;3;n/16;n/8"),), 6, Registry())
    assert check("msmsa.windowed", "f32", "cpu", options=dict(six))["verdict"] == "ok"
    with pytest.raises(BadOption, match="6 scales given for 4 heads"):
        check("msmsa.windowed", "f32", "cpu", options=dict(six[:1]))
    alone = (("width_reading", "radius"),)
    assert fitting("msmsa.windowed", alone, 6, Registry()) == alone
    own = (*six[:1], ("heads", "6"))
    assert fitting("msmsa.windowed", own, 8, Registry()) == own
    widths = (("kernel_sizes", "3;5"),)
    assert fitting("multi_cnn.conv", widths, 6, Registry()) == widths


def test_an_implementation_may_do_less_than_its_mechanism() -> None:
    mtsa = builtins()["mtsa"]
    case = parse("mtsa.algorithm1-B2-N16-D300x600-H8-f32-forward-cpu")
    less = replace(mtsa.implementation("algorithm1"), operations=lambda s: 7.0)
    assert work_of(replace(mtsa, implementations=(less,)), case).operations == 7.0
    assert work_of(mtsa, case).operations > 1e6


def test_fused_layers_do_not_count_what_the_masks_close() -> None:
    size = "-B2-N64-D300x600-H8-f32-training-cpu"
    whole, fused = (operations(f"mtsa.{name}{size}") for name in ("algorithm1", "fused"))
    pairs = work_of(
        GOALS.mechanisms["core_mtsa"],
        parse("core_mtsa.plain-B2-N64-D2400x600-H8-f32-forward-cpu"),
    ).operations
    assert whole - fused == pytest.approx(3 * (2 * 6 * 64 * 64 * 600 - pairs))
    released = [operations(f"mtsa_released.{name}{size}") for name in ("algorithm1", "fused")]
    assert released[0] - released[1] == whole - fused


def test_the_ratio_table_shows_operations_where_there_is_room() -> None:
    rows = roofline.rows_of(
        [*roofline.timed(roofline.BASE, 0.1), *roofline.timed(roofline.MINE, 0.2)]
    )
    ratio = operations(roofline.MINE) / operations(roofline.BASE)
    assert rows[roofline.MINE].operations_ratio == pytest.approx(ratio)
    assert rows[roofline.BASE].operations_ratio == 1
    for width in (96, 140):
        lines = roofline.shown(list(rows.values()), width).splitlines()
        assert f"{ratio:.2f}x" in next(line for line in lines if "mtsa" in line).split()


@pytest.mark.parametrize("name", MECHANISMS)
def test_parameter_formula_counts_the_trained_weights(name: str) -> None:
    mechanism = MECHANISMS[name]
    assert mechanism.parameters is not None
    for d_in, d_out, heads in ((12, 24, 4), (10, 36, 2)):
        d_out = d_in if mechanism.keeps_width else d_out
        for implementation in mechanism.implementations:
            module = make(
                mechanism,
                implementation.factory,
                d_in,
                d_out,
                heads,
                {**mechanism.options, **implementation.options},
            )
            trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
            assert mechanism.parameters(Size(1, 1, d_in, d_out, heads)) == trained


def test_the_cnn_of_table_1_has_the_published_number_of_weights() -> None:
    """Those of the others are checked with their heads, `harness.verify.exact.counts`."""
    formula = MECHANISMS["multi_cnn"].parameters
    assert formula is not None
    assert formula(Size(1, 1, 300, 600, 0)) == 720_600


PRODUCTS = """
    multi_head.matmul multi_head_released.matmul multi_head_relu.matmul mtsa.algorithm1
    mtsa_released.algorithm1 mtsa_nmt.algorithm1 mtsa_stack.algorithm1 source2token.direct
    additive.direct none.fused multi_cnn.conv multi_cnn.gemm kim_cnn.conv kim_cnn_released.conv
    hrchy_cnn.conv hrchy_cnn.gemm hrchy_cnn_released.conv transformer.sdpa
    msmsa.plain msmsa.masked msmsa_layer.plain msmsa_layer.masked
    multi_scale_transformer.plain multi_scale_transformer.masked
"""
"""Implementations whose work is products alone, as torch counts them."""


@contextmanager
def products() -> Iterator[FlopCounterMode]:
    """Count products, those inside of fused attention too."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        yield counter


def sized(name: str, n: int, training: bool) -> tuple[torch.nn.Module, torch.Tensor, Size]:
    """A module of four heads, an input and their size."""
    mechanism = mechanism_of(name)
    d_in, d_out = (24, 24) if mechanism.keeps_width else (10, 24)
    record = mechanism.implementation(name.partition(".")[2])
    options = {**mechanism.options, **record.options}
    module = make(mechanism, record.factory, d_in, d_out, 4, options)
    x = torch.randn(3, n, d_in, requires_grad=training)
    return module, x, Size(3, n, d_in, d_out, 4, training=training)


def formula(name: str) -> Callable[[Size], float]:
    """That of an implementation, or else of its mechanism."""
    mechanism = mechanism_of(name)
    own = mechanism.implementation(name.partition(".")[2])
    found = own.operations or mechanism.operations
    assert found is not None
    return found


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("n", few([1, 7, 40, 200], [7, 200]))
@pytest.mark.parametrize("name", PRODUCTS.split())
def test_operations_are_the_products_that_are_done(name: str, n: int, training: bool) -> None:
    module, x, size = sized(name, n, training)
    with products() as counter:
        out = module(x, None)
        if training:
            out.sum().backward()
    assert formula(name)(size) == counter.get_total_flops()


@pytest.mark.parametrize("n", few([1, 2, 3, 7, 40, 200], [1, 7]))
@pytest.mark.parametrize("name", ["msmsa", "msmsa_layer", "multi_scale_transformer"])
def test_operations_of_kernels_are_those_of_the_windows(
    name: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One query at a time: no pair is computed that is not open.
    for limit, value in (("SHORT", 0), ("LEAST_QUERIES", 1), ("SCORE_BYTES", {"cpu": 8})):
        monkeypatch.setattr(cutting, limit, value)
    met = 0

    def counted(scales: tuple[Scale, ...], length: int, like: torch.Tensor) -> Geometry:
        nonlocal met
        halves = [scale.half(length) for scale in scales]
        met += 3 * sum(
            abs(i - j) <= h for h in halves for i in range(length) for j in range(length)
        )
        return cached_windows(scales, length, like)

    monkeypatch.setattr(windowed, "cached_windows", counted)
    module, x, size = sized(f"{name}.fused_tiled", n, False)
    with products() as counter, torch.no_grad():
        module(x, None)
    for way in ("windowed", "fused", "fused_tiled", "fused_native", "fused_triton", "fused_flex"):
        done = formula(f"{name}.{way}")(size)
        # Beside each value stands a 1, whose sum is the denominator.
        assert done + 2 * met == counter.get_total_flops()
        assert formula(f"{name}.{way}")(replace(size, training=True)) == 3 * done


@pytest.mark.parametrize("name", MECHANISMS)
def test_bytes_grow_with_length_and_training(name: str) -> None:
    formula = MECHANISMS[name].transient_bytes
    assert formula is not None
    short, long = (formula(Size(4, n, 300, 600, 8)) for n in (64, 4096))
    assert 0 < 60 * short < long
    assert formula(Size(4, 64, 300, 600, 8, training=True)) > short


@pytest.mark.parametrize("training", [False, True])
def test_causal_heads_are_counted_by_the_pairs_they_may_see(training: bool) -> None:
    operations = MECHANISMS["multi_head"].operations
    assert operations is not None
    b, n, d = 3, 7, 24
    every = operations(Size(b, n, 12, d, 4, training=training))
    causal = operations(Size(b, n, 12, d, 4, training=training, options={"causal": True}))
    hidden = sum(j > i for i in range(n) for j in range(n))
    # A pair is a product of queries and keys and one of weights and values, each d wide.
    assert every - causal == (3 if training else 1) * b * hidden * 2 * (2 * d)
    assert operations(Size(b, n, 12, d, 4, training=training, options={"causal": False})) == every
