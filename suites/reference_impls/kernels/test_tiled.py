"""The pure-PyTorch tiled path beyond its agreement: cuts of queries, heads and keys, memory."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from reference_impls.kernels import tiled
from reference_impls.kernels.tiled import cutting
from suites.support.attending import Problem, assert_agrees, masks_of, with_gradients
from suites.support.batches import LargestTensor


def test_small_heads_of_one_mask_are_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Problem(n=20, masks=masks_of(*["forward"] * 3, *["backward"] * 3)).call(torch.float64)
    [group, _] = cutting.groups(call.geometry, 20)
    assert cutting.steps(group, 2, 20, 7, "cpu", 8)[0] == 3
    monkeypatch.setattr(cutting, "FEW", 0)
    assert cutting.steps(group, 2, 20, 7, "cpu", 8)[0] == 1


@pytest.mark.parametrize("n", [1, 5])
def test_a_cut_without_an_open_pair_is_zero(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Cuts of one query: the first of a forward mask, and the last of a backward one, see no key.
    for limit, value in (("SHORT", 0), ("LEAST_QUERIES", 1), ("SCORE_BYTES", {"cpu": 8})):
        monkeypatch.setattr(cutting, limit, value)
    for scale_t in ("log_sigmoid", "identity"):
        problem = Problem(n=n, masks=masks_of("forward", "backward"), scale_t=scale_t)
        assert_agrees(tiled.attend, problem.call(torch.float64))


def test_closed_tiles_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value in (("SHORT", 16), ("LEAST_QUERIES", 7), ("SCORE_BYTES", {"cpu": 8 * 300})):
        monkeypatch.setattr(cutting, limit, value)
    work = {}
    for mask in ("none", "forward", "backward", "window:3"):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            tiled.attend(Problem(n=400, batch=1, masks=masks_of(mask)).call(torch.float64))
        work[mask] = counter.get_total_flops()
    assert work["none"] == 2 * 400 * 400 * (5 + 10)
    for mask in ("forward", "backward"):
        assert 0.5 * work["none"] < work[mask] < 0.52 * work["none"]
    assert work["window:3"] < 0.04 * work["none"]


def test_memory_is_linear_and_small() -> None:
    """No tensor that is made holds more than the scores of one cut."""
    call = Problem(n=2048, batch=1, masks=masks_of("forward", "backward")).call()
    with LargestTensor() as watch:
        with_gradients(tiled.attend(call)[0], call)
    assert cutting.SCORE_BYTES["cpu"] / 4 < watch.bytes <= cutting.SCORE_BYTES["cpu"]


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
