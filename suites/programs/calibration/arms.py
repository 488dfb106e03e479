"""What is timed: works of known cost, and calls made of so many of them. Runs in children."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.build import make
from harness.measure.cpu_clock import ratio, undisturbed
from harness.measure.warm_up import warm_up
from harness.registry import Registry

Work = Callable[[], object]


def product(size: int) -> Work:
    """A product of two square matrices."""
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    return lambda: torch.mm(a, b, out=out)


def batched(count: int, size: int) -> Work:
    """Products of a stack of small square matrices."""
    a, b = torch.randn(count, size, size), torch.randn(count, size, size)
    return lambda: torch.bmm(a, b)


def elementwise(count: int) -> Work:
    """A chain of elementwise operations with fresh temporaries."""
    x = torch.randn(count)
    return lambda: torch.sigmoid(x * 2 + 1)


def softmax(rows: int, columns: int) -> Work:
    """Softmax over the rows of a matrix."""
    x = torch.randn(rows, columns)
    return lambda: torch.softmax(x, dim=-1)


def layer_norm(rows: int, columns: int) -> Work:
    """Normalise the rows of a matrix."""
    x = torch.randn(rows, columns)
    return lambda: torch.nn.functional.layer_norm(x, (columns,))


def mechanism(name: str, length: int, width: int, heads: int) -> Work:
    """The forward pass of a mechanism on one sequence, ``[1, length, width]``."""
    record, implementation = Registry().find(name)
    options = {**record.options, **implementation.options}
    module = make(record, implementation.factory, width, width, heads, options).eval()
    x = torch.randn(1, length, width)
    mask = None if implementation.mask_optional else torch.ones(1, length, dtype=torch.bool)
    return lambda: module(x, mask)


WORKS: dict[str, Callable[..., Work]] = {
    f.__name__: f for f in (product, batched, elementwise, softmax, layer_norm, mechanism)
}


def time_arm(
    work: str, sizes: list[Any], calls: int, base_calls: int, rounds: int, seconds: float
) -> dict[str, Any]:
    """Time so many identical calls of a work as one call, in turn with so many others.

    Just so bench times a case in turn with its baseline, on one thread.

    Returns
    -------
    dict
        ``ratio`` to the base; for both (``mine``, ``base``) ``samples`` in seconds per call as
        bench would record them, ``waited`` seconds that were taken off each, ``inner`` calls per
        sample.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.inference_mode():
        # The calls are identical, down to the addresses: data elsewhere can be a few per cent
        # faster or slower, and the difference would not be the one that was put in.
        once = WORKS[work](*sizes)

        def mine() -> None:
            for _ in range(calls):
                once()

        def base() -> None:
            for _ in range(base_calls):
                once()

        warm = warm_up(mine, 0.0).once, warm_up(base, 0.0).once
        first, second = undisturbed([mine, base], rounds, seconds, warm)
    return {"ratio": ratio(first, second), "mine": vars(first), "base": vars(second)}
