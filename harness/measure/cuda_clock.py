"""Time of asynchronous work, by events in the device's own order. Runs in children.

A call that only queues work returns long before the work is done: a clock on the host would time
the queueing. Events stand in the queue beside the work and are stamped when the device gets there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

import torch

from harness.measure.cpu_clock import MAX_ROUNDS, Around, Bare, Sampled, refuse_impossible

# Bound before any foreign code is imported.
_EVENT, _SYNCHRONIZE = torch.cuda.Event, torch.cuda.synchronize
LEAST_BATCH = 5
"""Samples queued before one synchronisation, so that the device does not wait for the host."""
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
    """Bytes to write so that nothing is left of the level-two cache: twice its size.

    Parameters
    ----------
    properties : object
        From `torch.cuda.get_device_properties`; ``L2_cache_size`` where torch knows it.
    """
    size = int(getattr(properties, "L2_cache_size", 0))
    return 2 * (size or FALLBACK_L2_BYTES)


class Cuda:
    """The current CUDA device, its current stream.

    Parameters
    ----------
    size : int, optional
        Bytes that a flush writes; twice the level-two cache of this GPU by default.
    """

    def __init__(self, size: int | None = None) -> None:
        self.flush_bytes = size or flush_bytes(torch.cuda.get_device_properties())
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


def event_samples(
    call: Callable[..., object],
    rounds: int,
    seconds: float,
    device: Device,
    clock: Callable[[], float] = perf_counter,
    around: Around | None = None,
) -> Sampled:
    """Time an asynchronous call by events, the level-two cache flushed before each sample.

    Events are recorded in batches and read after one synchronisation per batch. The flush lies
    before the first event of its sample, so it is done when the sample begins.

    Parameters
    ----------
    call : callable
        Already warm.
    rounds, seconds : int, float
        At least so many samples, and so much time in all.
    device : Device
    clock : callable
        Seconds on the host; decides when to stop, and is in no sample.
    around : Around, optional
        What queues the inputs of a sample before its first event, and looks behind its last.

    Raises
    ------
    Wrong
        If a pair of events is not apart by a positive time.
    """
    samples: list[float] = []
    around = around or Bare()
    around.begin(1)
    begun = clock()
    while len(samples) < rounds or (clock() - begun < seconds and len(samples) < MAX_ROUNDS):
        pairs = [(device.event(), device.event()) for _ in range(max(rounds, LEAST_BATCH))]
        for start, end in pairs:
            (inputs,) = around.before(1)
            device.flush()
            start.record()
            call(*inputs)
            end.record()
            around.after()
        device.synchronize()
        samples += [start.elapsed_time(end) / 1e3 for start, end in pairs]
    refuse_impossible(samples)
    return Sampled(samples, [0.0] * len(samples), 1, math.fsum(samples))
