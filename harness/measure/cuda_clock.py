"""Time of asynchronous work, by events in the device's own order. Runs in children.

A call that only queues work returns long before the work is done: a clock on the host would time
the queueing. Events stand in the queue beside the work and are stamped when the device gets there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol

import torch

from harness.measure.cpu_clock import MAX_ROUNDS, Around, Sampled, refuse_impossible
from harness.measure.gpu import Sensed, Sensor

# Bound before any foreign code is imported.
_EVENT, _SYNCHRONIZE = torch.cuda.Event, torch.cuda.synchronize
LEAST_BATCH = 5
"""Samples queued before one synchronisation, so that the device does not wait for the host."""
PATIENCE = 4
"""How many times the wanted samples are taken where the GPU says that it is slowed down."""
FALLBACK_L2_BYTES = 128 * 2**20
"""Where torch does not tell a GPU's level-two cache: more than those of that age have."""


class Event(Protocol):
    """A mark in a queue of work."""

    def record(self) -> None:
        """Put the mark behind what is queued now."""

    def elapsed_time(self, end: Any, /) -> float:
        """Milliseconds from here to a later mark; both must have been reached."""


class Device(Protocol):
    """What the clock needs of a device that works asynchronously."""

    def event(self) -> Event:
        """A new mark."""

    def flush(self) -> None:
        """Queue something that evicts the level-two cache."""

    def synchronize(self) -> None:
        """Wait until all that is queued is done."""


def flush_bytes(properties: object) -> int:
    """Bytes to write so that nothing is left of the level-two cache: twice its size."""
    return 2 * (int(getattr(properties, "L2_cache_size", 0)) or FALLBACK_L2_BYTES)


class Cuda:
    """The current CUDA device, its current stream."""

    def __init__(self) -> None:
        self.flush_bytes = flush_bytes(torch.cuda.get_device_properties())
        self._buffer = torch.empty(self.flush_bytes, dtype=torch.int8, device="cuda")

    def event(self) -> Event:
        """A CUDA event with a time stamp."""
        return _EVENT(enable_timing=True)

    def flush(self) -> None:
        """Queue a write of the whole buffer."""
        self._buffer.zero_()

    def synchronize(self) -> None:
        """Wait for the device."""
        _SYNCHRONIZE()


def events_in_turn(
    calls: Sequence[Callable[..., object]],
    rounds: int,
    seconds: float,
    device: Device,
    clock: Callable[[], float] = perf_counter,
    around: Sequence[Around] | None = None,
    sensor: Sensor | None = None,
    flush: bool = True,
) -> tuple[list[Sampled], Sensed]:
    """Time asynchronous calls in turn by events, the level-two cache flushed before each sample.

    The first, the other, the other, the first, and so on. Events are recorded in batches and read
    after one synchronisation per batch. The flush lies before the first event of its sample, so it
    is done when the sample begins. Batches in which the GPU says that its clock is lowered are set
    aside; where all are, all count.

    Parameters
    ----------
    calls : sequence of callable
        One, or several that are compared with the first; already warm.
    rounds, seconds : int, float
        At least so many samples of each, and so much time in all. Of samples that are set aside
        there are at most `PATIENCE` times as many.
    clock : callable
        Seconds on the host; decides when to stop, and is in no sample.
    around : sequence of Around, optional
        What queues the inputs of a sample before its first event, and looks behind its last.
    sensor : Sensor, optional
        Read once a batch, while that is at work.

    Raises
    ------
    Wrong
        If a pair of events is not apart by a positive time.
    """
    around = around or [Around()] * len(calls)
    for one in around:
        one.begin(1)
    sensed, turns = Sensed(), 0
    kept: list[list[float]] = [[] for _ in calls]
    aside: list[list[float]] = [[] for _ in calls]
    begun = clock()
    # Too few samples, and not so many set aside that waiting is of no use; or time is left.
    while (len(kept[0]) < rounds and sensed.taken < PATIENCE * rounds) or (
        clock() - begun < seconds and sensed.taken < MAX_ROUNDS
    ):
        marks: list[list[tuple[Event, Event]]] = [[] for _ in calls]
        for _ in range(max(rounds, LEAST_BATCH)):
            for which in range(len(calls)) if turns % 2 == 0 else reversed(range(len(calls))):
                start, end = device.event(), device.event()
                (inputs,) = around[which].before(1)
                if flush:
                    device.flush()
                start.record()
                calls[which](*inputs)
                end.record()
                around[which].after()
                marks[which].append((start, end))
            turns += 1
        slow = sensed.look(sensor, len(marks[0]))
        device.synchronize()
        for which, pairs in enumerate(marks):
            times = [start.elapsed_time(end) / 1e3 for start, end in pairs]
            refuse_impossible(times)
            (aside if slow else kept)[which].extend(times)
    of_all = kept if kept[0] else aside
    return [Sampled(one, [0.0] * len(one), 1, math.fsum(one)) for one in of_all], sensed


def event_samples(
    call: Callable[..., object],
    rounds: int,
    seconds: float,
    device: Device,
    clock: Callable[[], float] = perf_counter,
) -> Sampled:
    """`events_in_turn` of one call, with nothing around it."""
    (found,), _ = events_in_turn([call], rounds, seconds, device, clock)
    return found
