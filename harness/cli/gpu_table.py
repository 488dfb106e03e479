"""What a GPU said of each case beside its time, as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from harness.case import parse
from harness.cli.display import share_text
from harness.cli.output import bare_table, say
from harness.measure.ceilings import work_of
from harness.measure.session import Session
from harness.records.gpu import GpuReading, gpu_readings
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


def tell_gpu(session: Session, rows: Sequence[Row], out: Console) -> list[GpuReading]:
    """Print the readings of a session on a GPU, and return them; nothing elsewhere."""
    readings = gpu_readings(session.records())
    if not readings:
        return []
    by_case = {row.case: row for row in rows}
    table = bare_table("case", numbers=COLUMNS)
    for one in readings:
        case = parse(one.case)
        operations = work_of(session.registry.mechanism(case.mechanism), case).operations
        share = share_text(by_case[one.case]) if one.case in by_case else ""
        table.add_row(
            escape(one.case),
            known(one.cold, time_text),
            known(one.hot, time_text),
            known(one.alone, time_text),
            number_text(one.mhz, ".0f"),
            f"{one.throttled}/{one.taken}",
            number_text(operations / one.cold / 1e12, ".3g"),
            share,
            number_text(one.joules, ".3g"),
            str(one.energy) if one.energy else "",
            verdict(one.energy, one.floor) if one.energy else "",
        )
    out.print(table)
    say(out, LEGEND)
    floors = [one.floor for one in readings if not math.isinf(one.floor)]
    if floors:
        say(out, f"noise floor of energy: {100 * (max(floors) - 1):.1f} %")
    for line in remarks(readings):
        say(out, line)
    return readings


def remarks(readings: Sequence[GpuReading]) -> list[str]:
    """A line for each case whose every sample is of a slowed GPU, and for what was not read."""
    lines = [
        f"{one.case}: the GPU lowered its clock in all samples ({', '.join(one.reasons)}): its "
        "time is of that state"
        for one in readings
        if one.all_throttled
    ]
    why: dict[str, list[str]] = {}
    for one in readings:
        for detail in one.details:
            why.setdefault(detail, []).append(one.case)
    for detail, cases in why.items():
        whose = cases[0] if len(cases) == 1 else f"{len(cases)} cases"
        lines.append(f"not read of {whose}: {detail}")
    return lines
