"""``attnbench frontier``: the longest sequence that each mechanism can be run on."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from harness.case import Case
from harness.cli.output import check_json, console, write_json
from harness.errors import UsageError
from harness.isolate import Limits
from harness.isolate import run as isolated
from harness.measure.device import available_memory, environment
from harness.measure.frontier import SHARE, Bounds, Result, Search, refuse_beyond
from harness.plan import frontier_cases
from harness.registry import Registry
from suites.bench.display import bytes_text, time_text
from suites.bench.options import journal_folder, parse_bytes, selection
from suites.bench.setup import device_fingerprint

DEVICE_MEMORY = "harness.measure.probe:device_memory"


def memory_limit(asked: int | None, device: str) -> int:
    """Bytes that a probe may hold.

    By default half of the machine's memory, a number that does not change from one start to the
    next; on a GPU nine tenths of what is free, in whole GiB.

    Raises
    ------
    UsageError
        If it is more than nine tenths of what is free.
    """
    if device == "cuda":
        outcome = isolated(DEVICE_MEMORY, {}, Limits(seconds=120))
        if outcome.status != "ok":
            raise UsageError(f"the GPU's memory can't be read: {outcome.detail}")
        free = int(outcome.value["free"])
        default = int(SHARE * free) // 2**30 * 2**30
    else:
        available = available_memory()
        if available is None:
            raise UsageError("how much memory is free can't be told here; needs Linux, or a GPU")
        free = available
        default = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    limit = default if asked is None else asked
    refuse_beyond(limit, free)
    return limit


def read_limits(values: Mapping[str, Any]) -> tuple[int | None, float, int]:
    """Bytes (None: the device's), seconds and largest length, as the options say.

    Raises
    ------
    UsageError
    """
    seconds, largest = values["seconds"], values["limit"]
    if not (seconds > 0 and math.isfinite(seconds)):
        raise UsageError(f"--seconds: given {seconds:g}; expected a positive number")
    if largest < 1:
        raise UsageError(f"--limit: given {largest}; expected at least 1")
    return parse_bytes(values["memory"]) if values["memory"] else None, seconds, largest


def _named(result: Result) -> dict[str, str]:
    p = result.case.problem
    return {
        "name": result.case.name + (f"@{p.heads}" if p.heads else ""),
        "problem": f"B{p.batch} D{p.d_in}x{p.d_out} {p.dtype} {p.phase} {p.device} "
        + ("+".join(result.case.settings) or "eager"),
    }


def _row(result: Result) -> dict[str, Any]:
    """One result, for ``--json``."""
    longest, frontier = result.longest or {}, result.frontier
    return {
        **_named(result),
        "longest": frontier.longest,
        "case": longest.get("case"),
        "peak_bytes": longest.get("peak_bytes"),
        "formula_bytes": longest.get("formula_bytes"),
        "pass_seconds": longest.get("pass_seconds"),
        "first_miss": frontier.first_miss,
        "why": result.why,
        "detail": result.detail,
        "not_monotone": list(frontier.not_monotone),
        "tried": {n: result.probes[n]["status"] for n in sorted(result.probes)},
    }


def frontier_table(results: Sequence[Result]) -> Table:
    """Longest length, its peak and time, and the first that does not fit with the reason."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("mechanism", overflow="fold")
    for column in ("longest N", "peak", "a pass", "not N"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("why")
    last = ""
    for result in results:
        named, longest, frontier = _named(result), result.longest, result.frontier
        if named["problem"] != last:
            table.add_row(f"[bold]{named['problem']}[/]")
            last = named["problem"]
        table.add_row(
            " " + escape(named["name"]),
            "none" if frontier.longest is None else str(frontier.longest),
            "" if longest is None else bytes_text(longest["peak_bytes"]),
            "" if longest is None else time_text(longest["pass_seconds"]),
            "" if frontier.first_miss is None else str(frontier.first_miss),
            f"[red]{result.why}[/]" if result.failed() else result.why,
        )
    return table


def remarks(results: Sequence[Result]) -> list[str]:
    """A line for whatever is neither a length that fits nor a limit."""
    lines = []
    for result in results:
        name = result.case.name
        for length in result.frontier.not_monotone:
            status = result.probes[length]["status"]
            lines.append(
                f"{name}: N = {length} did not fit ({status}: "
                f"{result.probes[length].get('detail', '')}), though N = "
                f"{result.frontier.longest} does: not a matter of length; a busy machine?"
            )
        if result.failed() or result.why == "unsupported":
            miss = result.frontier.first_miss
            lines.append(f"{name}: {result.why} at N = {miss}: {result.detail}")
    return lines


class _Bar:
    """Cases done and the probe in flight; where it is no terminal, nothing."""

    def __init__(self, out: Console, cases: int) -> None:
        self._bar = Progress(
            TextColumn("frontier"), BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total} {task.fields[case]}"),
            console=out, transient=True, disable=not out.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("frontier", total=cases, case="")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def show(self, case: Case, done: int) -> None:
        """Name the probe in flight."""
        self._bar.update(self._task, completed=done, case=escape(case.id))


def run_frontier(values: Mapping[str, Any], json_file: str | None) -> int:
    """Find and show the frontiers; 1 if one of them is that of a crash or of wrong results."""
    check_json(json_file)
    out = console()
    registry = Registry(values["given"])
    folder = journal_folder(values["journal"])
    chosen = selection(values)
    asked, seconds, largest = read_limits(values)
    fingerprint = device_fingerprint(values["device"])
    device = str(fingerprint["device"])
    cases = frontier_cases(device, registry, chosen)
    limits = Bounds(memory_limit(asked, device), seconds, largest)
    out.print(
        f"{fingerprint['model']} ({device}), torch {fingerprint['torch']}: {len(cases)} cases "
        f"within {bytes_text(limits.memory_bytes)} and {limits.seconds:g} s a pass, N up to "
        f"{limits.largest}; journal {folder}",
        highlight=False, soft_wrap=True, markup=False,
    )  # fmt: skip
    try:
        with _Bar(out, len(cases)) as bar:
            search = Search(cases, limits, registry, folder, fingerprint, bar.show)
            results = search.run({"environment": environment(), "purpose": "frontier"})
    except KeyboardInterrupt:
        out.print(f"stopped; what is finished is in {folder}: the same command goes on from there")
        raise
    out.print(frontier_table(results))
    for line in remarks(results):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    total = sum(len(result.probes) for result in results)
    out.print(f"{total} probes, {total - search.probed} of them from the journal", highlight=False)
    write_json(
        json_file,
        {
            "fingerprint": fingerprint,
            "memory_limit_bytes": limits.memory_bytes,
            "seconds_limit": limits.seconds,
            "largest": limits.largest,
            "rows": [_row(result) for result in results],
        },
    )
    return int(any(result.failed() for result in results))
