"""Windows by all pairs and kernels: as under a mask, and never N x N where it is long."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from harness.verify.batches import ragged
from reference_impls.kernels.caching import TensorCache
from reference_impls.msmsa import windowed
from reference_impls.msmsa.modules import MaskedMsmsa
from reference_impls.msmsa.scales import GivenScale
from reference_impls.msmsa.windowed import (
    Method,
    WindowedMsmsa,
    cheapest,
    plan,
    windows,
)
from suites.reference_impls.msmsa.test_msmsa import alike
from suites.support.batches import D_IN, LargestTensor, assert_same, batch, error, run
from suites.support.parameters import few

GOAL: list[GivenScale] = [1, 1, 1, 1, 1, 3, 3, "n/16", "n/16", "n/8"]
"""The scales that the goals are stated for."""


def assert_equal_to_masked(n: int, scales: list[GivenScale]) -> None:
    """Values and gradients, with and without padding."""
    torch.manual_seed(0)
    sizes, options = (D_IN, 2 * len(scales)), {"heads": len(scales), "scales": scales}
    windowed, masked = alike((WindowedMsmsa, MaskedMsmsa), *sizes, **options)
    for x, mask in (batch(ragged(n), padding=math.nan), (batch((n, n))[0], None)):
        assert_same(run(windowed, x, mask), run(masked, x, mask), 1e-12)
        with torch.inference_mode():  # results take the place of the projections
            assert error(windowed(x, mask), masked(x, mask)) <= 1e-12


# What goes where


@pytest.mark.parametrize(("n", "way"), [(16, "all"), (17, "ranges")])
def test_what_is_cheapest_depends_on_length(n: int, way: Method) -> None:
    x = torch.empty(2, n, 3)
    assert cheapest(x) == way
    assert cheapest(x.to("meta")) == "ranges"


def test_heads_are_grouped_by_what_computes_them() -> None:
    scales = WindowedMsmsa(6, 6, heads=6, scales=[3, 1, 5, "n/16", 3, 1]).scales

    def found(length: int, others: Method) -> list[Any]:
        return [(group.method, group.heads) for group in plan(scales, length, others)]

    assert found(20, "all") == [("alone", (1, 3, 5)), ("all", (0, 2, 4))]
    assert found(100, "ranges") == [("alone", (1, 5)), ("ranges", (0, 2, 3, 4))]
    assert plan(scales[1:2], 20, "all")[0].method == "alone"


# Equalities


@pytest.mark.parametrize("n", few([1, 2, 16, 17], [2, 17]))
def test_few_tokens_equal_all_pairs(n: int) -> None:
    assert_equal_to_masked(n, [5, 3, "n/4", 1])


@pytest.mark.parametrize("n", few([17, 40, 130, 300, 400], [40, 300, 400]))
@pytest.mark.parametrize("scales", [GOAL, [3, 1, 129, "n/4", 1, 3, "n/16"]], ids=["goal", "mixed"])
def test_heads_of_many_scales_equal_all_pairs(n: int, scales: list[GivenScale]) -> None:
    assert_equal_to_masked(n, scales)


def test_what_was_put_together_for_one_length_is_not_taken_for_another() -> None:
    """All heads see themselves alone in 10 tokens, and others in 100: one group of the same."""
    kinds = (WindowedMsmsa, MaskedMsmsa)
    windowed, masked = (m.eval() for m in alike(kinds, D_IN, 8, heads=2, scales=["n/16", "n/16"]))
    with torch.inference_mode():
        for n in (10, 100, 10):
            x, mask = batch((n, n))
            assert error(windowed(x, mask), masked(x, mask)) <= 1e-12


# What it costs


def test_a_mask_of_all_pairs_is_made_once_for_a_length_and_dtype(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(windowed, "_pairs", TensorCache(2))
    module = WindowedMsmsa(24, 24, heads=2, scales=["n/4", 3])
    x = torch.randn(1, 16, 24)
    with torch.inference_mode():
        module(x)
    module(x).sum().backward()  # by what was made in inference mode
    assert module.q_w.grad is not None
    assert len(windowed._pairs) == 1
    module.double()(x.double())
    assert len(windowed._pairs) == 2
    module(x.double(), torch.ones(1, 16, dtype=torch.bool))
    assert len(windowed._pairs) == 2  # what padding closes is a batch's own


@pytest.mark.parametrize("masked", [False, True])
def test_nothing_of_n_times_n_is_held(masked: bool) -> None:
    n, d = 4096, 20
    module = WindowedMsmsa(d, d, heads=10, scales=GOAL)
    x = torch.randn(1, n, d, requires_grad=True)
    mask = torch.ones(1, n, dtype=torch.bool) if masked else None
    with LargestTensor() as watch:
        module(x, mask).sum().backward()
    assert watch.bytes <= 4 * n * 3 * d


class Readings(TorchDispatchMode):
    """Where a value is read from a tensor: on a GPU that waits for all that is queued."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            self.found.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("n", [16, 400])
def test_no_length_is_read_from_the_device(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for cache in ("_cache", "_pairs"):  # nothing that another test has made
        monkeypatch.setattr(windowed, cache, TensorCache(2))
    module = WindowedMsmsa(D_IN, 20, heads=10, scales=GOAL).double()
    for x, mask in (batch((n, n // 2, 0)), (batch((n, n))[0], None)):
        with Readings() as readings, sdpa_kernel(SDPBackend.MATH):
            module(x, mask)
            windows(module.scales, n, mask, x.device)
        assert readings.found == []
