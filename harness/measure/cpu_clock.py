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
from functools import partial
from signal import ITIMER_PROF, ITIMER_REAL, ITIMER_VIRTUAL, getitimer
from sys import getprofile, gettrace

# The functions themselves: what a module puts in their place in `time` changes nothing here.
from time import clock_gettime, perf_counter, process_time, thread_time
from typing import Any

import torch

from harness.isolate import Wrong
from harness.measure.checks import Meddling, wrong

MAX_ROUNDS = 200
SHORTEST_SAMPLE = 2e-3
"""Seconds; shorter calls are repeated inside one sample: the timer's step must not count."""
LEAST_CALL = 1e-7
"""Seconds; no call from Python is shorter, whatever a coarse timer says."""
PATIENCE = 4
"""How many times the wanted running time a case may take while others have the core."""
TOGETHER = 1e-4
"""Seconds; readings of two clocks further apart than this say nothing of one another."""
AROUND = 1e-4
"""Seconds of processor time that reading all clocks around a sample takes at most."""
APART = 0.05
"""How far two clocks may differ, or processor time exceed what the threads can take; the rest is
their steps and the frequency that a time server sets."""

raw_clock = partial(clock_gettime, getattr(time, "CLOCK_MONOTONIC_RAW", time.CLOCK_MONOTONIC))
"""Seconds by another clock of the kernel than `perf_counter`."""
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
    return lambda: int(os.pread(descriptor, 96, 0).split()[1]) * 1e-9


@dataclass
class Sampled:
    """Samples of a call.

    Attributes
    ----------
    samples : list of float
        Seconds per call, without the time in which other processes had the core.
    waited : list of float
        Seconds per call that were taken off; with them a sample is the wall time.
    inner : int
        Calls per sample, at most: one that is looked at may have fewer.
    running_seconds, waited_seconds : float
        Wall time of all samples together, and what of it was taken off.
    processor_seconds, own_seconds : float
        That all threads of the process spent in them, and the one that calls.
    hidden : int
        Samples in which that one spent more than they say that it ran.
    """

    samples: list[float]
    waited: list[float]
    inner: int
    running_seconds: float = 0.0
    waited_seconds: float = 0.0
    processor_seconds: float = 0.0
    own_seconds: float = 0.0
    hidden: int = 0

    def add(self, ran: float, waited: float, processor: float, own: float, calls: int) -> None:
        """A sample of so many calls: seconds of all of them together."""
        self.samples.append(ran / calls)
        self.waited.append(waited / calls)
        self.running_seconds += ran + waited
        self.waited_seconds += waited
        self.processor_seconds += processor
        self.own_seconds += own
        self.hidden += own > (1 + APART) * ran + AROUND


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
    """Raise `Wrong` if a clock, read in this order, ever went back."""
    for earlier, later in itertools.pairwise(readings):
        if not later >= earlier:
            raise Wrong(f"the clock went back by {earlier - later:.3g} s")


def refuse_impossible(samples: Sequence[float]) -> None:
    """Raise `Wrong` if a sample, in seconds, can't be a duration: not finite and positive."""
    for seconds in samples:
        if not (seconds > 0 and math.isfinite(seconds)):
            raise Wrong(f"a sample of {seconds:.3g} s: the clock can't be trusted")


def _hooks() -> tuple[object, ...]:
    """What the interpreter calls besides, and when: of profiling, tracing and timers."""
    real, user, both = map(getitimer, (ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF))
    return getprofile(), gettrace(), real[0] > 0, user[0] > 0, both[0] > 0


_HOOKS = _hooks()


def refuse_hooks() -> None:
    """Raise `Meddling` if the interpreter calls what it did not before foreign code came."""
    if _hooks() != _HOOKS:
        raise Meddling(
            "state",
            "it has itself called by the interpreter (sys.setprofile, sys.settrace, setitimer), "
            "where no clock runs too: not measured until it leaves that alone",
        )


class Around:
    """What is done outside the timed region, around every sample: by itself nothing."""

    def begin(self, calls: int) -> int:
        """Before the first sample, given the calls that are planned: how many one may have."""
        return calls

    def before(self, calls: int) -> Sequence[Sequence[Any]]:
        """Arguments of each call of the next sample."""
        return [()] * calls

    def after(self) -> None:
        """The clock has just stopped."""


