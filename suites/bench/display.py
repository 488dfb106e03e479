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

from harness.ceilings import MOST
from harness.measure.session import Session
from harness.measure.task import Progress as Step
from harness.ratios import WITHHELD, Row

NEAR_FLOOR = "*"
"""Marks a time that is mostly launching."""
WIDE = 96
"""Columns of a console in which the whole ratio table has room."""


def wide(console: Console) -> Console:
    """The console, or, where it is not a terminal, one wide enough for a table."""
    return console if console.is_terminal else Console(file=console.file, width=140)


def duration(seconds: float | None) -> str:
    """``3 min 05 s``."""
    if seconds is None:
        return "not known before the first block ends"
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def time_text(seconds: float) -> str:
    """Time with a unit that suits it."""
    if math.isnan(seconds):
        return ""
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def bytes_text(count: float) -> str:
    """Bytes with a unit that suits them."""
    if math.isnan(count):
        return ""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.3g} {unit}"
    return f"{count:.0f} B"


def share_text(row: Row) -> str:
    """Share of the best matrix product, with an exclamation mark where it can't be right."""
    percent = 100 * row.compute_share
    if math.isnan(percent):
        return ""
    number = f"{percent:.0f}" if percent >= 1 else f"{percent:.1f}" if percent >= 0.1 else "<0.1"
    return f"{number}%{'!' if row.compute_share > MOST else ''}"


_COLOURS = {
    "faster": "green", "slower": "red", "same": "cyan", "undecided": "yellow",
    WITHHELD: "bold red",
}  # fmt: skip


def ratio_table(rows: Sequence[Row], title: str, width: int = WIDE) -> Table:
    """Cases against the baseline of their problem.

    Below `WIDE` columns memory stands as its ratio alone, and the table fits 80.
    """
    wide = width >= WIDE
    table = Table(
        title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0), box=None,
        header_style="bold",
    )  # fmt: skip
    table.add_column("case", overflow="fold", min_width=20)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for column in ("peak", "memory", *(["ratio"] if wide else []), "margin"):
        table.add_column(column, justify="right", no_wrap=True)
    last = None
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
        name = f" {c['name']}{heads}"
        if row.status != "ok":
            table.add_row(escape(name), "", "", f"[red]{row.status}[/]")
            continue
        colour = _COLOURS.get(row.verdict)
        table.add_row(
            escape(name),
            time_text(row.seconds) + (NEAR_FLOOR if row.near_floor else ""),
            str(row.time) if row.time else "",
            f"[{colour}]{row.verdict}[/]" if colour else row.verdict,
            share_text(row),
            *([bytes_text(row.peak_bytes)] if wide else []),
            "" if math.isnan(row.memory_ratio) else f"{row.memory_ratio:.2f}x",
            f"{row.margin:.3g}x" if row.verified else "-",
        )
    table.caption, table.caption_justify = _notes(rows), "left"
    return table


def _notes(rows: Sequence[Row]) -> str | None:
    """What the marks of a table mean, for those that are in it."""
    notes = []
    if any(not math.isnan(row.compute_share) for row in rows):
        notes.append("peak: operations per second, of this session's best matrix product")
    if any(row.near_floor for row in rows):
        notes.append(f"{NEAR_FLOOR} near the launch floor: half of the time or more is launching")
    if any(row.verdict == WITHHELD for row in rows):
        notes.append("withheld: faster than this machine can be; the reason stands below")
    return "\n".join(notes) or None


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
            left=duration(step.left_seconds) if step.left_seconds is not None else "?",
        )
        if record.get("kind") == "time" and record.get("status") not in ("ok", "unsupported"):
            self.console.print(
                f"{escape(record['case'])}: [red]{record['status']}[/] "
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
        self.console.print(
            f"block {step.block + 1} of {step.blocks} done after {duration(step.seconds)}, "
            f"about {duration(step.left_seconds)} left"
        )
        if step.block == 0:
            self.console.print(table)
