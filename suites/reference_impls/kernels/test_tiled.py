"""The pure-PyTorch tiled path against its dense definition: cuts, geometries, gradients, memory."""

from __future__ import annotations

import math
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from reference_impls.checks import least_denominator
from reference_impls.kernels import tiled
from reference_impls.kernels.geometry import Geometry, of_masks
from reference_impls.kernels.tiled import cutting
from reference_impls.masks import parse_all
from reference_impls.mechanism import Unsupported
from suites.support.batches import error
from suites.support.kernel_inputs import (
    Problem,
    dense,
    gradients,
    open_pairs,
    problem,
    random_geometry,
)
from suites.support.parameters import nightly_but

torch.set_num_threads(1)

EXACT = 1e-12
_NAMES = "none diagonal forward backward forward_inclusive backward_inclusive"
MASKS = [*_NAMES.split(), "window:1", "window:20"]


def assert_dense(p: Problem, tolerance: float = EXACT) -> None:
    """Assert that values, flags and gradients are those of the definition."""
    a, flagged = tiled.attend(*p.arguments())
    wanted = dense(p)
    assert not flagged.any()
    assert a.shape == wanted.shape
    assert error(a, wanted) < tolerance
    for name, got, want in zip(
        "qkvs", gradients(a, p.tensors), gradients(wanted, p.tensors), strict=False
    ):
        assert got.shape == want.shape
        assert not got.numel() or error(got, want) < tolerance, name


