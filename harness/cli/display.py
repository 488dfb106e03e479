"""What a user sees while measuring: a bar with time left, and a ratio table after each block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from harness.cli.output import bare_table, duration, say
from harness.measure.blocks import Step
from harness.measure.ceilings import COUNTED, MOST, NOT_COUNTED
from harness.measure.session import Session
from harness.records.gpu import GpuReading
from harness.records.ratios import NO_ORACLE, NOT_VERIFIED, WITHHELD, Row
from harness.stats import ratio_text
from reports.core.gpu import COLUMNS, LEGEND, gpu_lines, gpu_remarks
from reports.core.sweeps import to_width
from reports.core.words import bytes_text, known, margin_text, memory_text, time_text

NEAR_FLOOR = "*"
"""Marks a time that is mostly launching."""
BELOW_FLOOR, BY_ITSELF = "<floor", "°"
MARKS = {NO_ORACLE: "none", NOT_VERIFIED: "-"}
"""Stand where a margin would."""
WIDE = 96
"""Columns of a console in which the whole ratio table has room."""


def wide(console: Console) -> Console:
    """The console, or, where it is not a terminal, one wide enough for a table."""
    return console if console.is_terminal else Console(file=console.file, width=140)


def share_text(row: Row) -> str:
    """Share of the best matrix product, with an exclamation mark where it can't be right."""
    percent = 100 * row.compute_share
    if math.isnan(percent):
        return ""
    number = f"{percent:.0f}" if percent >= 1 else f"{percent:.1f}" if percent >= 0.1 else "<0.1"
    return f"{number}%{'!' if row.compute_share > MOST else ''}"


COLOURS = {
    "faster": "green",
    "slower": "red",
    "same": "cyan",
    "undecided": "yellow",
    WITHHELD: "bold red",
}


def ratio_table(rows: Sequence[Row], title: str, width: int = WIDE) -> Table:
    """Cases against the baseline of their problem.

    Below `WIDE` columns memory stands as its ratio alone and operations not at all: it fits 80.
    """
    wide = width >= WIDE
    table = bare_table("case", numbers=("time", "ratio"))
    table.title, table.title_justify, table.padding = title, "left", (0, 1, 0, 0)
    table.columns[0].overflow, table.columns[0].min_width = "fold", 20
    table.add_column("verdict", no_wrap=True)
    of_wide = ("ops", "peak", "memory", "ratio", "margin")
    for column in of_wide if wide else ("peak", "memory", "margin"):
        table.add_column(column, justify="right", no_wrap=True)
    last, width_of = None, to_width(rows)
    for row in rows:
        c = row.columns
        problem = (
            f"{c['phase']} B{c['batch']} N{c['length']} D{c['d_in']}"
            f" {c['dtype']} {c['settings']} {c['device']}"
        )
        if problem != last:
            if last is not None:
                table.add_row()
            table.add_row(f"[bold]{problem}[/]")
            last = problem
        heads = f" H{c['heads']}" if c["heads"] else ""
        name = f" {c['name']}{heads}{width_of(row)}"
        if row.status != "ok":
            table.add_row(escape(name), "", "", f"[red]{row.status}[/]")
            continue
        colour = COLOURS.get(row.verdict)
        table.add_row(
            escape(name),
            known(row.seconds, time_text) + (NEAR_FLOOR if row.near_floor else ""),
            str(row.time) if row.time else "",
            f"[{colour}]{row.verdict}[/]" if colour else row.verdict,
            *([known(row.operations_ratio, ratio_text)] if wide else []),
            share_text(row),
            *([known(row.peak_bytes, bytes_text)] if wide else []),
            BELOW_FLOOR if row.below_floor else memory_text(row),
            _margin(row),
        )
    notes = _notes(rows)  # names among them have options in brackets
    table.caption, table.caption_justify = None if notes is None else escape(notes), "left"
    return table


def _margin(row: Row) -> str:
    if row.verified:
        return f"{row.margin:.3g}x{BY_ITSELF * row.by_itself}"
    return MARKS[margin_text(row)]


