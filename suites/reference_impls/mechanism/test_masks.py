"""Positional masks: geometry, queries without a key, softmax over nothing."""

from __future__ import annotations

import math

import pytest
import torch

from reference_impls.checks import masked_softmax
from reference_impls.masks import additive, allowed, has_key, parse_all, runs
from suites.support.batches import batch

torch.set_num_threads(1)


def test_geometry_of_every_mask() -> None:
    texts = (
        "none",
        "diagonal",
        "forward",
        "backward",
        "forward_inclusive",
        "backward_inclusive",
        "window:1",
        "distance:0.5",
    )
    rules = (
        lambda i, j: True,
        lambda i, j: j != i,
        lambda i, j: j < i,
        lambda i, j: j > i,
        lambda i, j: j <= i,
        lambda i, j: j >= i,
        lambda i, j: abs(i - j) <= 1,
        lambda i, j: True,
    )
    masks = parse_all(texts, len(texts))
    pairs = allowed(masks, 5, torch.device("cpu"))
    bias = additive(masks, 5, torch.device("cpu"), torch.float64)
    for h, rule in enumerate(rules):
        for i in range(5):
            for j in range(5):
                assert pairs[h, i, j].item() == rule(i, j), (texts[h], i, j)
                slope = 0.5 if texts[h].startswith("distance") else 0
                assert bias[h, i, j].item() == (-slope * abs(i - j) if rule(i, j) else -math.inf)
    rows = torch.tensor([4, 1])
    assert torch.equal(allowed(masks, 5, torch.device("cpu"), rows), pairs[:, rows])


def test_queries_without_a_key_are_known_from_geometry() -> None:
    masks = parse_all(
        [
            "none",
            "diagonal",
            "forward",
            "backward",
            "forward_inclusive",
            "backward_inclusive",
            "window:0",
            "window:2",
            "distance:1",
        ],
        9,
    )
    device = torch.device("cpu")
    _, mask = batch((6, 4, 1, 0))
    pairs = allowed(masks, 6, device)  # [H, N, N]
    assert torch.equal(has_key(masks, 6, device)[:, 0], pairs.any(-1))
    seen = (pairs[:, None] & mask[None, :, None]).any(-1)  # [H, B, N]
    assert torch.equal(has_key(masks, 6, device, mask), seen)


def test_heads_with_one_mask_are_grouped() -> None:
    def grouped(*texts: str) -> tuple[list[str], int]:
        groups, size = runs(parse_all(texts, len(texts)))
        return [g.text for g in groups], size

    assert grouped("forward", "forward", "backward", "backward") == (["forward", "backward"], 2)
    assert grouped("none", "none") == (["none"], 2)
    assert grouped("forward", "backward", "forward") == (["forward", "backward", "forward"], 1)
    assert grouped("none", "none", "none", "diagonal") == (["none"] * 3 + ["diagonal"], 1)


def test_softmax_over_nothing_is_zero_with_zero_gradient() -> None:
    scores = torch.tensor([[1.0, 1e30, 2.0], [5.0, 6.0, 7.0]], requires_grad=True)
    open_pairs = torch.tensor([[True, False, True], [False, False, False]])
    p = masked_softmax(scores, open_pairs, dim=-1)
    (p * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert p[0, 1] == 0
    assert p[0].sum().item() == pytest.approx(1)
    assert not p[1].any()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert not scores.grad[1].any()
    assert scores.grad[0, 0] != 0
