"""``attnbench claims``: the ledger of published claims."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from harness.cli.output import console, say
from harness.json_file import write_json
from harness.options.measure import ClaimsOptions
from reports.claims.ledger import devices_of, ledger, made_on, score, score_by_machine, shown
from reports.claims.printed import load_all
from reports.claims.record import whose_text
from reports.claims.verdict import Verdict

COLOURS = {
    "reproduced": "green",
    "not reproduced": "red",
    "undecided": "yellow",
    "not testable here": "dim",
}
WIDTH = max(map(len, COLOURS))


def run_claims(options: ClaimsOptions) -> int:
    """Print every claim with its verdict and the score; 1 if an exact claim fails."""
    out = console()
    source = devices_of(str(options.journal))
    titles = {d.key: d.title for d in source.devices}
    tables = load_all()
    verdicts = ledger(source.devices, tables)
    say(out, source.says)
    for warning in source.warnings:
        say(out, f"journal: {warning}")
    for paper, table in tables.items():
        mine = [v for v in shown(verdicts) if v.claim.paper == paper]
        out.print()
        out.print(f"[bold]{escape(table['paper']['short'])}[/], {escape(table['paper']['venue'])}")
        for v in mine:
            print_verdict(out, v, made_on(v, source))
    out.print()
    for line in score_by_machine(verdicts, source):
        say(out, line)
    failed = [v for v in verdicts if v.failed_exactly]
    for v in failed:
        say(out, f"{v.id} fails: {v.reason}", "bold red")
    scores = {d.key: score(verdicts, d.key) for d in source.devices} or {"": score(verdicts)}
    write_json(
        options.json_file,
        {
            "published": source.published,
            "devices": titles,
            "score": scores,
            "failed": [v.id for v in failed],
            "claims": [v.as_json() for v in verdicts],
        },
    )
    return 1 if failed else 0


def print_verdict(out: Console, v: Verdict, machine: str) -> None:
    """The claim on a line, and below it what was found, what was published, and why."""
    colour = COLOURS[v.verdict]
    say(out, f"[{colour}]{v.verdict:{WIDTH}}[/] {escape(v.claim.statement)}", markup=True)
    where = f"on {machine}" if machine else ""
    parts = (
        f"found {v.measured}" if v.measured else "",
        f"published {v.published}" if v.published else "",
        f"wanted {v.wanted}" if v.wanted and v.measured else "",
        where,
        v.reason,
        v.claim.note,
        whose_text(v.claim) or "counted on another machine" * bool(v.told_on),
        v.direction,
        v.hardware,
        f"page {v.page} of the report" if v.page else "",
        f"records {' '.join(v.keys)}" if v.keys else "",
    )
    said = "; ".join(part.rstrip(".") for part in parts if part)
    say(out, f"{'':{WIDTH}} {said}", "dim")
