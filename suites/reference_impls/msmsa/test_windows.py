"""Windows by shifts, all pairs and kernels: as under a mask, and never N x N where it is long."""

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
    Neighbours,
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


@pytest.mark.parametrize(
    ("size", "way", "padded"),
    [
        ((1, 64), ("all", 0), ("ranges", 0)),
        ((9, 32), ("all", 0), ("all", 0)),
        ((9, 33), ("all", 0), ("ranges", 1)),
        ((1, 255), ("ranges", 0), ("ranges", 0)),
        ((1, 256), ("ranges", 1), ("ranges", 1)),
    ],
    ids=str,
)
def test_what_is_cheapest_depends_on_length_batch_and_padding(
    size: tuple[int, int], way: tuple[Method, int], padded: tuple[Method, int]
) -> None:
    x, mask = torch.empty(*size, 3), torch.ones(size, dtype=torch.bool)
    assert cheapest(x, None) == way
    assert cheapest(x, mask) == padded
    assert cheapest(x.to("meta"), None) == ("ranges", 0)


def test_heads_are_grouped_by_their_reach() -> None:
    scales = WindowedMsmsa(6, 6, heads=6, scales=[3, 1, 5, "n/16", 3, 1]).scales

    def found(others: Method, nearest: int) -> list[Any]:
        groups = plan(scales, 20, others, nearest)
        return [(group.method, group.heads, group.half) for group in groups]

    alone = ("alone", (1, 3, 5), 0)
    assert found("ranges", 0) == [alone, ("ranges", (0, 2, 4), 0)]
    assert found("all", 0) == [alone, ("all", (0, 2, 4), 0)]
    assert found("ranges", 1) == [alone, ("near", (0, 4), 1), ("ranges", (2,), 0)]
    assert found("ranges", 2) == [alone, ("near", (0, 4), 1), ("near", (2,), 2)]


# Equalities


@pytest.mark.parametrize("half", few([1, 2, 5], [1, 5]))
@pytest.mark.parametrize("n", few([1, 2, 5, 40], [1, 5, 40]))
def test_shifts_equal_all_pairs(n: int, half: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windowed, "cheapest", lambda *_: ("ranges", half))
    assert_equal_to_masked(n, [2 * half + 1, 3])
    assert_equal_to_masked(n, ["n/4", 2 * half + 1])


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_neighbours_in_half_precision_are_summed_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 50, 3, 64).to(dtype) for _ in range(3))
    found = Neighbours.apply(q, k, v, 1, None)
    exact = Neighbours.apply(q.double(), k.double(), v.double(), 1, None)
    assert found.dtype == dtype
    # One rounding, that of the result.
    assert ((found - exact).abs() <= torch.finfo(dtype).eps * exact.abs() + 1e-5).all()


# What it costs


def test_a_mask_of_all_pairs_is_made_once_for_a_length_and_dtype(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(windowed, "_pairs", TensorCache(2))
    module = WindowedMsmsa(24, 24, heads=2, scales=["n/4", 3])
    x = torch.randn(1, 40, 24)
    with torch.inference_mode():
        module(x)
    module(x).sum().backward()  # by what was made in inference mode
    assert module.q_w.grad is not None
    assert len(windowed._pairs) == 1
    module.double()(x.double())
    assert len(windowed._pairs) == 2
    module(x.double(), torch.ones(1, 40, dtype=torch.bool))
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


@pytest.mark.parametrize("n", [40, 400])
def test_no_length_is_read_from_the_device(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for cache in ("_cache", "_pairs"):  # nothing that another test has made
        monkeypatch.setattr(windowed, cache, TensorCache(2))
    module = WindowedMsmsa(D_IN, 20, heads=10, scales=GOAL).double()
    for x, mask in (batch((n, n // 2, 0)), (batch((n, n))[0], None)):
        with Readings() as readings, sdpa_kernel(SDPBackend.MATH):
            module(x, mask)
            windows(module.scales, n, mask, x.device)
        assert readings.found == []