@pytest.fixture
def small_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if sequences of 20 were long: several cuts of queries, samples and heads."""
    monkeypatch.setattr(cutting, "SHORT", 16)
    monkeypatch.setattr(cutting, "LEAST_QUERIES", 7)
    monkeypatch.setattr(cutting, "FEW", 0)
    monkeypatch.setattr(cutting, "SCORE_BYTES", {"cpu": 8 * 300})


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("length", nightly_but([1, 2, 7, 16, 17, 40], {1, 2, 17}.__contains__))
@pytest.mark.parametrize("padded", [False, True])
def test_every_mask(small_cuts: None, length: int, scale_t: str, padded: bool) -> None:
    geometry = of_masks(parse_all(MASKS, 8), length, torch.device("cpu"))
    lengths = (length, 0, (length + 1) // 2) if padded else None
    assert_dense(problem(8, 3, length, geometry=geometry, lengths=lengths, scale_t=scale_t))


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("seed", nightly_but(range(6), {0, 1}.__contains__))
def test_ranges_of_every_head_and_sample(small_cuts: None, seed: int, scale_t: str) -> None:
    torch.manual_seed(seed)
    geometry = random_geometry(5, 3, 23, sloped=True)
    p = problem(5, 3, 23, geometry=geometry, lengths=(23, 9, 20), scale_t=scale_t, seed=seed)
    assert_dense(p)


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("columns", [None, 1, 7])
@pytest.mark.parametrize("d_i", [0, 1, 5])
@pytest.mark.parametrize("length", [9, 23])
def test_scores_that_are_not_there(
    small_cuts: None, d_i: int, columns: int | None, length: int, scale_t: str
) -> None:
    for lengths in (None, (length, 4)):
        p = problem(3, 2, length, d_i, columns=columns, lengths=lengths, scale_t=scale_t)
        assert_dense(p)


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("columns", [None, 1, 7])
@pytest.mark.parametrize("length", [9, 23])
def test_dropped_pairs(small_cuts: None, columns: int | None, length: int, scale_t: str) -> None:
    p = problem(4, 2, length, columns=columns, lengths=(length, 5), scale_t=scale_t, dropout=0.4)
    assert_dense(p)
    whole = Problem(*p.arguments()[:-1], None)
    assert error(tiled.attend(*p.arguments())[0], tiled.attend(*whole.arguments())[0]) > 0.1


def test_heads_together_and_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = of_masks(parse_all(None, 6), 20, torch.device("cpu"))
    p = problem(6, 2, 20, geometry=geometry)
    counts = []
    for few in (2**15, 0):
        monkeypatch.setattr(cutting, "FEW", few)
        group = cutting.groups(geometry, 20)[0]
        counts.append(cutting.steps(group, 2, 20, 7, "cpu", 8)[0])
        assert_dense(p)
    assert counts == [3, 1]


def test_plain_softmax_attention_is_torchs() -> None:
    p = problem(
        3, 2, 300, 8, 8, None, of_masks(parse_all(["none"] * 3, 3), 300, torch.device("cpu"))
    )
    p.scale_t = "identity"
    wanted = torch.nn.functional.scaled_dot_product_attention(p.q, p.k, p.v, scale=1.0)
    assert error(tiled.attend(*p.arguments())[0], wanted) < EXACT


def test_closed_tiles_are_not_computed(small_cuts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    product = torch.bmm

    def counted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(x.shape[0] * x.shape[1] * y.shape[2] * x.shape[2])
        return product(x, y)

    monkeypatch.setattr(torch, "bmm", counted)
    work = {}
    for mask in ("none", "forward", "backward", "window:3"):
        seen.clear()
        geometry = of_masks(parse_all([mask], 1), 400, torch.device("cpu"))
        with torch.no_grad():
            tiled.attend(*problem(1, 1, 400, geometry=geometry).arguments())
        work[mask] = sum(seen)
    assert work["none"] == 400 * 400 * (5 + 14)
    for mask in ("forward", "backward"):
        assert 0.5 * work["none"] < work[mask] < 0.52 * work["none"]
    assert work["window:3"] < 0.04 * work["none"]


def test_memory_is_linear_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    # No tensor that is made holds more than the scores of one cut.
    largest = 0
    product = torch.bmm

    def watched(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        out = product(x, y)
        largest = max(largest, out.numel() * out.element_size())
        return out

    monkeypatch.setattr(torch, "bmm", watched)
    p = problem(2, 1, 2048, geometry=of_masks(parse_all(None, 2), 2048, torch.device("cpu")))
    p = p.to(torch.float32)
    gradients(tiled.attend(*p.arguments())[0], p.tensors)
    assert cutting.SCORE_BYTES["cpu"] / 4 < largest <= cutting.SCORE_BYTES["cpu"]


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("length", nightly_but([6, 17], (6).__eq__))
def test_gradients_are_finite_differences(small_cuts: None, length: int, scale_t: str) -> None:
    torch.manual_seed(3)
    geometry = random_geometry(3, 2, length, sloped=True)
    p = problem(3, 2, length, 2, 3, 3, geometry, (length, length - 2), scale_t, dropout=0.3)

    def attended(*tensors: Any) -> torch.Tensor:
        q, k, v, s = tensors
        return tiled.attend(q, k, v, s, *p.arguments()[4:])[0]

    assert gradcheck(attended, tuple(p.tensors), atol=1e-6, nondet_tol=0.0)


def test_a_second_derivative_is_refused() -> None:
    p = problem(2, 1, 5)
    a, _ = tiled.attend(*p.arguments())
    with pytest.raises(Unsupported, match="no second derivative; use algorithm1"):
        torch.autograd.grad(a.sum(), p.tensors, create_graph=True)


def test_where_nothing_is_wanted_there_is_zero() -> None:
    geometry = of_masks(parse_all(["forward", "window:0"], 2), 6, torch.device("cpu"))
    p = problem(2, 3, 6, geometry=geometry, lengths=(6, 3, 0))
    a, flagged = tiled.attend(*p.arguments())
    nothing = ~open_pairs(p).any(-1)
    assert nothing[0, :, 0].all()
    assert not a[nothing].any()
    assert a[~nothing].all(-1).all()
    assert not flagged.any()
    # Whatever comes back for padded queries and keys, nothing of it is passed on.
    for name, gradient in zip("qkvs", gradients(a, p.tensors), strict=True):
        assert not gradient[:, 1, 3:].any(), name
        assert not gradient[:, 2].any(), name


@pytest.mark.parametrize("length", [9, 300])
def test_underflowing_queries_are_flagged_and_zero(length: int) -> None:
    geometry = of_masks(parse_all(["forward"], 1), length, torch.device("cpu"))
    p = problem(1, 2, length, geometry=geometry, lengths=(length, length - 2)).to(torch.float32)
    assert p.s is not None
    with torch.no_grad():
        p.s[:, :, 5] = 300  # outshines all others, but only later queries see it
    a, flagged = tiled.attend(*p.arguments())
    wanted = torch.zeros_like(flagged)
    wanted[:, :, 1:6] = True
    assert torch.equal(flagged, wanted)
    assert not a[flagged].any()
    found = gradients(a, p.tensors)
    assert all(t.isfinite().all() for t in found)
    assert not found[0][flagged].any()
    double = p.to(torch.float64)
    assert error(a[~flagged], dense(double)[~flagged]) < 2e-5
    assert least_denominator(torch.float32, length) < math.exp(-60)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
@pytest.mark.parametrize("length", [9, 300])
def test_half_precision_sums_in_float32(length: int, dtype: torch.dtype, rounding: float) -> None:
    geometry = of_masks(parse_all(None, 4), length, torch.device("cpu"))
    half = problem(4, 2, length, geometry=geometry, lengths=(length, 7), scale=3.0).to(dtype)
    exact = half.to(torch.float64)
    a, flagged = tiled.attend(*half.arguments())
    assert a.dtype == dtype
    assert not flagged.any()
    assert error(a, dense(exact)) < rounding / 4
    found, wanted = gradients(a, half.tensors), gradients(dense(exact), exact.tensors)
    for name, got, want in zip("qkvs", found, wanted, strict=True):
        assert got.dtype == dtype
        assert error(got, want) < rounding, name


def test_gradients_of_the_source_scores_add_to_nothing() -> None:
    geometry = of_masks(parse_all(None, 2), 257, torch.device("cpu"))
    p = problem(2, 2, 257, 8, 8, 8, geometry, (257, 140), scale=4.0).to(torch.float32)
    *_, of_s = gradients(tiled.attend(*p.arguments())[0], p.tensors)
    assert of_s.abs().amax() > 0.5
    assert of_s.sum(2).abs().max() < 2e-6 * of_s.abs().sum(2).max()


def test_the_layout_is_token_first_and_twice_the_same() -> None:
    for length in (9, 300):
        p = problem(3, 2, length)
        a, _ = tiled.attend(*p.arguments())
        assert a.permute(1, 2, 0, 3).is_contiguous()
        first, second = (gradients(tiled.attend(*p.arguments())[0], p.tensors) for _ in range(2))
        assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.parametrize("length", [9, 300])
def test_compiled_it_is_one_graph_and_the_same(length: int) -> None:
    geometry = of_masks(
        parse_all(["forward", "window:2", "diagonal"], 3), length, torch.device("cpu")
    )
    torch._dynamo.reset()
    compiled: Any = torch.compile(tiled.attend, fullgraph=True, backend="aot_eager")
    for lengths in (None, (length, 3)):
        p = problem(3, 2, length, geometry=geometry, lengths=lengths)
        a, wanted = compiled(*p.arguments())[0], tiled.attend(*p.arguments())[0]
        assert error(a, wanted) < EXACT
        for got, want in zip(gradients(a, p.tensors), gradients(wanted, p.tensors), strict=True):
            assert error(got, want) < EXACT


@pytest.mark.parametrize("mask", MASKS)
def test_cuts_cover_every_open_pair_and_the_edge_every_closed_one(mask: str) -> None:
    n = 37
    geometry = of_masks(parse_all([mask], 1), n, torch.device("cpu"))
    [group] = cutting.groups(geometry, n)
    zero = torch.zeros(1, 1, n, 0)
    is_open = open_pairs(Problem(zero, zero, zero, None, geometry, None))[0, 0]
    for step in (1, 5, 16, n):
        for rows in cutting.cuts(0, n, step):
            keys = group.keys(rows, n)
            outside = is_open[rows].clone()
            outside[:, keys] = False
            assert not outside.any()
            edge = group.edge(rows, keys)
            inside = is_open[rows].clone()
            inside[:, edge] = True
            assert inside[:, keys].all()


def test_samples_with_ranges_of_their_own_are_cut_by_the_widest() -> None:
    lo, hi = torch.tensor([[-3, -9]]).int(), torch.tensor([[3, 9]]).int()
    geometry = Geometry(lo, hi, torch.tensor([False]), torch.zeros(1))
    [group] = cutting.groups(geometry, 40)
    assert group.keys(slice(10, 20), 40) == slice(1, 29)
    assert group.edge(slice(10, 12), slice(1, 29)) == slice(1, 29)


def test_a_slopes_biases_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each cut would be a matrix of N x N; beside one another few are alive."""
    made: list[weakref.ref[Tensor]] = []
    alive: list[int] = []
    original = cutting.bias

    def spy(*arguments: Any) -> Tensor:
        alive.append(sum(ref() is not None for ref in made))
        found = original(*arguments)
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(cutting, "bias", spy)
    masks = parse_all(["distance:0.1", "distance:0.3"], 2)
    geometry = of_masks(masks, 1500, torch.device("cpu"))
    p = problem(2, 1, 1500, geometry=geometry).to(torch.float32)
    a, _ = tiled.attend(*p.arguments())
    a.sum().backward()
    assert len(made) >= 8
    assert max(alive) <= 3
