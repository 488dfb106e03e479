"""Samples of synchronous work, without the time in which other processes had the core.

On a busy machine a wall clock says how often the scheduler took the core away, not what a call
costs. The kernel counts, per thread, the nanoseconds in which it could have run but had no core
(run-queue wait, second field of ``schedstat``). Taken off the wall time, what is left is the time
the call ran or slept: a call that waits for a disk, a lock or another thread still pays for it,
which a clock of CPU time would forgive.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from harness.build import cores_available
from harness.isolate import Wrong

MAX_ROUNDS = 200
SHORTEST_SAMPLE = 2e-3
"""Seconds; shorter calls are repeated inside one sample: the timer's step must not count."""
LEAST_CALL = 1e-7
"""Seconds; no call from Python is shorter, whatever a coarse timer says."""
PATIENCE = 4
"""How many times the wanted running time a case may take while others have the core."""
TOGETHER = 1e-4
"""Seconds; readings of two clocks further apart than this say nothing of one another."""


Waited = Callable[[], float]
"""Seconds that this thread has waited for a core since it began."""


def not_waiting() -> float:
    """No waiting is known of: wall time is taken as it is."""
    return 0.0


def waiting_of_this_thread() -> Waited:
    """Return a reader of this thread's waiting; `not_waiting` where the kernel counts none.

    The reader belongs to the thread that asked for it, and reads in about a microsecond.
    """
    try:
        descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return not_waiting  # not Linux, or a kernel without the count

    def waited() -> float:
        return int(os.pread(descriptor, 96, 0).split()[1]) * 1e-9

    return waited


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

    @property
    def running_seconds(self) -> float:
        """Wall time of all samples together."""
        return (math.fsum(self.samples) + math.fsum(self.waited)) * self.inner


def ratio(mine: Sampled, other: Sampled) -> float:
    """My time over the other one's, taken in turn: the middle half of the log ratios, averaged.

    A neighbour on the same physical core (on a virtual machine another guest's) slows down
    everything by a tenth to a half, for 0.05 s to minutes, and no counter of the kernel tells.
    Two neighbouring samples mostly meet the same machine; the few that do not are left out.
    """
    logs = sorted(math.log(a / b) for a, b in zip(mine.samples, other.samples, strict=True))
    cut = len(logs) // 4
    return math.exp(statistics.fmean(logs[cut : len(logs) - cut]))


def refuse_backwards(*readings: float) -> None:
    """Raise if a clock, read in this order, ever went back.

    Raises
    ------
    Wrong
    """
    for earlier, later in itertools.pairwise(readings):
        if not later >= earlier:
            raise Wrong(f"the clock went back by {earlier - later:.3g} s")


def refuse_impossible(samples: Sequence[float]) -> None:
    """Raise if a sample, in seconds, can't be a duration: it is not finite and positive.

    Raises
    ------
    Wrong
    """
    for seconds in samples:
        if not (seconds > 0 and math.isfinite(seconds)):
            raise Wrong(f"a sample of {seconds:.3g} s: the clock can't be trusted")


class _Stopwatch:
    """Takes samples, each of so many calls; what a clock can't do is refused."""

    def __init__(self, clock: Callable[[], float], waited: Waited) -> None:
        self._clock, self._waited = clock, waited
        self.begun = self.last = clock()

    def try_out(self, call: Callable[[], object]) -> float:
        """About how long a call takes."""
        call()
        now = self._clock()
        # Checked here too: a negative time would ask for millions of calls.
        refuse_backwards(self.last, now)
        once, self.begun, self.last = now - self.last, now, now
        return once

    def sample(self, call: Callable[[], object], inner: int) -> tuple[float, float]:
        """Seconds in which `inner` calls ran, and in which they waited for a core."""
        asked, before = self._clock(), self._waited()
        start = self._clock()
        for _ in range(inner):
            call()
        end = self._clock()
        lost, answered = self._waited() - before, self._clock()
        # Between two samples too, where no difference would tell.
        refuse_backwards(self.last, asked, start, end, answered)
        if start - asked + answered - end > TOGETHER or lost >= end - start:
            lost = 0.0  # some of it may lie outside the sample: rather too long than too short
        self.last = answered
        return end - start - lost, lost


def sample(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    seconds: float,
    once: Sequence[float] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    waited: Waited = not_waiting,
) -> list[Sampled]:
    """Time synchronous calls in turn: the first, the other, the other, the first, and so on.

    Parameters
    ----------
    calls : sequence of callable
        One, or several that are compared with the first; all warm.
    rounds, seconds : int, float
        At least so many samples of each, and so much running time of the first.
    once : sequence of float, optional
        About how long each call takes; tried out if not given.
    clock : callable
        Seconds, monotonic.
    waited : callable
        What of the clock's time is not the call's; read outside the timed region.

    Raises
    ------
    Wrong
        If the clock went backwards, within a sample or between two, or stood still.
    """
    watch = _Stopwatch(clock, waited)
    once = [watch.try_out(call) for call in calls] if once is None else once
    inner = [max(1, round(SHORTEST_SAMPLE / max(one, LEAST_CALL))) for one in once]
    found = [Sampled([], [], count) for count in inner]
    mine, *others = (one * count for one, count in zip(once, inner, strict=True))
    patience = PATIENCE * seconds * (1 + sum(others) / max(mine, LEAST_CALL))
    ran, taken = 0.0, 0
    while taken < rounds or (
        ran < seconds and watch.last - watch.begun < patience and taken < MAX_ROUNDS
    ):
        # In turn the first: what a machine does over a round then cancels over two.
        for which in range(len(calls)) if taken % 2 == 0 else reversed(range(len(calls))):
            took, lost = watch.sample(calls[which], inner[which])
            found[which].samples.append(took / inner[which])
            found[which].waited.append(lost / inner[which])
            ran += took if which == 0 else 0.0
        taken += 1
    for one in found:
        refuse_impossible(one.samples)
    return found


def undisturbed(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    seconds: float,
    once: Sequence[float] | None = None,
) -> list[Sampled]:
    """`sample` warm calls on the CPU without what other processes and the collector add.

    Of one thread the time in which it had no core is taken off. Of several it is not: while one
    waits the others go on, and nobody can say what the call would have taken.
    """
    waited = waiting_of_this_thread() if torch.get_num_threads() == 1 else not_waiting
    with without_collector():
        return sample(calls, rounds, seconds, once, waited=waited)


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Keep Python's garbage collector out of the timed region."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def refuse_other_threads(wanted: int, cores: Sequence[int] | None) -> None:
    """Raise if what was set before the samples is not what stands after them.

    Parameters
    ----------
    wanted : int
        Threads that the case's settings ask for.
    cores : sequence of int or None
        From `harness.build.cores_available`, before the samples.

    Raises
    ------
    Wrong
    """
    threads = torch.get_num_threads()
    if threads != wanted:
        raise Wrong(f"ran with {threads} threads; {wanted} were set", {"threads": threads})
    now = cores_available()
    if now != cores:
        raise Wrong(f"ended on cores {ranges(now or ())}; began on {ranges(cores or ())}")


def ranges(numbers: Sequence[int]) -> str:
    """Write sorted numbers in short.

    >>> ranges([0, 1, 2, 3, 8])
    '0-3,8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
