"""The clock: samples of one case in one block. Runs in children."""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.isolate import Wrong
from harness.measure import waiting
from harness.measure.run import prepare
from harness.stats import block_time

WARM_UP_CALLS = 3
WARM_UP_SECONDS = 0.1
"""A second call that takes longer than this has warmed everything up."""
LEAST_WARM_UP = {"cpu": 0.0, "cuda": 0.2}
"""Seconds; a GPU's clock needs some to come up."""
MAX_ROUNDS = 200
SHORTEST_SAMPLE = 2e-3
"""Seconds; shorter calls are repeated inside one sample: the timer's step must not count."""
PATIENCE = 4
"""How many times the wanted running time a case may take while others have the core."""
TOGETHER = 1e-4
"""Seconds; readings of two clocks further apart than this say nothing of one another."""
L2_BYTES = 256 * 2**20
"""More than any GPU's level-two cache: written between samples, outside the timed region."""


@dataclass(frozen=True)
class Sampled:
    """Samples of a call.

    Attributes
    ----------
    samples : list of float
        Seconds per call, without the time in which other processes had the core.
    waited : list of float
        Seconds per call that were taken off; with them a sample is the wall time.
    inner : int
        Calls per sample.
    """

    samples: list[float]
    waited: list[float]
    inner: int


def sample_cpu(
    call: Callable[[], object],
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    once: float | None = None,
    waited: waiting.Waited = waiting.nothing,
) -> Sampled:
    """Time a synchronous call.

    Parameters
    ----------
    call : callable
        Already warm.
    rounds, seconds : int, float
        At least so many samples, and so much running time in all.
    clock : callable
        Seconds, monotonic.
    once : float, optional
        About how long a call takes; tried out if not given.
    waited : callable
        What of the clock's time is not the call's; read outside the timed region.
    """
    if once is None:
        start = clock()
        call()
        once = clock() - start
    inner = max(1, round(SHORTEST_SAMPLE / max(once, 1e-9)))
    samples: list[float] = []
    waits: list[float] = []
    begun = clock()
    ran = 0.0
    while len(samples) < rounds or (
        ran < seconds and clock() - begun < PATIENCE * seconds and len(samples) < MAX_ROUNDS
    ):
        asked, before = clock(), waited()
        start = clock()
        for _ in range(inner):
            call()
        end = clock()
        lost, answered = waited() - before, clock()
        wall = end - start
        if start - asked + answered - end > TOGETHER:
            lost = 0.0  # some of it may lie outside the sample: rather too long than too short
        ran += wall - lost
        samples.append((wall - lost) / inner)
        waits.append(lost / inner)
    return Sampled(samples, waits, inner)


def cpu_samples(
    call: Callable[[], object],
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    once: float | None = None,
) -> tuple[list[float], int]:
    """`sample_cpu` by the clock alone: samples, and calls per sample."""
    sampled = sample_cpu(call, rounds, seconds, clock, once)
    return sampled.samples, sampled.inner


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


def undisturbed(
    call: Callable[[], object], rounds: int, seconds: float, once: float | None = None
) -> Sampled:
    """Time a warm call on the CPU without what other processes and the collector add.

    Of one thread the time in which it had no core is taken off. Of several it is not: while one
    waits the others go on, and nobody can say what the call would have taken.
    """
    alone = torch.get_num_threads() == 1
    waited = waiting.of_this_thread() if alone else waiting.nothing
    with _no_collection():
        return sample_cpu(call, rounds, seconds, once=once, waited=waited)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def time_case(
    case: str, given: Sequence[str] = (), rounds: int = 3, seconds: float = 0.1, seed: int = 0
) -> dict[str, Any]:
    """Warm up, check that the result is finite, then time a case.

    Returns
    -------
    dict
        ``samples``, their ``median`` and ``seconds``, by which the block is compared, per call;
        ``waited_seconds`` that were taken off all samples together, ``inner`` calls per sample,
        ``threads``, and apart from them ``build_seconds`` and ``warmup_seconds`` (compilation
        included).

    Raises
    ------
    Wrong
        If the output is not finite: such a time is never a result.
    Unsupported
        From the implementation.
    """
    prepared = prepare(case, given, seed)
    device = prepared.case.problem.device
    start = time.perf_counter()
    once = warm_up(prepared.call, device)
    warming = time.perf_counter() - start
    if not bool(torch.isfinite(prepared.output()).all()):
        raise Wrong("output is not finite")
    if device == "cuda":
        with _no_collection():
            samples, inner = cuda_samples(prepared.call, rounds, seconds)
        sampled = Sampled(samples, [0.0] * len(samples), inner)
    else:
        sampled = undisturbed(prepared.call, rounds, seconds, once)
    return {
        "samples": sampled.samples,
        "median": statistics.median(sampled.samples),
        # Events on a GPU are disturbed to either side, and nobody has calibrated another rule.
        "seconds": (statistics.median if device == "cuda" else block_time)(sampled.samples),
        "waited_seconds": math.fsum(sampled.waited) * sampled.inner,
        "inner": sampled.inner,
        "threads": torch.get_num_threads(),
        "build_seconds": prepared.build_seconds,
        "warmup_seconds": warming,
    }


def warm_up(call: Callable[[], object], device: str) -> float:
    """Call until warm: twice if that takes long, else more. Returns the time of a warm call."""
    begun = time.perf_counter()
    calls = 0
    least = math.inf
    while True:
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        once = time.perf_counter() - start
        calls += 1
        # The first call pays for what is made once; the second is the first that counts as warm.
        # The least of the others: one that lost its core would make the samples too short.
        if calls >= 2:
            least = min(least, once)
            if once > WARM_UP_SECONDS or (
                calls >= WARM_UP_CALLS and time.perf_counter() - begun > LEAST_WARM_UP[device]
            ):
                return least
