"""Measures the table of `choice`: every backend on every cell, taken in turns, on one thread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from reference_impls.kernels import choice, core
from reference_impls.kernels.geometry import Geometry, of_masks
from reference_impls.masks import parse_all
from reference_impls.mechanism import Unsupported

HEADS, WIDTH = 8, 75
TOKENS = 8192
"""Of the many sequences, at most; their samples are not more than 64."""
SECONDS, ROUNDS = 0.5, 5
"""For a cell and backend at least."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def inputs(batch: int, length: int, dtype: torch.dtype, training: bool) -> list[Tensor]:
    """q, k, v as views of one projection and s [H, B, N, d], as the layers give them."""
    generator = torch.Generator().manual_seed(0)
    product = torch.randn(batch, length, 3, HEADS, WIDTH, generator=generator).to(dtype)
    s = torch.randn(HEADS, batch, length, WIDTH, generator=generator).to(dtype)
    product[:, :, 0] /= WIDTH**0.5
    found = [*product.permute(2, 3, 0, 1, 4).unbind(0), s]
    return [t.requires_grad_() for t in found] if training else found


def call(backend: str, tensors: list[Tensor], geometry: Geometry) -> Callable[[], None]:
    """One pass; forward and backward where gradients are wanted."""
    q, k, v, s = tensors

    def once() -> None:
        a = core.attend(q, k, v, s, geometry, None, "log_sigmoid", None, backend)
        if a.requires_grad:
            torch.autograd.grad(a, tensors, a.detach())

    return once


def medians(calls: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Median seconds of each, from rounds in which each is called once."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for once in calls.values():
        once()
    start = time.perf_counter()
    while len(taken[next(iter(calls))]) < ROUNDS or (
        time.perf_counter() - start < SECONDS * len(calls)
    ):
        for name, once in calls.items():
            begun = time.perf_counter()
            once()
            taken[name].append(time.perf_counter() - begun)
    return {name: statistics.median(times) for name, times in taken.items()}


def cell(batch: int, length: int, dtype: torch.dtype, training: bool) -> dict[str, float]:
    """Median seconds of every backend that can do it, leaving out those of other devices."""
    tensors = inputs(batch, length, dtype, training)
    geometry = of_masks(parse_all(None, HEADS), length, torch.device("cpu"))
    calls = {}
    for backend in ("tiled", "native"):
        once = call(backend, tensors, geometry)
        try:
            once()
        except Unsupported as reason:
            print(f"# {backend}: {reason}")
            continue
        calls[backend] = once
    return medians(calls)


def print_table() -> None:
    """Print each cell as it is done, and in the end what `choice.FASTEST` should be."""
    torch.set_num_threads(1)
    table: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for dtype in DTYPES:
        for training in (False, True):
            key = (str(dtype).removeprefix("torch."), "training" if training else "forward")
            for many in (False, True):
                names = []
                for length in choice.LENGTHS:
                    batch = max(1, min(64, TOKENS // length)) if many else 1
                    found = cell(batch, length, dtype, training)
                    names.append(min(found, key=found.__getitem__))
                    ratios = ", ".join(
                        f"{name} {seconds / found['tiled']:.2f}" for name, seconds in found.items()
                    )
                    print(f"# {' '.join(key)} batch {batch}, length {length}: {ratios}", flush=True)
                table.setdefault(key, []).append(tuple(names))
    print("FASTEST: Table = {")
    for key, rows in table.items():
        print(f"    {key}: {tuple(rows)},")
    print("}")
