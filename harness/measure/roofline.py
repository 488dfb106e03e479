"""Ceilings of this machine, now: matrix products, memory traffic, launches. Runs in children.

Taken in every block under the settings of the cases, with the clock that times the cases, so that
a row can be held against the best of its own session; no number comes from a data sheet.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import linear

from harness.build import apply_settings, graph_of, torch_dtype, warm_for_capture
from harness.case import parse
from harness.measure.cpu_clock import undisturbed
from harness.measure.cuda_clock import Cuda, event_samples

SIZES = {"cpu": (256, 512, 1024), "cuda": (2048, 4096, 8192)}
"""Square products. On a CPU the smaller ones stay in its caches and are often the fastest."""
LONGEST_CALL = 0.15
"""Seconds; a product that is expected to take longer is left out (float16 on a CPU, say)."""
ROUNDS, SECONDS = 3, 0.03
"""Least samples, and time, of each measurement."""
LEAST_ARRAY = {"cpu": 64 * 2**20, "cuda": 512 * 2**20}
MOST_ARRAY = 1024 * 2**20
"""Bytes of a copied array: twice the last cache, within these bounds."""
CACHED_ARRAYS = (32 * 2**10, 256 * 2**10)
"""Bytes of arrays that lie in a core's own caches."""
TRAIN = 200
"""Launches timed together on CUDA: alone, one would hide behind the flush before it."""

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

Call = Callable[[], torch.Tensor]


PRODUCTS: dict[str, Callable[[torch.Tensor, torch.Tensor], Call]] = {
    "mm": lambda a, b: partial(torch.mm, a, b),
    "linear": lambda a, b: partial(linear, a, b),
    "onednn": lambda a, b: partial(linear, a.to_mkldnn(), b.to_mkldnn()),
}
"""Ways to the same product; torch does not send them through one library for every dtype. On a CPU
products in float32 are MKL's, convolutions and LSTMs oneDNN's, and on some processors one of the
two uses vectors twice as wide as the other's."""


def products(dtype: str, device: str) -> list[str]:
    """Names of the products that there are on a device."""
    there = device == "cpu" and torch.backends.mkldnn.is_available() and dtype in ("f32", "bf16")
    return [name for name in PRODUCTS if name != "onednn" or there]


def sample(call: Callable[[], object], device: str) -> list[float]:
    """Seconds per call of a warm call, by the clock of the cases."""
    if device == "cuda":
        return event_samples(call, ROUNDS, SECONDS, Cuda()).samples
    return undisturbed([call], ROUNDS, SECONDS)[0].samples


def gemm_rates(dtype: str, device: str) -> list[dict[str, Any]]:
    """Operations per second (a multiply-add is two) of square products, best sample of each."""
    rates: list[dict[str, Any]] = []
    generator = torch.Generator().manual_seed(0)
    for name in products(dtype, device):
        best = 0.0
        for size in SIZES[device]:
            operations = 2.0 * size**3
            if best and operations / best > LONGEST_CALL:
                break
            # Drawn as the inputs of the cases are: zeros would draw less power and run faster.
            a, b = (
                torch.randn(size, size, generator=generator).to(device, torch_dtype(dtype))
                for _ in range(2)
            )
            call = PRODUCTS[name](a, b)
            call()
            rate = operations / min(sample(call, device))
            best = max(best, rate)
            rates.append({"product": name, "size": size, "operations_per_second": rate})
    return rates


def cache_bytes(device: str) -> int | None:
    """Size of the last cache before memory; None where the system does not say."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).L2_cache_size)
    # Not os.sysconf, whose names of caches many builds of Python leave out.
    sizes = [path.read_text().strip() for path in CACHES.glob("index*/size")]
    units = {"K": 2**10, "M": 2**20}
    return max((int(s[:-1]) * units[s[-1]] for s in sizes), default=None)


def traffic(device: str, cache: int | None) -> dict[str, Any]:
    """Bytes per second of a copy (each byte read and written) and of a read, best sample.

    The array is larger than the caches; on a CPU ``cached_bytes_per_second`` is that of the best
    of all sizes, the rate at which nothing can be faster wherever it lies.
    """
    size = min(max(LEAST_ARRAY[device], 2 * (cache or 0)), MOST_ARRAY)
    # Written, not only reserved: pages that nobody wrote are all the same page of zeros.
    source = torch.ones(size // 4, device=device)
    target = torch.full_like(source, 2.0)
    copied = min(sample(lambda: target.copy_(source), device))
    read = min(sample(lambda: torch.dot(source, source), device))
    rates = {
        "copy_bytes_per_second": 2 * size / copied,
        "read_bytes_per_second": size / read,
        "array_bytes": size,
    }
    if device == "cpu":
        best = max(rates["copy_bytes_per_second"], rates["read_bytes_per_second"])
        for small in CACHED_ARRAYS:
            part, to = source[: small // 4], target[: small // 4]
            best = max(best, 2 * small / min(sample(partial(to.copy_, part), device)))
        rates["cached_bytes_per_second"] = best
    return rates


def launch_floor(device: str) -> dict[str, float | None]:
    """Seconds of the smallest operation: a launch, and nothing to do.

    On the CPU an addition to one number. On CUDA by events over a train of `TRAIN` of them, and
    over the replay of a graph that holds the same train.
    """
    one = torch.zeros(1, device=device)
    if device == "cpu":
        one.add_(1)
        return {
            "launch_seconds": statistics.median(sample(lambda: one.add_(1), device)),
            "graph_launch_seconds": None,
        }

    def train() -> None:
        for _ in range(TRAIN):
            one.add_(1)

    warm_for_capture(train)
    graph = graph_of(train)
    return {
        "launch_seconds": statistics.median(sample(train, device)) / TRAIN,
        "graph_launch_seconds": statistics.median(sample(graph.replay, device)) / TRAIN,
    }


def peaks_case(case: str, given: Sequence[str] = ()) -> dict[str, Any]:
    """Measure the ceilings of one gauge (see `harness.measure.ceilings.gauge_of`).

    Returns
    -------
    dict
        ``gemm_operations_per_second`` (the best of ``gemms``), ``copy_bytes_per_second``,
        ``read_bytes_per_second``, on a CPU ``cached_bytes_per_second``, ``array_bytes``,
        ``cache_bytes``, ``launch_seconds``, ``graph_launch_seconds``, ``threads``.
    """
    gauge = parse(case)
    apply_settings(gauge)
    device = gauge.problem.device
    with torch.inference_mode():
        gemms = gemm_rates(gauge.problem.dtype, device)
        cache = cache_bytes(device)
        moved = traffic(device, cache)
        floor = launch_floor(device)
    return {
        "gemm_operations_per_second": max(g["operations_per_second"] for g in gemms),
        "gemms": gemms,
        "cache_bytes": cache,
        "threads": torch.get_num_threads(),
        **moved,
        **floor,
    }
