"""``python -m suites.programs.goals``: measure what is missing, judge it, print the table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from harness.cli.output import duration, say, steps
from harness.errors import UsageError
from harness.measure import blocks, device
from harness.profile import Profile
from harness.registry import Registry
from suites.programs.command import application, console, finish
from suites.programs.goals import accuracy, table
from suites.programs.goals.goal import DEVICES, load
from suites.programs.goals.judge import RESULTS, Held, judge_all, read_folder
from suites.programs.goals.plan import Planned, planned, registry, sessions

PURPOSE = "goals"

app = application()


class Work:
    """The goals of one device that is here: what is to be measured, and what is already."""

    def __init__(
        self,
        fingerprint: dict[str, Any],
        plans: Sequence[Planned],
        profile: Profile,
        known: Registry,
        folder: Path,
    ) -> None:
        self.fingerprint, self.profile, self.folder = fingerprint, profile, folder
        self.sessions = sessions(plans, profile, known, folder, fingerprint)
        accurate = [p.goal for p in plans if p.goal.kind == accuracy.KIND and not p.missing]
        here = [goal for goal in accurate if goal.device == fingerprint["device"]]
        self.accuracies = accuracy.Accuracies(here, known, folder, fingerprint)

    def missing(self) -> int:
        """Measurements that are still to be done."""
        return sum(one.missing() for one in self.sessions) + len(self.accuracies.missing())

    def plan_line(self) -> str:
        """What will be done, and how long it takes as far as the journal tells."""
        f = self.fingerprint
        total = sum(len(block) for s in self.sessions for block in s.tasks())
        total += len(self.accuracies.goals)
        left = [s.predict() for s in self.sessions if s.missing()]
        known = [seconds for seconds in left if seconds is not None]
        long = "" if len(known) < len(left) or not left else f", about {duration(sum(known))}"
        return (
            f"{f['model']} ({f['device']}), torch {f['torch']}: {len(self.sessions)} sizes in "
            f"{self.profile.blocks} blocks, {total} measurements, {self.missing()} of them "
            f"missing{long}; journal {self.folder}"
        )

    def measure(self, out: Console) -> None:
        """Do what is missing in fresh interpreters, as ``attnbench bench`` does, with a bar."""
        head = {"environment": device.environment(), "purpose": PURPOSE}
        with steps(out, PURPOSE, self.missing()) as done:
            self.accuracies.run(head, self.profile.limit_seconds, done)
            for session in self.sessions:
                if session.missing():
                    blocks.run(session, lambda step, record: done(), head)

    def held(self) -> Held:
        """What the journal holds now, by today's code on this machine."""
        records = [r for s in self.sessions for r in s.records()]
        return Held(self.fingerprint, [*records, *self.accuracies.records().values()])


def _fingerprints(asked: str, plans: Sequence[Planned], out: Console) -> list[dict[str, Any]]:
    """Fingerprints of the goals' devices that are asked for and are here."""
    if asked not in (*DEVICES, "auto"):
        raise UsageError(f"--device: given {asked!r}; expected auto, {', '.join(DEVICES)}")
    found = []
    for name in dict.fromkeys(plan.goal.device for plan in plans):
        if asked not in (name, "auto"):
            continue
        try:
            found.append(device.device_fingerprint(name))
        except UsageError as reason:
            if asked == name:
                raise
            say(out, f"goals of {name} are not measured: {reason}")
    return found


def _dry(out: Console, plans: Sequence[Planned], works: Sequence[Work]) -> None:
    for plan in plans:
        say(out, f"{plan.goal.id}: {plan.goal.what}; {table.bound_text(plan.goal) or 'shown'}")
        for case in plan.cases:
            say(out, f"  {case.id}")
        if plan.missing:
            say(out, f"  missing: {plan.missing}")
    for work in works:
        say(out, work.plan_line())


@app.command()
def main(
    only: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="a goal; may be repeated")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--blocks", help="fresh interpreters of each size")
    ] = None,
    journal: Annotated[str, typer.Option(metavar="DIR")] = "results/goals",
    given: Annotated[
        str, typer.Option("--from", metavar="DIR", help="judge these records, measure nothing")
    ] = "",
    asked: Annotated[
        str, typer.Option("--device", help="auto: all that are here; cpu or cuda")
    ] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="the cases; measure nothing")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="the table of docs/results")] = False,
) -> None:
    """Measure the goals of performance and say met, missed or undecided, on one thread.

    Killed and started again it goes on where it was. Exit code 1: something could not be measured.
    """
    out = console(markdown)

    def command() -> int:
        if count is not None and count < 1:
            raise UsageError(f"--blocks: given {count}; expected at least 1")
        goals, known = load(), registry()
        plans = planned(goals.chosen(only or ()), goals.profiles, known)
        if given:
            held, warnings = read_folder(Path(given), plans)
            for warning in warnings:
                print(f"goals: {warning}", file=sys.stderr)
        else:
            works = []
            for found in _fingerprints(asked, plans, out):
                profile = goals.profiles[found["device"]]
                profile = replace(profile, blocks=count or profile.blocks)
                works.append(Work(found, plans, profile, known, Path(journal)))
            if dry_run:
                _dry(out, plans, works)
                return 0
            for work in works:
                say(out, work.plan_line())
                try:
                    work.measure(out)
                except KeyboardInterrupt:
                    say(out, f"stopped; what is finished is in {journal}: the same command goes on")
                    raise
            held = {str(work.fingerprint["device"]): work.held() for work in works}
        results = judge_all(plans, held, known.mechanisms)
        if markdown:
            print(table.markdown(results, held))
        else:
            table.print_results(out, results, held)
        return int(any(result.verdict not in RESULTS for result in results))

    finish("goals", command)


if __name__ == "__main__":
    app()
