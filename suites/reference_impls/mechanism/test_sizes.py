"""The records' formulas: weights, operations, bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from harness.build import make
from reference_impls.mechanism import Size
from suites.support.batches import MECHANISMS

torch.set_num_threads(1)


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


@pytest.mark.parametrize(
    ("name", "options", "heads", "count"),
    [
        ("mtsa_released", {"activation": "elu"}, 2, 1_262_400),
        ("disa", {}, 0, 903_000),
        ("bi_lstm", {}, 0, 1_442_400),
        ("multi_head_released", {}, 8, 540_000),
        ("multi_cnn", {}, 0, 720_600),
    ],
)
def test_encoders_of_table_1_have_the_published_number_of_weights(
    name: str, options: dict[str, Any], heads: int, count: int
) -> None:
    mechanism = MECHANISMS[name]
    factory = mechanism.implementation(mechanism.default).factory
    module = make(mechanism, factory, 300, 600, heads, {**mechanism.options, **options})
    assert sum(p.numel() for p in module.parameters() if p.requires_grad) == count


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "multi_head.matmul",
        "multi_head_released.matmul",
        "mtsa.algorithm1",
        "mtsa_released.algorithm1",
        "source2token.direct",
        "multi_cnn.conv",
        "multi_head_relu.matmul",
        "none.fused",
        "kim_cnn.conv",
        "kim_cnn_released.conv",
        "hrchy_cnn.conv",
        "hrchy_cnn_released.conv",
        "additive.direct",
        "mtsa_nmt.algorithm1",
        "mtsa_stack.algorithm1",
        "multi_cnn.gemm",
        "hrchy_cnn.gemm",
    ],
)
def test_operations_formula_counts_the_products_done(name: str, training: bool) -> None:
    mechanism = MECHANISMS[name.partition(".")[0]]
    factory = mechanism.implementation(name.partition(".")[2]).factory
    d_in, d_out = (12, 12) if mechanism.keeps_width else (12, 24)
    module = make(mechanism, factory, d_in, d_out, 4, mechanism.options)
    x = torch.randn(3, 7, d_in, requires_grad=training)
    with FlopCounterMode(display=False) as counter:
        out = module(x, None)
        if training:
            out.sum().backward()
    assert mechanism.operations is not None
    assert mechanism.operations(Size(3, 7, d_in, d_out, 4, training=training)) == (
        counter.get_total_flops()
    )


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