class _Stopwatch:
    """Takes samples, each of so many calls; what a clock can't do is refused."""

    def __init__(
        self, clock: Callable[[], float], waited: Waited, other: Callable[[], float] | None
    ) -> None:
        self._clock, self._waited, self._compared = clock, waited, other is not None
        self._other = other or not_waiting
        self.begun = self.last = clock()
        self._seen = self._least = self._most = 0.0

    def try_out(self, call: Callable[[], object]) -> float:
        """About how long a call takes."""
        call()
        now = self._clock()
        # Checked here too: a negative time would ask for millions of calls.
        refuse_backwards(self.last, now)
        once, self.begun, self.last = now - self.last, now, now
        return once

    def sample(
        self, call: Callable[..., object], batch: Sequence[Sequence[Any]]
    ) -> tuple[float, float]:
        """Seconds in which the calls of a batch ran, and in which they waited for a core."""
        outer = self._other()
        asked, inner, before = self._clock(), self._other(), self._waited()
        start = self._clock()
        for inputs in batch:
            call(*inputs)
        refuse_hooks()  # here: what is called by them when the clock stands would not be timed
        end = self._clock()
        lost, inner_end, answered = self._waited() - before, self._other(), self._clock()
        outer_end = self._other()
        # Between two samples too, where no difference would tell.
        refuse_backwards(self.last, asked, start, end, answered)
        refuse_backwards(0.0, lost)
        self._seen += answered - asked
        self._least += inner_end - inner
        self._most += outer_end - outer
        if start - asked + answered - end > TOGETHER or lost >= end - start:
            lost = 0.0  # some of it may lie outside the sample: rather too long than too short
        self.last = answered
        return end - start - lost, lost

    def refuse_another_time(self) -> None:
        """Raise `Wrong` if the other clock, read around and inside this one, says otherwise."""
        least, most = (1 - APART) * self._least, (1 + APART) * self._most
        if self._compared and not least <= self._seen <= most:
            raise wrong(
                "clock",
                f"one clock says {self._seen:.3g} s of all samples, another one of the kernel "
                f"{self._most:.3g} s",
            )


def sample(
    calls: Sequence[Callable[..., object]],
    rounds: int,
    seconds: float,
    once: Sequence[float] | None = None,
    clock: Callable[[], float] = perf_counter,
    waited: Waited = not_waiting,
    around: Sequence[Around] | None = None,
    other: Callable[[], float] | None = None,
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
    clock, other : callable
        Seconds, monotonic; and another clock that must agree, if there is one.
    waited : callable
        What of the clock's time is not the call's; read outside the timed region.
    around : sequence of Around, optional
        What gives each of them its arguments, and looks at what it left.

    Raises
    ------
    Wrong
        If the clock went backwards, within a sample or between two, stood still, or is not that
        of the other one.
    """
    watch = _Stopwatch(clock, waited, other)
    around = around or [Around()] * len(calls)
    once = [watch.try_out(call) for call in calls] if once is None else once
    inner = [max(1, round(SHORTEST_SAMPLE / max(one, LEAST_CALL))) for one in once]
    inner = [one.begin(count) for one, count in zip(around, inner, strict=True)]
    found = [Sampled([], [], count) for count in inner]
    mine, *others = (one * count for one, count in zip(once, inner, strict=True))
    patience = PATIENCE * seconds * (1 + sum(others) / max(mine, LEAST_CALL))
    ran, taken = 0.0, 0
    while taken < rounds or (
        ran < seconds and watch.last - watch.begun < patience and taken < MAX_ROUNDS
    ):
        # In turn the first: what a machine does over a round then cancels over two.
        for which in range(len(calls)) if taken % 2 == 0 else reversed(range(len(calls))):
            batch = around[which].before(inner[which])
            # In this order, here and below: what holds it up between two readings is its own.
            own, spent = thread_time(), process_time()
            took, lost = watch.sample(calls[which], batch)
            spent, own = process_time() - spent, thread_time() - own
            around[which].after()
            found[which].add(took, lost, spent, own, len(batch))
            ran += took if which == 0 else 0.0
        taken += 1
    watch.refuse_another_time()
    for one in found:
        refuse_impossible(one.samples)
    return found


def undisturbed(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    seconds: float,
    once: Sequence[float] | None = None,
    around: Sequence[Around] | None = None,
    compared: bool = True,
) -> list[Sampled]:
    """`sample` warm calls on the CPU without what other processes and the collector add.

    Of one thread the time in which it had no core is taken off. Of several it is not: while one
    waits the others go on, and nobody can say what the call would have taken. Where `compared`,
    another clock of the kernel must agree.
    """
    waited = waiting_of_this_thread() if torch.get_num_threads() == 1 else not_waiting
    other = raw_clock if compared else None
    with without_collector():
        return sample(calls, rounds, seconds, once, waited=waited, around=around, other=other)


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Keep Python's garbage collector out of the timed region."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
