"""Samples of synchronous work, without the time in which other processes had the core."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from harness.measure import waiting
from harness.measure.cuda_clock import MAX_ROUNDS
from harness.measure.samples import checked, refuse_backwards

SHORTEST_SAMPLE = 2e-3
"""Seconds; shorter calls are repeated inside one sample: the timer's step must not count."""
LEAST_CALL = 1e-7
"""Seconds; no call from Python is shorter, whatever a coarse timer says."""
PATIENCE = 4
"""How many times the wanted running time a case may take while others have the core."""
TOGETHER = 1e-4
"""Seconds; readings of two clocks further apart than this say nothing of one another."""


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

    Raises
    ------
    Wrong
        If the clock went backwards, within a sample or between two, or stood still.
    """
    last = clock()
    if once is None:
        call()
        now = clock()
        # Checked here too: a negative time would ask for millions of calls.
        refuse_backwards(last, now)
        once, last = now - last, now
    inner = max(1, round(SHORTEST_SAMPLE / max(once, LEAST_CALL)))
    samples: list[float] = []
    waits: list[float] = []
    begun, ran = last, 0.0
    while len(samples) < rounds or (
        ran < seconds and last - begun < PATIENCE * seconds and len(samples) < MAX_ROUNDS
    ):
        asked, before = clock(), waited()
        start = clock()
        for _ in range(inner):
            call()
        end = clock()
        lost, answered = waited() - before, clock()
        # Between two samples too, where no difference would tell.
        refuse_backwards(last, asked, start, end, answered)
        if start - asked + answered - end > TOGETHER:
            lost = 0.0  # some of it may lie outside the sample: rather too long than too short
        ran += end - start - lost
        samples.append((end - start - lost) / inner)
        waits.append(lost / inner)
        last = answered
    return Sampled(checked(samples), waits, inner)


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


def undisturbed(
    call: Callable[[], object], rounds: int, seconds: float, once: float | None = None
) -> Sampled:
    """Time a warm call on the CPU without what other processes and the collector add.

    Of one thread the time in which it had no core is taken off. Of several it is not: while one
    waits the others go on, and nobody can say what the call would have taken.
    """
    alone = torch.get_num_threads() == 1
    waited = waiting.of_this_thread() if alone else waiting.nothing
    with without_collector():
        return sample_cpu(call, rounds, seconds, once=once, waited=waited)


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Keep Python's garbage collector out of the timed region."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
