"""``attnbench frontier``: the longest sequence that each mechanism can be run on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from harness.case import Case
from harness.cli.output import bare_table, console, say, write_json
from harness.errors import UsageError
from harness.isolate import Limits
from harness.isolate import run as isolated
from harness.measure.call import SHARE
from harness.measure.device import available_memory, device_fingerprint, environment
from harness.measure.frontier import Bounds, Result, Search, refuse_beyond
from harness.options import FrontierOptions, selection_of
from harness.plan import frontier_cases
from harness.registry import Registry
from reports.core.words import bytes_text, time_text

DEVICE_MEMORY = "harness.measure.memory:device_memory"


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
    table = bare_table()
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
            TextColumn("frontier"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total} {task.fields[case]}"),
            console=out,
            transient=True,
            disable=not out.is_terminal,
        )
        self._task = self._bar.add_task("frontier", total=cases, case="")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def show(self, case: Case, done: int) -> None:
        """Name the probe in flight."""
        self._bar.update(self._task, completed=done, case=escape(case.id))


def run_frontier(options: FrontierOptions) -> int:
    """Search; returns the exit code: 1 if a case failed otherwise than by a limit."""
    out = console()
    registry, folder = Registry(options.given), options.journal
    fingerprint = device_fingerprint(options.device)
    device = str(fingerprint["device"])
    cases = frontier_cases(device, registry, selection_of(options))
    limits = Bounds(memory_limit(options.memory, device), options.seconds, options.limit)
    say(
        out,
        f"{fingerprint['model']} ({device}), torch {fingerprint['torch']}: {len(cases)} cases "
        f"within {bytes_text(limits.memory_bytes)} and {limits.seconds:g} s a pass, N up to "
        f"{limits.largest}; journal {folder}",
    )
    try:
        with _Bar(out, len(cases)) as bar:
            search = Search(cases, limits, registry, folder, fingerprint, bar.show)
            results = search.run({"environment": environment(), "purpose": "frontier"})
    except KeyboardInterrupt:
        out.print(f"stopped; what is finished is in {folder}: the same command goes on from there")
        raise
    out.print(frontier_table(results))
    for line in remarks(results):
        say(out, line)
    total = sum(len(result.probes) for result in results)
    out.print(f"{total} probes, {total - search.probed} of them from the journal", highlight=False)
    write_json(
        options.json_file,
        {
            "fingerprint": fingerprint,
            "memory_limit_bytes": limits.memory_bytes,
            "seconds_limit": limits.seconds,
            "largest": limits.largest,
            "rows": [_row(result) for result in results],
        },
    )
    return int(any(result.failed() for result in results))
