"""``attnbench diff``: two revisions measured now, or two journals compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.cli.display import COLOURS, WIDE, wide
from harness.cli.output import bare_table, console, duration, say
from harness.diff import journals, revisions, rows
from harness.diff.rows import DiffRow
from harness.diff.session import RevisionSession, make_session
from harness.errors import UsageError
from harness.json_file import write_json
from harness.options.groups import Narrowed, selection_of
from harness.options.measure import DiffOptions
from harness.profile import load_profile
from harness.records import journal
from harness.records.schema import cpu_threads
from harness.records.sharing import at_work
from reports.core.source import DeviceRecords, find
from reports.core.words import known, time_text

DEFAULT_PROFILE = "diff"
_COLOURS = {**COLOURS, "broken": "red", "mended": "green"}
_MEASURING = ("profile", *(f.name for f in fields(Narrowed)))
"""Options that mean nothing where nothing is measured."""


def run_diff(options: DiffOptions) -> int:
    """Compare; returns the exit code: 0 fine, 1 a slowdown, 3 nothing comparable."""
    names = (options.base, options.head)
    folders = [Path(name).expanduser() for name in names if name]
    there = [journal.exists(folder) for folder in folders]
    if len(folders) == 2 and all(there):
        return _journals(folders[0], folders[1], options)
    return _revisions(options, any(there))


def _revisions(options: DiffOptions, one_is_a_folder: bool) -> int:
    root = revisions.repository()
    given = {"base": options.base, "head": options.head}
    try:
        sides = [revisions.find(root, label, name) for label, name in given.items()]
    except UsageError:
        if not one_is_a_folder:
            raise
        raise UsageError(
            f"given {options.base!r} and {options.head!r}, one of them a folder; "
            "expected two revisions or two journal folders"
        ) from None
    out = console()
    if sides[0].requirements != sides[1].requirements:
        say(out, "the constraints of the two revisions differ: installing one environment each")
    with revisions.checked_out(root, *sides) as (before, after):
        profile = options.profile or DEFAULT_PROFILE
        session = make_session(before, after, profile, options.device, selection_of(options))
        say(out, _plan_line(session, options.journal))
        if session.cases:
            with at_work(options.journal, "diff", alone=True):
                session.measure(options.journal, _on_block(out, session.profile.blocks))
    found = rows.measured(session.records, session.cases, session.new, session.gone)
    title = f"{after.short} against {before.short}"
    says = rows.closing(found, before.short, after.short)
    extra = {
        "base": {"given": before.given, "commit": before.commit},
        "head": {"given": after.given, "commit": after.commit},
        "fingerprint": dict(session.fingerprints["head"]),
        "run": session.id,
    }
    return _conclude(out, found, title, [says], options.json_file, extra, time_text)


def _plan_line(session: RevisionSession, journal: Path) -> str:
    f = session.fingerprints["head"]
    blocks = session.profile.blocks
    apart = [n for n in f if f[n] != session.fingerprints["base"].get(n)]
    more = f"; the environments differ in {', '.join(apart)}" if apart else ""
    return (
        f"{f['model']} ({f['device']}, {cpu_threads(f)}), "
        f"torch {f['torch']}: {session.head.short} against {session.base.short}, "
        f"{len(session.cases)} cases in {blocks} blocks, {3 * len(session.cases) * blocks} "
        f"measurements (the base twice: the A/A control); journal {journal}{more}"
    )


def _on_block(out: Console, blocks: int) -> Callable[[int, float], None]:
    def tell(done: int, seconds: float) -> None:
        if done < blocks:
            left = duration(seconds / done * (blocks - done))
            say(out, f"block {done} of {blocks} done after {duration(seconds)}, about {left} left")

    return tell


def _journals(base: Path, head: Path, options: DiffOptions) -> int:
    meaningless = [f"--{name}" for name in _MEASURING if getattr(options, name)]
    if meaningless:
        raise UsageError(
            f"{', '.join(meaningless)} given with two journals, where nothing is measured; "
            "leave it out, or give two revisions"
        )
    before, after, notes = _same_device(base, head, options.device)
    profile = load_profile(DEFAULT_PROFILE, before.kind)
    heads = profile.reference["heads"]
    found = journals.compare(before.records, after.records, profile.baseline, heads)
    if journals.baseline_changed(before.records, after.records, profile.baseline):
        notes.append(
            f"{profile.baseline}, or the clock, is not of the same code in both journals: a ratio "
            "may have moved by that"
        )
    says = rows.closing(found, str(base), str(head))
    out = console()
    title = f"{head} against {base}: ratios to {profile.baseline} on {before.title}"
    lines = [*notes, says, journals.SAYS.format(baseline=profile.baseline)]
    extra = {
        "base": {"journal": str(base)},
        "head": {"journal": str(head)},
        "baseline": profile.baseline,
        "fingerprint": dict(before.fingerprint),
    }
    return _conclude(out, found, title, lines, options.json_file, extra, "{:.3g}x".format)


def _same_device(
    base: Path, head: Path, kind: str
) -> tuple[DeviceRecords, DeviceRecords, list[str]]:
    """The newest device that both journals have times of, and what must be said of the choice."""
    timed = []
    notes = []
    for folder in (base, head):
        source = find(str(folder), published=folder / "none")
        notes += [f"journal: {warning}" for warning in source.warnings]
        devices = [d for d in source.devices if d.has("time") and kind in ("auto", d.kind)]
        if not devices:
            where = "" if kind == "auto" else f" on {kind}"
            raise UsageError(f"{folder} holds no times{where}; fill it with attnbench bench")
        timed.append(devices)
    shared = [
        (before, after) for after in timed[1] for before in timed[0] if before.key == after.key
    ]
    if not shared:
        fields = journals.differing(timed[0][0].fingerprint, timed[1][0].fingerprint)
        raise UsageError(
            f"{base} and {head} were measured on different devices, which are not compared; they "
            f"differ in {', '.join(fields)}"
        )
    if len(timed[0]) > 1 or len(timed[1]) > 1:
        notes.append(f"a journal holds several devices; compared on {shared[0][0].title}")
    return *shared[0], notes


def _conclude(
    out: Console,
    found: Sequence[DiffRow],
    title: str,
    lines: Sequence[str],
    json_file: str | None,
    extra: Mapping[str, Any],
    cell: Callable[[float], str],
) -> int:
    if found:
        out = wide(out)
        out.print(_table(found, title, cell, out.width))
    # Below the table, where they take no room of its numbers.
    for line in (*(f"{row.case}: {row.detail}" for row in found if row.detail), *lines):
        say(out, line)
    code = rows.exit_code(found)
    write_json(
        json_file,
        {**extra, "rows": [asdict(r) for r in found], "says": list(lines), "exit_code": code},
    )
    return code


def _table(found: Sequence[DiffRow], title: str, cell: Callable[[float], str], width: int) -> Table:
    beside = ("p (Holm)", "noise") if width >= WIDE else ()
    table = bare_table("case", numbers=("base", "head", "ratio", *beside))
    table.title, table.title_justify = escape(title), "left"
    table.columns[0].overflow, table.columns[0].min_width = "fold", 22
    table.add_column("verdict", no_wrap=True)
    for row in found:
        colour = _COLOURS.get(row.verdict, "dim")
        chance = "" if math.isnan(row.adjusted) else f"{row.adjusted:.2g}"
        noise = "" if math.isinf(row.floor) else f"{row.floor - 1:.1%}"
        table.add_row(
            escape(row.case),
            known(row.base, cell),
            known(row.head, cell),
            str(row.ratio) if row.ratio else "",
            *(chance, noise)[: len(beside)],
            f"[{colour}]{row.verdict}[/]",
        )
    return table
