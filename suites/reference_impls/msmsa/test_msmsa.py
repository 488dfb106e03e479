"""Multi-scale self-attention: its scales, and all its forms against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from reference_impls.kernels import core
from reference_impls.kernels.caching import TensorCache
from reference_impls.msmsa import naive, windowed
from reference_impls.msmsa.modules import MaskedMsmsa, PlainMsmsa
from reference_impls.msmsa.scales import (
    CANDIDATES,
    heads_per_scale,
    parse,
    scales_of_layers,
)
from reference_impls.msmsa.windowed import FusedMsmsa, WindowedMsmsa
from reference_impls.multi_scale_transformer import naive as naive_model
from reference_impls.multi_scale_transformer.modules import (
    MaskedMultiScaleTransformer,
    PlainMultiScaleTransformer,
    WindowedMultiScaleTransformer,
)
from reference_impls.transformer.modules import PlainTransformer, SdpaTransformer
from suites.support.batches import D_IN, assert_same, batch, error, run

MODELS = (
    PlainMultiScaleTransformer,
    MaskedMultiScaleTransformer,
    WindowedMultiScaleTransformer,
)


def alike(kinds: Sequence[type], *sizes: int, **options: Any) -> list[Any]:
    """Modules of several kinds with the same float64 weights, none of them zero."""
    modules = [kind(*sizes, **options).double() for kind in kinds]
    with torch.no_grad():
        for weight in modules[0].parameters():
            weight.add_(0.1 * torch.randn(weight.shape, dtype=torch.float64))
    for module in modules[1:]:
        module.load_state_dict(modules[0].state_dict())
    return modules


# Scales


def test_the_papers_example_of_a_distribution_is_exact() -> None:
    wanted = [[5, 2, 2, 1, 0], [4, 2, 2, 1, 1], [2, 2, 2, 2, 2]]
    assert heads_per_scale(5, 0.5, 10, 3) == wanted
    first = scales_of_layers(CANDIDATES, 0.5, 10, 3)[0]
    assert first == [1] * 5 + [3] * 2 + ["n/16"] * 2 + ["n/8"]


@pytest.mark.parametrize(("heads", "layers"), [(1, 1), (5, 3), (10, 3), (7, 12), (64, 2)])
def test_every_layer_gives_away_all_its_heads(heads: int, layers: int) -> None:
    for alpha, candidates in product((-300.0, -1.0, 0.0, 0.5, 40.0), (1, 3, 5)):
        rows = heads_per_scale(candidates, alpha, heads, layers)
        assert rows == naive_model.head_numbers(alpha, heads, layers, candidates)
        assert [len(row) for row in rows] == [candidates] * layers
        assert [sum(row) for row in rows] == [heads] * layers
        assert min(min(row) for row in rows) >= 0
        # The last layer looks at all scales alike.
        assert max(rows[-1]) - min(rows[-1]) <= 1


@pytest.mark.parametrize(
    ("scale", "length", "width"),
    [
        (1, 50, 1),
        (2, 50, 3),
        (3, 50, 3),
        (4.9, 50, 5),
        (9, 2, 9),
        ("n/16", 1, 1),
        ("n/16", 31, 1),
        ("n/16", 32, 3),
        ("n/16", 100, 7),
        ("n/2", 100, 51),
        ("n/4", 13, 3),
        ("n/3", 12, 5),
        ("n/1", 7, 7),
    ],
)
def test_widths_are_odd(scale: Any, length: int, width: int) -> None:
    total, radius = parse(scale, "total"), parse(scale, "radius")
    assert total.width(length) == radius.width(length) == width == naive.width(scale, length)
    assert total.half(length) == (width - 1) // 2
    assert radius.half(length) == width
    assert torch.equal(
        torch.as_tensor(total.width(torch.tensor([length, 2 * length]))).expand(2),
        torch.tensor([total.width(length), total.width(2 * length)]),
    )


# Equalities


@pytest.mark.parametrize("factor", [10, 100])
@pytest.mark.parametrize("kind", [*MODELS, PlainTransformer, SdpaTransformer])
def test_large_scores_leave_float32_models_finite_and_exact(
    kind: type[nn.Module], factor: int
) -> None:
    single, exact = (kind(D_IN, 16, heads=4) for _ in range(2))
    with torch.no_grad():
        for name, weight in single.named_parameters():
            if name.endswith("q_w"):
                weight.mul_(factor)
    exact.load_state_dict(single.state_dict())
    x, mask = batch((65, 20, 1, 0))
    found = run(single, x.float(), mask)
    assert all(tensor.isfinite().all() for tensor in found.values())
    if factor == 10:
        # At 100 the second layer's scores magnify the first one's rounding errors.
        assert error(found["output"], exact.double()(x, mask)) < 2e-5


@pytest.mark.parametrize("n", [3, 9])
@pytest.mark.parametrize("scales", [[1, "n/4"], [1, 3], [1, 1], [3, 1]])
@pytest.mark.parametrize(
    "kind", [MaskedMsmsa, WindowedMsmsa, FusedMsmsa, partial(FusedMsmsa, backend="tiled")]
)
def test_heads_that_see_themselves_alone_have_gradients(kind: Any, scales: list, n: int) -> None:
    torch.manual_seed(0)
    plain, module = alike((PlainMsmsa, kind), D_IN, 8, heads=2, scales=scales)
    x, mask = batch((n, 2))
    alone = [h for h, scale in enumerate(module.scales) if scale.half(n) == 0]
    assert alone
    for given in (None, mask):
        assert_same(run(module, x, given), run(plain, x, given), 1e-12)
        for weight in (module.q_w, module.k_w):
            assert weight.grad is not None
            if kind is not MaskedMsmsa:  # which rounds a softmax over one key
                assert not weight.grad[alone].any()


@pytest.mark.parametrize("kind", [WindowedMsmsa, partial(FusedMsmsa, backend="tiled")])
def test_weights_that_nobody_reads_have_zero_gradients_whatever_they_hold(kind: Any) -> None:
    module = kind(D_IN, 8, heads=2, scales=[1, "n/4"])
    with torch.no_grad():
        module.q_w.fill_(math.inf)
        module.k_w.fill_(math.nan)
    module(torch.randn(2, 3, D_IN)).sum().backward()
    for name in ("q_w", "k_w"):
        gradient = module.get_parameter(name).grad
        assert gradient is not None
        assert torch.equal(gradient, torch.zeros_like(gradient))


# What it costs


def test_fused_has_one_geometry_for_all_calls_of_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = Mock(wraps=core.attend)
    monkeypatch.setattr(core, "attend", attend)
    monkeypatch.setattr(windowed, "_cache", TensorCache(2))
    module = FusedMsmsa(D_IN, 8, heads=2, scales=[3, "n/4"], backend="tiled")
    with torch.inference_mode():
        module(torch.randn(2, 16, D_IN))
    for n in (16, 16, 17):
        module(torch.randn(2, n, D_IN)).sum().backward()
    first, *again, other = (one.args[4] for one in attend.call_args_list)
    assert [one is first for one in again] == [True, True]
    assert other is not first
    assert not first.lo.is_inference()
    module(torch.randn(2, 18, D_IN))
    assert len(windowed._cache) == 1  # never more than the most
    x, mask = torch.randn(2, 16, D_IN), torch.arange(16) < torch.tensor([16, 9])[:, None]
    module(x, mask)
    assert attend.call_args.args[4].lo.shape == (2, 2)  # a sample's own
