"""``attnbench frontier``: the longest sequence that each mechanism can be run on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.progress import MofNCompleteColumn
from rich.table import Table

from harness.case import Case
from harness.cli.output import SAYS, bar, bare_table, console, say, tell_skipped
from harness.json_file import write_json
from harness.measure.call import refuse_options
from harness.measure.device import device_fingerprint, environment
from harness.measure.frontier import Bounds, Result, Search, memory_limit
from harness.options.groups import selection_of
from harness.options.measure import FrontierOptions
from harness.plan import frontier_cases
from harness.records import journal
from harness.records.sharing import at_work
from harness.registry import Registry
from reports.core.words import bytes_text, time_text


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
    table = bare_table("mechanism", numbers=("longest N", "peak", "a pass", "not N"))
    table.columns[0].overflow = "fold"
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


def run_frontier(options: FrontierOptions) -> int:
    """Search; returns the exit code: 1 if a case failed otherwise than by a limit."""
    out = console()
    registry, folder = Registry(options.given), options.journal
    fingerprint = device_fingerprint(options.device)
    device = str(fingerprint["device"])
    cases = frontier_cases(device, registry, selection_of(options))
    refuse_options(cases, registry)
    limits = Bounds(memory_limit(options.memory, device), options.seconds, options.limit)
    say(
        out,
        f"{fingerprint['model']} ({device}), torch {fingerprint['torch']}: {len(cases)} cases "
        f"within {bytes_text(limits.memory_bytes)} and {limits.seconds:g} s a pass, N up to "
        f"{limits.largest}; journal {folder}",
    )
    try:
        with (
            at_work(folder, "frontier", alone=True),
            bar(out, "frontier", len(cases), MofNCompleteColumn(), SAYS) as move,
        ):

            def show(case: Case, done: int) -> None:
                move(completed=done, says=escape(case.id))

            search = Search(cases, limits, registry, folder, fingerprint, show)
            results = search.run({"environment": environment(), "purpose": "frontier"})
    except KeyboardInterrupt:
        out.print(f"stopped; what is finished is in {folder}: the same command goes on from there")
        raise
    out.print(frontier_table(results))
    for line in remarks(results):
        say(out, line)
    tell_skipped(out, journal.read(folder).warnings)
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
