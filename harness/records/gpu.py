"""What a GPU said of each case beside its time: records to one line a case."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from harness.case import parse, problem_of
from harness.stats import Interval, noise_floor, ratio_interval

LOWERED = {"hot_lowered": "hot", "device_lowered": "device alone", "energy_lowered": "energy"}
"""What a record has of a reading at a lowered clock, and that reading's name."""


@dataclass(frozen=True)
class GpuReading:
    """Of a case, medians over its blocks; nan where nobody read it."""

    case: str
    cold: float  # seconds, the cache flushed before each sample
    hot: float  # as the call before left the cache
    alone: float  # of the device alone, replayed from a CUDA graph, the cache flushed
    mhz: float  # clock of the multiprocessors
    # taken, throttled: samples of all blocks, and those that were set aside because that clock was
    # lowered.
    taken: int
    throttled: int
    # blocks, slow_blocks: all, and those in which it was lowered throughout: their samples count.
    blocks: int
    slow_blocks: int
    lowered: tuple[str, ...]  # other readings that were taken so: of `LOWERED`
    reasons: tuple[str, ...]  # why it was
    joules: float  # of a pass
    energy: Interval | None  # joules over the baseline's, taken in turn
    floor: float  # noise floor of that, from the A/A control's own energy; infinite while unknown
    details: tuple[str, ...]  # why a reading could not be taken


def gpu_readings(records: Collection[Mapping[str, Any]]) -> list[GpuReading]:
    """One for each case that is timed on a GPU, in the order of the records; controls are floors.

    Parameters
    ----------
    records : collection of mapping
        Records of a journal, of any kind, of one fingerprint.
    """
    by_case: dict[str, list[Mapping[str, Any]]] = {}
    for r in records:
        if r["kind"] == "time" and r["status"] == "ok" and r.get("gpu"):
            by_case.setdefault(r["case"], []).append(r)
    floors = {
        problem_of(parse(case)): noise_floor(ratio_interval(list(ratios.values())))
        for case, found in by_case.items()
        if parse(case).is_control and (ratios := _energy(found))
    }
    return [
        _reading(case, found, floors.get(problem_of(parse(case)), math.inf))
        for case, found in by_case.items()
        if not parse(case).is_control
    ]


def _energy(records: Collection[Mapping[str, Any]]) -> dict[int, float]:
    """Energy ratio by block; of several sessions' the first counts."""
    found: dict[int, float] = {}
    for r in records:
        if r["gpu"].get("energy_ratio") is not None:
            found.setdefault(r["block"], float(r["gpu"]["energy_ratio"]))
    return found


def _samples(record: Mapping[str, Any], which: str) -> int:
    return int(record["gpu"].get(which) or 0)


def _slow(record: Mapping[str, Any]) -> bool:
    """Whether all of its samples are of a lowered clock: then nothing was set aside."""
    return 0 < _samples(record, "taken") == _samples(record, "throttled")


def _reading(case: str, records: Collection[Mapping[str, Any]], floor: float) -> GpuReading:
    readings = [r["gpu"] for r in records]

    def median(name: str) -> float:
        values = [float(g[name]) for g in readings if g.get(name) is not None]
        return statistics.median(values) if values else math.nan

    why = (g.get(name) for g in readings for name in ("throttle_reasons", *LOWERED))
    energy = _energy(records)
    details = (g.get(name) for g in readings for name in ("device_detail", "energy_detail"))
    return GpuReading(
        case=case,
        cold=statistics.median(float(r.get("seconds") or r["median"]) for r in records),
        hot=median("hot_seconds"),
        alone=median("device_seconds"),
        mhz=median("sm_mhz"),
        taken=sum(_samples(r, "taken") for r in records),
        throttled=sum(_samples(r, "throttled") for r in records if not _slow(r)),
        blocks=len({r["block"] for r in records}),
        slow_blocks=len({r["block"] for r in records if _slow(r)}),
        lowered=tuple(said for name, said in LOWERED.items() if any(g.get(name) for g in readings)),
        reasons=tuple(dict.fromkeys(reason for some in why for reason in some or ())),
        joules=median("joules"),
        energy=ratio_interval(list(energy.values())) if energy else None,
        floor=floor,
        details=tuple(dict.fromkeys(filter(None, details))),
    )
