"""The pure-PyTorch tiled path beyond its agreement: cuts of queries, heads and keys, memory."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

from reference_impls.kernels import tiled
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.tiled import cutting
from reference_impls.masks import HeadMask
from suites.support.attending import (
    EVERY,
    EXACT,
    Problem,
    assert_agrees,
    masks_of,
    open_pairs,
    with_gradients,
)
from suites.support.batches import error

torch.set_num_threads(1)


def test_heads_together_and_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Problem(n=20, masks=masks_of(*["forward"] * 3, *["backward"] * 3)).call(torch.float64)
    counts = []
    for few in (2**15, 0):
        monkeypatch.setattr(cutting, "FEW", few)
        group = cutting.groups(call.geometry, 20)[0]
        counts.append(cutting.steps(group, 2, 20, 7, "cpu", 8)[0])
        assert_agrees(tiled.attend, call)
    assert counts == [3, 1]


def test_plain_softmax_attention_is_torchs() -> None:
    masks = masks_of(*["none"] * 3)
    call = Problem(n=300, columns=None, masks=masks, scale_t="identity").call(torch.float64)
    wanted = torch.nn.functional.scaled_dot_product_attention(*call[:3], scale=1.0)
    assert error(tiled.attend(call)[0], wanted) < EXACT


def test_closed_tiles_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value in (("SHORT", 16), ("LEAST_QUERIES", 7), ("SCORE_BYTES", {"cpu": 8 * 300})):
        monkeypatch.setattr(cutting, limit, value)
    seen: list[int] = []
    product = torch.bmm

    def counted(x: Tensor, y: Tensor) -> Tensor:
        seen.append(x.shape[0] * x.shape[1] * y.shape[2] * x.shape[2])
        return product(x, y)

    monkeypatch.setattr(torch, "bmm", counted)
    work = {}
    for mask in ("none", "forward", "backward", "window:3"):
        seen.clear()
        with torch.no_grad():
            tiled.attend(Problem(n=400, batch=1, masks=masks_of(mask)).call(torch.float64))
        work[mask] = sum(seen)
    assert work["none"] == 400 * 400 * (5 + 10)
    for mask in ("forward", "backward"):
        assert 0.5 * work["none"] < work[mask] < 0.52 * work["none"]
    assert work["window:3"] < 0.04 * work["none"]


def test_memory_is_linear_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    # No tensor that is made holds more than the scores of one cut.
    largest = 0
    product = torch.bmm

    def watched(x: Tensor, y: Tensor) -> Tensor:
        nonlocal largest
        out = product(x, y)
        largest = max(largest, out.numel() * out.element_size())
        return out

    monkeypatch.setattr(torch, "bmm", watched)
    call = Problem(n=2048, batch=1, masks=masks_of("forward", "backward")).call()
    with_gradients(tiled.attend(call)[0], call)
    assert cutting.SCORE_BYTES["cpu"] / 4 < largest <= cutting.SCORE_BYTES["cpu"]


@pytest.mark.parametrize("mask", EVERY, ids=lambda mask: mask.text)
def test_cuts_cover_every_open_pair_and_the_edge_every_closed_one(mask: HeadMask) -> None:
    n = 37
    call = Problem(n=n, masks=(mask,)).call()
    [group] = cutting.groups(call.geometry, n)
    is_open = open_pairs(call)[0, 0]
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
    masks = masks_of("distance:0.1", "distance:0.3")
    a, _ = tiled.attend(Problem(n=1500, batch=1, masks=masks).call())
    a.sum().backward()
    assert len(made) >= 8
    assert max(alive) <= 3
