"""What is said of a case on a GPU beside its time: warm caches, no host, energy. In children."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Sequence
from time import perf_counter
from typing import Any

from harness.measure.cuda_clock import Device, events_in_turn
from harness.measure.gpu import Sensed, Sensor, named
from harness.measure.run import Prepared, captured
from harness.measure.watch import Watch

SHARE = 0.25
"""Of the seconds of its samples that each other way of timing it gets."""
ENERGY_FROM = 0.1
"""Seconds of a case's samples; a quick profile would take three times as long with energy."""
ENERGY_SECONDS = 0.5
"""Of one turn; a case and its baseline have two each, in turn."""
BETWEEN = 0.01
"""Seconds of work between two looks at the counter."""
LEAST_STEPS = 4
"""Of the counter in a turn: it moves every 20 to 100 ms (predicted; NVML does not say), and what it
says of less is mostly when it moved."""


def lowered(what: str, sensed: Sensed, slow: bool) -> dict[str, Any]:
    """``hot_lowered`` and the like: why the GPU lowered its clock for a reading that is slow."""
    return {f"{what}_lowered": named(sensed.reasons)} if slow else {}


def hot(
    prepared: Prepared,
    once: float,
    rounds: int,
    seconds: float,
    device: Device,
    on: Collection[str],
    sensor: Sensor | None,
) -> dict[str, Any]:
    """``hot_seconds``: the median with caches as the call before, and the writing of its inputs,
    left them. ``hot_lowered``: if no sample was taken at a full clock, why.
    """
    watch = Watch(prepared, once, on, looking=False)
    (found,), sensed = events_in_turn(
        [watch.call],
        rounds,
        SHARE * seconds,
        device,
        around=[watch],
        sensor=sensor,
        flush=False,
    )
    median = statistics.median(found.samples)
    return {"hot_seconds": median} | lowered("hot", sensed, sensed.all_throttled)


def alone_on_device(
    prepared: Prepared, rounds: int, seconds: float, device: Device, sensor: Sensor | None
) -> dict[str, Any]:
    """``device_seconds``: the same pass replayed from a CUDA graph, so that no launch waits for
    the host; else ``device_detail``, why not. ``device_lowered``: as of `hot`.

    ``spoiled``: a capture that failed can leave CUDA's allocator in any state.
    """
    try:
        replay = captured(prepared)
        (found,), sensed = events_in_turn([replay], rounds, SHARE * seconds, device, sensor=sensor)
    except Exception as error:  # whatever it is: the samples have been taken
        first = str(error).partition("\n")[0]
        return {"device_detail": f"{type(error).__name__}: {first}"[:200], "spoiled": True}
    median = statistics.median(found.samples)
    return {"device_seconds": median} | lowered("device", sensed, sensed.all_throttled)


def spent(
    calls: Sequence[Callable[[], object]],
    once: Sequence[float],
    sensor: Sensor | None,
    device: Device,
    seconds: float,
) -> dict[str, Any]:
    """See `energy_record`; of runs with samples of less than `ENERGY_FROM` seconds only why not."""
    if sensor is None:
        return {"energy_detail": "NVML can't be begun"}
    if seconds < ENERGY_FROM:
        return {
            "energy_detail": f"a case has {seconds:g} s in this profile, and its energy takes two: "
            "--profile full has it"
        }
    return energy_record(calls, once, sensor, device.synchronize)


def joules(
    call: Callable[[], object],
    once: float,
    sensor: Sensor,
    sensed: Sensed,
    synchronize: Callable[[], None],
    seconds: float = ENERGY_SECONDS,
    clock: Callable[[], float] = perf_counter,
) -> float | None:
    """What a pass spends, from a step of the counter to a later one, the GPU working all along.

    A pass takes about `once` seconds; the counter is the sensor's, of millijoules, and the clock is
    looked at before it. None where there is none, or where it makes fewer than `LEAST_STEPS` steps.
    """
    batch, passes, begun = max(1, round(BETWEEN / once)), 0, clock()
    steps: list[tuple[int, int]] = []  # passes and millijoules, just behind each step
    last = sensor.millijoules()
    while last is not None and clock() - begun < seconds:
        for _ in range(batch):
            call()
        sensed.look(sensor, batch)
        synchronize()
        passes += batch
        now = sensor.millijoules()
        if now is None:
            return None
        if now != last:
            steps.append((passes, now))
        last = now
    if len(steps) <= LEAST_STEPS:
        return None
    (first, before), *_, (end, after) = steps
    spent = (after - before) / 1e3 / (end - first)
    return spent if spent > 0 else None


def energy_record(
    calls: Sequence[Callable[[], object]],
    once: Sequence[float],
    sensor: Sensor,
    synchronize: Callable[[], None],
    seconds: float = ENERGY_SECONDS,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, Any]:
    """``joules`` of the first call; with a second also ``beside_joules`` and ``energy_ratio``.

    The first, the other, the other, the first: what warms up or cools down cancels. Where nothing
    can be said ``energy_detail`` says why. ``energy_lowered``: why the clock was lowered at any
    look: nothing of a counter can be set aside.
    """
    sensed = Sensed()
    if sensor.millijoules() is None:
        return {"energy_detail": "NVML has no counter of energy for this GPU"}
    order = [0, 1, 1, 0] if len(calls) > 1 else [0, 0]
    found: list[list[float]] = [[] for _ in calls]
    for which in order:
        spent = joules(calls[which], once[which], sensor, sensed, synchronize, seconds, clock)
        if spent is None:
            return {"energy_detail": f"the counter of energy moved too seldom in {seconds:g} s"}
        found[which].append(spent)
    mine, *others = (math.exp(sum(map(math.log, two)) / 2) for two in found)
    record = {"joules": mine} | lowered("energy", sensed, sensed.throttled > 0)
    for other in others:
        record |= {"beside_joules": other, "energy_ratio": mine / other}
    return record