def _notes(rows: Sequence[Row]) -> str | None:
    """What the marks of a table mean, for those that are in it."""
    notes = []
    if any(not math.isnan(row.operations_ratio) for row in rows):
        notes.append("ops: operations by their formulas, over the baseline's")
    if any(not math.isnan(row.compute_share) for row in rows):
        notes.append("peak: operations per second, of this session's best matrix product")
    for who, means in (
        (COUNTED, "by torch's flop counter, products and convolutions alone"),
        (NOT_COUNTED, "none could be counted: no best product holds its time to account"),
    ):
        names = dict.fromkeys(str(r.columns["name"]) for r in rows if r.operations_by == who)
        notes += [f"operations of {name}: {means}" for name in names]
    if any(row.near_floor for row in rows):
        notes.append(f"{NEAR_FLOOR} near the launch floor: half of the time or more is launching")
    if any(row.below_floor for row in rows):
        floor = bytes_text(max(row.memory_floor for row in rows if row.below_floor))
        notes.append(f"{BELOW_FLOOR} memory below what can be told: {floor} are noise")
    if any(row.verdict == WITHHELD for row in rows):
        notes.append("withheld: it can't stand as it is; the reason is below")
    unverified = {row.unverified.partition(":")[0] for row in rows if row.status == "ok"}
    if any(row.verified and row.by_itself for row in rows):
        notes.append(f"{BY_ITSELF} against its own float64: no oracle vouches for it")
    if NO_ORACLE in unverified:
        notes.append(f"{MARKS[NO_ORACLE]} {NO_ORACLE}: nobody vouches for its values")
    if NOT_VERIFIED in unverified:
        notes.append(
            f"{MARKS[NOT_VERIFIED]} {NOT_VERIFIED}: its error here is not known; no headline"
        )
    return "\n".join(notes) or None


def tell_gpu(readings: Sequence[GpuReading], rows: Sequence[Row], out: Console) -> None:
    """Print the readings of a session on a GPU; nothing where there are none."""
    if not readings:
        return
    table = bare_table("case", numbers=COLUMNS)
    for case, cells in gpu_lines(readings, rows):
        table.add_row(escape(case), *cells)
    out.print(table)
    for line in (LEGEND, *gpu_remarks(readings)):
        say(out, line)


class Display:
    """Shows a running session on a console.

    On a terminal a table of ratios above a bar, refreshed after every block; elsewhere the table
    after the first block and a line after each further one.
    """

    def __init__(self, console: Console, session: Session) -> None:
        self.console = console
        self.session = session
        self._bar = Progress(
            TextColumn("block {task.fields[block]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("left: {task.fields[left]}"),
            console=console,
        )
        self._task = self._bar.add_task("measuring", total=1, block="", left="")
        self._live = Live(self._bar, console=console, transient=True, auto_refresh=False)

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def __call__(self, step: Step, record: dict[str, Any]) -> None:
        """Move the bar; after the first and each further block show where things stand."""
        self._bar.update(
            self._task,
            completed=step.done,
            total=step.total,
            block=f"{step.block + 1}/{step.blocks}",
            left="?" if step.left_seconds is None else duration(step.left_seconds),
        )
        if record.get("kind") == "time" and record.get("status") not in ("ok", "unsupported"):
            self.console.print(
                f"{escape(record['case'])}: [red]{record['status']}[/]: "
                + escape(record.get("detail", ""))
            )
        if step.block_ended and step.done < step.total:
            self._block_ended(step)
        self._live.refresh()

    def _block_ended(self, step: Step) -> None:
        rows = self.session.rows()
        size = self.session.profile.reference
        here = (size["batch"], size["length"])
        shown = [r for r in rows if (r.columns["batch"], r.columns["length"]) == here] or rows[:12]
        title = "ratios so far" + (" (first block: no interval yet)" if step.block == 0 else "")
        table = ratio_table(shown, title, self.console.width)
        if self.console.is_terminal:
            self._live.update(Group(table, self._bar))
            return
        seconds = step.left_seconds
        left = "not known how much" if seconds is None else duration(seconds)
        self.console.print(
            f"block {step.block + 1} of {step.blocks} done after {duration(step.seconds)}, "
            f"about {left} left"
        )
        if step.block == 0:
            self.console.print(table)
