"""Appendix A.1: at which scores Algorithm 1 as printed fails in float32, by scale function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from harness.verify.budget import error
from harness.verify.exact.algorithm1 import head, scaled

LEVELS = (1, 3, 10, 20, 40, 60, 80, 85, 90, 95, 100, 105, 110, 120, 150, 200, 500, 1000, 10000)
"""Sizes of the token2token scores that are tried, in this order."""
RIGHT = 1e-3
"""Largest error, relative to max(1, the largest number), against float64."""
FARTHER = 10
"""Log-sigmoid avoids trouble if it holds for scores so many times as large."""
LENGTH, WIDTH = 8, 4


def _drawn(level: float) -> list[Tensor]:
    """Scores r around a level, s, v and a cotangent: float64 numbers that float32 holds."""
    generator = torch.Generator().manual_seed(1)
    shapes = (LENGTH, LENGTH), (LENGTH, WIDTH), (LENGTH, WIDTH), (LENGTH, WIDTH)
    r, *others = (torch.randn(*shape, generator=generator) for shape in shapes)
    return [t.double() for t in (0.1 * r + level, *others)]


def _outcome(
    compute: Callable[[Tensor, Tensor, Tensor], Tensor], level: float, dtype: torch.dtype
) -> list[Tensor]:
    """What is computed of r, s and v at a level, and its gradients by them."""
    *leaves, cotangent = (t.to(dtype) for t in _drawn(level))
    r, s, v = (leaf.requires_grad_() for leaf in leaves)
    out = compute(r, s, v)
    return [out.detach(), *torch.autograd.grad(out, leaves, cotangent)]


def printed(level: float, scale_t: str) -> list[Tensor]:
    """Algorithm 1 as printed, in float32."""
    mask = torch.zeros(LENGTH, LENGTH)
    return _outcome(lambda r, s, v: head(r, s, v, mask, scale_t, "identity"), level, torch.float32)


def truth(level: float, scale_t: str) -> list[Tensor]:
    """Eq. 10-12 in float64, by a softmax that takes the maximum off."""

    def attended(r: Tensor, s: Tensor, v: Tensor) -> Tensor:
        p = (scaled(r, scale_t)[:, :, None] + s[None]).softmax(1)  # [queries, keys, features]
        return (p * v[None]).sum(1)

    return _outcome(attended, level, torch.float64)


def right(level: float, scale_t: str) -> bool:
    """Whether all numbers are finite and near the truth at this level."""
    both = zip(printed(level, scale_t), truth(level, scale_t), strict=True)
    return all(error(mine.double().numpy(), wanted.numpy()) <= RIGHT for mine, wanted in both)


def reach(sign: int, scale_t: str) -> float:
    """The largest level up to which all are right."""
    last = 0.0
    for level in LEVELS:
        if not right(sign * level, scale_t):
            return last
        last = float(level)
    return last


def check() -> dict[str, Any]:
    """How far both scale functions reach, for large and for very negative scores."""
    torch.set_num_threads(1)
    parts = {}
    for name, sign in (("large", 1), ("very negative", -1)):
        plain, bounded = reach(sign, "identity"), reach(sign, "log_sigmoid")
        parts[name] = {
            "verdict": "ok" if bounded >= FARTHER * plain else "wrong",
            "value": sign * bounded,
            "identity": sign * plain,
            "detail": f"right up to scores of {sign * bounded:+,.0f} with log-sigmoid, "
            f"{sign * plain:+,.0f} with the identity (float32, tried to {sign * LEVELS[-1]:+,})",
        }
    detail = "; ".join(str(part["detail"]) for part in parts.values())
    return {
        "verdict": "ok",
        "parts": parts,
        "detail": detail,
        "comparisons": 4 * len(LEVELS),
    }
