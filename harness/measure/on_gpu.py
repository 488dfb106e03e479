"""What is said of a case on a GPU beside its time: warm caches, no host, energy. In children."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from typing import Any

from harness.measure.cuda_clock import Device, events_in_turn
from harness.measure.energy import energy_record
from harness.measure.run import Prepared, captured
from harness.measure.sensor import Sensor
from harness.measure.watch import Watch

ENERGY_FROM = 0.1
"""Seconds of a case's samples; a quick profile would take three times as long with energy."""
SHARE = 0.25
"""Of the seconds of its samples that each other way of timing it gets."""


def hot_seconds(
    prepared: Prepared,
    once: float,
    rounds: int,
    seconds: float,
    device: Device,
    on: Collection[str],
) -> float:
    """Median with caches as the call before, and the writing of its inputs, left them."""
    watch = Watch(prepared, once, on, looking=False)
    (found,), _ = events_in_turn(
        [watch.call], rounds, SHARE * seconds, device, around=[watch], flush=False
    )
    return statistics.median(found.samples)


def alone_on_device(
    prepared: Prepared,
    rounds: int,
    seconds: float,
    device: Device,
) -> dict[str, Any]:
    """``device_seconds``: the same pass replayed from a CUDA graph, so that no launch waits for
    the host; else ``device_detail``, why not.

    ``spoiled``: a capture that failed can leave CUDA's allocator in any state.
    """
    try:
        replay = captured(prepared)
        (found,), _ = events_in_turn([replay], rounds, SHARE * seconds, device)
    except Exception as error:  # whatever it is: the samples have been taken
        first = str(error).partition("\n")[0]
        return {"device_detail": f"{type(error).__name__}: {first}"[:200], "spoiled": True}
    return {"device_seconds": statistics.median(found.samples)}


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
    return energy_record(calls, once, sensor.millijoules, device.synchronize)
