"""The clock: samples of one case in one block. Runs in children."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness.isolate import Wrong
from harness.measure.run import Prepared, prepare

WARM_UP_CALLS = 3
WARM_UP_SECONDS = 0.1
"""A second call that takes longer than this has warmed everything up."""
LEAST_WARM_UP = {"cpu": 0.0, "cuda": 0.2}
"""Seconds; a GPU's clock needs some to come up."""
MAX_ROUNDS = 200
SHORTEST_SAMPLE = 2e-3
"""Seconds; shorter calls are repeated inside one sample: the timer's step must not count."""
L2_BYTES = 256 * 2**20
"""More than any GPU's level-two cache: written between samples, outside the timed region."""


def cpu_samples(
    call: Callable[[], object],
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    once: float | None = None,
) -> tuple[list[float], int]:
    """Time a synchronous call.

    Parameters
    ----------
    call : callable
        Already warm.
    rounds, seconds : int, float
        At least so many samples, and so much time in all.
    clock : callable
        Seconds, monotonic.
    once : float, optional
        About how long a call takes; tried out if not given.

    Returns
    -------
    samples : list of float
        Seconds per call.
    inner : int
        Calls per sample.
    """
    if once is None:
        start = clock()
        call()
        once = clock() - start
    inner = max(1, round(SHORTEST_SAMPLE / max(once, 1e-9)))
    samples: list[float] = []
    begun = clock()
    while len(samples) < rounds or (clock() - begun < seconds and len(samples) < MAX_ROUNDS):
        start = clock()
        for _ in range(inner):
            call()
        samples.append((clock() - start) / inner)
    return samples, inner


def cuda_samples(
    call: Callable[[], object], rounds: int, seconds: float
) -> tuple[list[float], int]:
    """Time an asynchronous call by CUDA events, the level-two cache flushed before each sample.

    Events are recorded in batches and read after one synchronisation per batch; the flush lies
    outside the pair of events.

    Returns
    -------
    samples : list of float
        Seconds per call.
    inner : int
        Always 1.
    """
    flush = torch.empty(L2_BYTES, dtype=torch.int8, device="cuda")
    samples: list[float] = []
    batch = max(rounds, 5)
    begun = time.perf_counter()
    while len(samples) < rounds or (
        time.perf_counter() - begun < seconds and len(samples) < MAX_ROUNDS
    ):
        events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(batch)
        ]
        for start, end in events:
            flush.zero_()
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        samples += [start.elapsed_time(end) / 1e3 for start, end in events]
    return samples, 1


def time_case(
    case: str, given: Sequence[str] = (), rounds: int = 3, seconds: float = 0.1, seed: int = 0
) -> dict[str, Any]:
    """Warm up and time a case; check before and after that the result is finite.

    Returns
    -------
    dict
        ``samples`` and ``median`` in seconds per call, ``inner`` calls per sample, ``threads``,
        and apart from them ``build_seconds`` and ``warmup_seconds`` (compilation included).

    Raises
    ------
    Wrong
        If the output or a gradient is not finite: such a time is never a result.
    Unsupported
        From the implementation.
    """
    prepared = prepare(case, given, seed)
    device = prepared.case.problem.device
    start = time.perf_counter()
    once = _warm_up(prepared.call, device)
    warm_up = time.perf_counter() - start
    _refuse_not_finite(prepared)
    gc.collect()
    gc.disable()
    try:
        if device == "cuda":
            samples, inner = cuda_samples(prepared.call, rounds, seconds)
        else:
            samples, inner = cpu_samples(prepared.call, rounds, seconds, once=once)
    finally:
        gc.enable()
    _refuse_not_finite(prepared)
    return {
        "samples": samples,
        "median": statistics.median(samples),
        "inner": inner,
        "threads": torch.get_num_threads(),
        "build_seconds": prepared.build_seconds,
        "warmup_seconds": warm_up,
    }


def _refuse_not_finite(prepared: Prepared) -> None:
    if not prepared.finite():
        raise Wrong("output or a gradient is not finite")


def _warm_up(call: Callable[[], object], device: str) -> float:
    """Call until warm: twice if that takes long, else more. Returns the last call's time."""
    begun = time.perf_counter()
    calls = 0
    while True:
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        once = time.perf_counter() - start
        calls += 1
        # The first call pays for what is made once; the second is the first that counts as warm.
        if calls >= 2 and (
            once > WARM_UP_SECONDS
            or (calls >= WARM_UP_CALLS and time.perf_counter() - begun > LEAST_WARM_UP[device])
        ):
            return once
