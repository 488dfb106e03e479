"""``attnbench diff``: two revisions measured now, or two journals compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.cli.output import check_json, console, write_json
from harness.errors import UsageError
from harness.records import journal

if TYPE_CHECKING:
    from harness.diff.rows import Row
    from harness.diff.session import Session
    from reports.core.source import DeviceRecords

DEFAULT_PROFILE = "diff"
_COLOURS = {
    "faster": "green", "slower": "red", "same": "cyan", "undecided": "yellow", "broken": "red",
    "mended": "green",
}  # fmt: skip
_MEASURING = (
    "profile", "only", "lengths", "batch", "width", "heads", "dtypes", "passes", "settings",
    "blocks",
)  # fmt: skip
"""Options that mean nothing where nothing is measured."""


def run_diff(base: str, head: str, values: dict[str, Any], json_file: str | None) -> int:
    """Compare; returns the exit code: 0 fine, 1 a slowdown, 3 nothing comparable."""
    check_json(json_file)
    if values["device"] not in ("auto", "cpu", "cuda"):
        raise UsageError(f"unknown device {values['device']!r}; use cpu, cuda or auto")
    folders = [bool(name) and journal.exists(Path(name).expanduser()) for name in (base, head)]
    if all(folders):
        return _journals(Path(base).expanduser(), Path(head).expanduser(), values, json_file)
    return _revisions(base, head, values, json_file, any(folders))


def _revisions(
    base: str, head: str, values: dict[str, Any], json_file: str | None, folder: bool
) -> int:
    from harness.diff import revisions, rows
    from harness.diff.session import make_session
    from harness.profile import load_profile
    from suites.bench.options import journal_folder, selection

    journal = journal_folder(values["journal"])
    chosen = selection({**values, "option": []})
    profile = values["profile"] or DEFAULT_PROFILE
    load_profile(profile, "cpu")  # a mistake is said before anything is checked out
    root = revisions.repository()
    try:
        sides = [
            revisions.find(root, label, name) for label, name in (("base", base), ("head", head))
        ]
    except UsageError:
        if not folder:
            raise
        raise UsageError(
            f"given {base!r} and {head!r}, one of them a folder; "
            "expected two revisions or two journal folders"
        ) from None
    out = console()
    if sides[0].requirements != sides[1].requirements:
        _say(out, "the constraints of the two revisions differ: installing one environment each")
    with revisions.checked_out(root, *sides) as (before, after):
        session = make_session(before, after, profile, values["device"], chosen)
        _say(out, _plan_line(session, journal))
        if session.cases:
            session.measure(journal, _on_block(out, session.profile.blocks))
    found = rows.measured(session.records, session.cases, session.new, session.gone)
    title = f"{after.short} against {before.short}"
    says = rows.closing(found, before.short, after.short)
    extra = {
        "base": {"given": before.given, "commit": before.commit},
        "head": {"given": after.given, "commit": after.commit},
        "fingerprint": dict(session.fingerprints["head"]),
        "run": session.id,
    }
    return _conclude(out, found, title, [says], json_file, extra, _seconds)


def _plan_line(session: Session, journal: Path) -> str:
    f = session.fingerprints["head"]
    blocks = session.profile.blocks
    apart = [n for n in f if f[n] != session.fingerprints["base"].get(n)]
    more = f"; the environments differ in {', '.join(apart)}" if apart else ""
    return (
        f"{f['model']} ({f['device']}, {f['threads']} CPU threads), torch {f['torch']}: "
        f"{session.head.short} against {session.base.short}, {len(session.cases)} cases in "
        f"{blocks} blocks, {3 * len(session.cases) * blocks} measurements (the base twice: the A/A "
        f"control); journal {journal}{more}"
    )


def _on_block(out: Console, blocks: int) -> Callable[[int, float], None]:
    from suites.bench.display import duration

    def tell(done: int, seconds: float) -> None:
        if done < blocks:
            left = duration(seconds / done * (blocks - done))
            _say(out, f"block {done} of {blocks} done after {duration(seconds)}, about {left} left")

    return tell


def _journals(base: Path, head: Path, values: dict[str, Any], json_file: str | None) -> int:
    from harness.diff import journals, rows
    from harness.profile import load_profile

    meaningless = [f"--{name}" for name in _MEASURING if values[name]]
    if meaningless:
        raise UsageError(
            f"{', '.join(meaningless)} given with two journals, where nothing is measured; "
            "leave it out, or give two revisions"
        )
    before, after, notes = _same_device(base, head, values["device"])
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
    return _conclude(out, found, title, lines, json_file, extra, _times_baseline)


def _same_device(
    base: Path, head: Path, kind: str
) -> tuple[DeviceRecords, DeviceRecords, list[str]]:
    """The newest device that both journals have times of, and what must be said of the choice.

    Raises
    ------
    UsageError
        If a journal holds no times, or no device is in both: naming the differing fields.
    """
    from harness.diff.journals import differing
    from reports.core.source import find

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
        fields = differing(timed[0][0].fingerprint, timed[1][0].fingerprint)
        raise UsageError(
            f"{base} and {head} were measured on different devices, which are not compared; they "
            f"differ in {', '.join(fields)}"
        )
    if len(timed[0]) > 1 or len(timed[1]) > 1:
        notes.append(f"a journal holds several devices; compared on {shared[0][0].title}")
    return *shared[0], notes


def _conclude(
    out: Console, found: Sequence[Row], title: str, lines: Sequence[str], json_file: str | None,
    extra: Mapping[str, Any], cell: Callable[[float], str],
) -> int:  # fmt: skip
    from harness.diff.rows import exit_code

    if found:
        out.print(_table(found, title, cell))
    for line in lines:
        _say(out, line)
    code = exit_code(found)
    write_json(
        json_file,
        {**extra, "rows": [asdict(r) for r in found], "says": list(lines), "exit_code": code},
    )
    return code


def _table(found: Sequence[Row], title: str, cell: Callable[[float], str]) -> Table:
    table = Table(
        title=escape(title), title_justify="left", pad_edge=False, box=None, header_style="bold"
    )
    table.add_column("case", overflow="fold", min_width=22)
    for column in ("base", "head", "ratio", "p (Holm)", "noise"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in found:
        colour = _COLOURS.get(row.verdict, "dim")
        table.add_row(
            escape(row.case),
            cell(row.base),
            cell(row.head),
            str(row.ratio) if row.ratio else "",
            "" if math.isnan(row.adjusted) else f"{row.adjusted:.2g}",
            "" if math.isinf(row.floor) else f"{row.floor - 1:.1%}",
            f"[{colour}]{row.verdict}[/]" + (f" {escape(row.detail)}" if row.detail else ""),
        )
    return table


def _seconds(value: float) -> str:
    from suites.bench.display import time_text

    return time_text(value)


def _times_baseline(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3g}x"


def _say(out: Console, text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)
