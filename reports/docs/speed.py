"""What ``docs/results/speed.md`` shows: costs over a baseline's, from published records."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from harness.records.ratios import block_ratios, time_frame, verified_cases
from harness.stats import ratio_interval
from reports.core.costs import Costs
from reports.core.frontiers import reaches
from reports.core.page import footed
from reports.core.source import PUBLISHED, DeviceRecords, Source, find
from reports.core.sweeps import LengthSweep, length_of
from reports.core.tables import markdown, under
from reports.core.words import bytes_text
from reports.pages.scaling.figures import curve
from reports.pages.scaling.growth import grown
from reports.pages.scaling.tables import growth
from reports.pages.size.answers import Answer, Found, found_at
from reports.pages.size.page import glance
from reports.pages.trust import bits_rows, bits_sentence

FILE = Path(__file__).with_name("speed.toml")
GROWTH = "cpu/growth"
DETERMINISM = "cpu/determinism"


def frames(
    journals: Sequence[str], names: Sequence[str], where: Mapping[str, Any]
) -> dict[str, tuple[pd.DataFrame, frozenset[str]]]:
    """Times that fit, and the cases that are verified at their shape, by device."""
    records: dict[str, list[Mapping[str, Any]]] = {}
    for journal in journals:
        # Without records there the table would quietly lose what it is about.
        for device in find(str(PUBLISHED / journal)).devices:
            records.setdefault(device.title, []).extend(device.records)
    found = {}
    for title, own in records.items():
        times = time_frame(own)
        fits = ~times["control"].astype(bool) & times["name"].isin(names)
        for column, value in where.items():
            fits &= times[column] == value
        if fits.any():
            found[title] = times[fits], verified_cases(own)
    return found


def ratio_table(declared: Mapping[str, Any]) -> str:
    """A table as ``speed.toml`` declares it: under every device a row for dtype, pass and name."""
    base, names, of = declared["baseline"], declared["names"], declared["columns"]
    found = frames(declared["journals"], [base, *names], declared["where"])
    pieces = []
    for title, (times, verified) in found.items():
        across = sorted(times[of].unique())
        heads = [f"N = {at:,}" if of == "length" else str(at) for at in across]
        rows = []
        for (dtype, phase), problem in times.groupby(["dtype", "phase"]):
            for name in names:
                some = [problem[problem[of] == at] for at in across]
                cells = [ratio_cell(one, name, base, verified) for one in some]
                if any(cells):
                    rows.append([f"{name}, {dtype}, {phase}", *cells])
        if rows:
            pieces.append(f"{title}:\n\n{markdown(under([f'over {base}', *heads], rows))}")
    return "\n".join(pieces)


def ratio_cell(times: pd.DataFrame, name: str, baseline: str, verified: frozenset[str]) -> str:
    """A ratio with its interval, or why there is none; empty where it was not measured.

    Over the baseline of the same widths, where there is one; of several, of other heads, over that
    with which it shares most blocks.
    """
    mine, base = times[times["name"] == name], times[times["name"] == baseline]
    if mine.empty or base.empty:
        return ""
    bad = mine[mine["status"] != "ok"]
    if len(bad):
        return str(bad["status"].iloc[0])
    if str(mine["case"].iloc[0]) not in verified:
        return "not verified"
    alike = base[base["d_out"].isin(mine["d_out"])]
    of_case = (one for _, one in (base if alike.empty else alike).groupby("case", sort=False))
    ratios = max((block_ratios(mine, one) for one in of_case), key=len)
    if not ratios:
        return ""
    other = f" (to {mine['d_out'].iloc[0]})" if alike.empty else ""
    return f"{ratio_interval(ratios)}{other}"


def ratio_tables() -> list[tuple[str, str]]:
    """Title and body of every declared table."""
    declared = tomllib.loads(FILE.read_text(encoding="utf-8"))["table"]
    return [(one["title"], ratio_table(one)) for one in declared]


def timed(source: Source) -> list[Found]:
    """What every device that has timings says of the profile's size; first who says most of it.

    That one is what the README's table is of. Of equals the one with most timings comes first.
    """

    def timings(device: DeviceRecords) -> int:
        return sum(record["kind"] == "time" for record in device.records)

    devices = sorted(filter(timings, source.devices), key=timings, reverse=True)
    found = [found_at(device, {}) for device in devices]
    return sorted(found, key=lambda one: len(one.answers), reverse=True)


def answers_table(found: Found) -> str:
    """Time, memory, crossover and longest sequence of every implementation."""
    columns = [
        "",
        "training step",
        "forward pass",
        "memory, training",
        "faster in training",
        "longest sequence",
    ]
    return markdown(under(columns, [a.cells for a in found.answers]), (0, 4, 5))


def small_table(found: Found) -> str:
    """The README's: of every mechanism the implementation whose training step is the fastest.

    Of one that was measured with several numbers of heads, or to several widths, a row for each:
    they are other models.
    """
    best: dict[tuple[str, str], Answer] = {}
    for one in found.answers:
        row = one.rows.get("training")
        if row is None or row.time is None or row.status != "ok":
            continue
        model = one.mechanism, one.label.partition(" ")[2]
        before = best.get(model)
        if before is None or row.seconds < before.rows["training"].seconds:
            best[model] = one
    base = found.measured.baseline
    columns = [f"over {base}", "training step", "forward pass", "memory, training"]
    return markdown(under(columns, [a.cells[:4] for a in best.values()]), range(len(columns)))


def growth_tables() -> list[tuple[str, str]]:
    """How time grows with threads and with the batch."""
    pieces = []
    for device in find(str(PUBLISHED / GROWTH)).devices:
        measured = Costs(device)
        for what, title in (("threads", "more threads"), ("batch", "larger batches")):
            found = grown(measured.rows, measured.times, what)
            _, rows = growth(found, what, measured.baseline)
            pieces.append((f"With {title}", f"{device.title}:\n\n{markdown(rows)}"))
    return pieces


def same_bits() -> list[tuple[str, str, str]]:
    """Device, sentence and table of what gives the same bits again."""
    source = find(str(PUBLISHED / DETERMINISM), kinds=("determinism",))
    return [
        (device.title, bits_sentence(device.records), markdown(rows, range(len(rows[0]))))
        for device in source.devices
        if (rows := bits_rows(device.records))
    ]


def frontier_table(device: DeviceRecords) -> str:
    """The longest sequence that fits, of every implementation; empty without any."""
    rows = [
        {
            "": r.label,
            "pass": f"{r.phase}, batch {r.batch}, {r.dtype}",
            "memory": bytes_text(r.memory_limit_bytes),
            "longest sequence": r.span,
        }
        for r in reaches(device.records)
    ]
    return markdown(rows, range(4)) if rows else ""


def compared(sweep: LengthSweep) -> tuple[int, int]:
    """How many lines of a sweep have a ratio of training times, and up to which length."""
    lines = sweep.lines("training").values()
    ends = [max((length_of(row) for row in line if row.time), default=0) for line in lines]
    return sum(map(bool, ends)), max(ends, default=0)


def figures(timed: Sequence[Found]) -> dict[str, tuple[Figure, str]]:
    """Costs at one size, and over length: figure and what it says, by name.

    That at one size is of the first device that has any, the other of the sweep with most lines.
    """
    made = {}
    if found := next((one for one in timed if one.answers), None):
        base, footer = found.measured.baseline, found.device.footer("time", "memory")
        made["glance"] = (
            footed(glance(found.answers, base, found.where), footer),
            f"Time and peak memory of every mechanism over those of {base}, {found.where}",
        )
    swept = [(compared(sweep), sweep, one) for one in timed for sweep in one.measured.sweeps]
    if any(lines for (lines, _), *_ in swept):
        _, sweep, found = max(swept, key=itemgetter(0))
        device, base = found.device, found.measured.baseline
        figure = curve("ratio", sweep, "training", base, device.name)
        made["length"] = (
            footed(figure, device.footer("time")),
            f"Time of a training step over that of {base}, against length",
        )
    return made
