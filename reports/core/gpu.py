"""What a GPU said of each case beside its time, in words: for the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.records.gpu import GpuReading
from harness.records.ratios import Row
from harness.stats import verdict
from reports.core.words import known, number_text, time_text

COLUMNS = (
    *("cold", "hot", "device alone", "MHz", "set aside", "TFLOP/s", "peak"),
    *("J a pass", "energy ratio", "verdict"),
)
LEGEND = (
    "cold: the level-two cache flushed before each sample; hot: as the call before left it; device "
    "alone: the pass replayed from a CUDA graph, cold; set aside: samples while the GPU lowered "
    "its clock; energy ratio: joules over the baseline's, taken in turn"
)


def gpu_lines(
    readings: Sequence[GpuReading], rows: Sequence[Row]
) -> list[tuple[str, tuple[str, ...]]]:
    """Each case and what stands in its `COLUMNS`."""
    by_case = {row.case: row for row in rows}
    found: list[tuple[str, tuple[str, ...]]] = []
    for one in readings:
        row = by_case.get(one.case)
        rate, share = (
            (math.nan, math.nan) if row is None else (row.operations_per_second, row.compute_share)
        )
        cells = (
            known(one.cold, time_text),
            known(one.hot, time_text),
            known(one.alone, time_text),
            number_text(one.mhz, ".0f"),
            f"{one.throttled}/{one.taken}",
            number_text(rate / 1e12, ".3g"),
            number_text(100 * share, ".2g" if share < 0.01 else ".0f", "%"),
            number_text(one.joules, ".3g"),
            str(one.energy) if one.energy else "",
            verdict(one.energy, one.floor) if one.energy else "",
        )
        found.append((one.case, cells))
    return found


def gpu_remarks(readings: Sequence[GpuReading]) -> list[str]:
    """The noise floor of energy; what is of a GPU that was slowed down; what was not read."""
    floors = [one.floor for one in readings if not math.isinf(one.floor)]
    lines = [f"noise floor of energy: {100 * (max(floors) - 1):.1f} %"] if floors else []
    for one in readings:
        if one.slow_blocks:
            all_ = one.slow_blocks == one.blocks
            where = "" if all_ else f" of {one.slow_blocks} of {one.blocks} blocks"
            lines.append(
                f"{one.case}: the GPU lowered its clock in all samples{where} "
                f"({', '.join(one.reasons)}): its time is {'' if all_ else 'in part '}of that state"
            )
    slow: dict[str, list[str]] = {}
    unread: dict[str, list[str]] = {}
    for one in readings:
        if one.lowered:
            said = f"{', '.join(one.lowered)} of a lowered clock ({', '.join(one.reasons)})"
            slow.setdefault(said, []).append(one.case)
        for detail in one.details:
            unread.setdefault(detail, []).append(one.case)
    lines += [f"{_whose(cases)}: {said}" for said, cases in slow.items()]
    return lines + [f"not read of {_whose(cases)}: {said}" for said, cases in unread.items()]


def _whose(cases: Sequence[str]) -> str:
    return cases[0] if len(cases) == 1 else f"{len(cases)} cases"
