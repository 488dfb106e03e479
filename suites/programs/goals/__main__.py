"""``python -m suites.programs.goals``: measure what is missing, judge it, print the table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from harness.cli.output import duration
from harness.errors import UsageError
from harness.json_file import check_json, write_json
from harness.measure.device import device_fingerprint
from harness.options import read
from harness.options.groups import JournalFolder
from harness.registry import Registry
from suites.programs.command import application, bar, console, finish, say
from suites.programs.goals import table
from suites.programs.goals.goal import DEVICES, FILE, Goals, instead, load
from suites.programs.goals.judge import MISSED, RESULTS, Result
from suites.programs.goals.measure import accuracies, accuracies_missing, run, run_accuracies
from suites.programs.goals.plan import Planned, planned, profile_of, registry, sessions
from suites.programs.goals.store import Held, held_by, judge_all, read_folder

app = application()


def _folder(text: str) -> Path:
    """A journal's folder."""
    return read(JournalFolder, {"journal": text}).journal


class _Work:
    """The goals of one device that is here: what is to be measured, and what is already."""

    def __init__(
        self,
        fingerprint: dict[str, Any],
        goals: Goals,
        plans: Sequence[Planned],
        known: Registry,
        folder: Path,
        blocks: int | None,
    ) -> None:
        self.fingerprint = fingerprint
        self.profile = profile_of(goals.measuring, fingerprint["device"], blocks)
        self.sessions = sessions(plans, self.profile, known, folder, self.fingerprint)
        there = [plan.goal for plan in plans if not plan.missing]
        self.accuracies = accuracies(there, known, self.fingerprint)
        self.known, self.folder = known, folder

    def missing(self) -> int:
        """Measurements that are still to be done."""
        errors = accuracies_missing(self.accuracies, self.folder)
        return sum(session.missing() for session in self.sessions) + len(errors)

    def plan_line(self) -> str:
        """What will be done, and how long it takes as far as the journal tells."""
        f, missing = self.fingerprint, self.missing()
        total = sum(len(block) for s in self.sessions for block in s.tasks()) + len(self.accuracies)
        left = [s.predict() for s in self.sessions if s.missing()]
        known = [seconds for seconds in left if seconds is not None]
        long = "" if len(known) < len(left) or not left else f", about {duration(sum(known))}"
        return (
            f"{f['model']} ({f['device']}), torch {f['torch']}: {len(self.sessions)} sizes in "
            f"{self.profile.blocks} blocks, {total} measurements, {missing} of them missing{long}; "
            f"journal {self.folder}"
        )

    def measure(self, out: Console) -> None:
        """Do what is missing, with a bar."""
        with bar(out, remaining=False) as progress:
            task = progress.add_task("goals", total=self.missing())

            def on_step(words: str) -> None:
                progress.update(task, advance=1, description=words)

            errors = accuracies_missing(self.accuracies, self.folder)
            limit = self.profile.limit_seconds
            run_accuracies(errors, self.known, self.folder, self.fingerprint, limit, on_step)
            todo = [session for session in self.sessions if session.missing()]
            for done, session in enumerate(todo, 1):
                run(session, on_step)
                if not out.is_terminal:
                    say(out, f"{done} of {len(todo)} sizes done")

    def held(self) -> Held:
        """What is there now."""
        return held_by(self.sessions, self.accuracies, self.folder, self.fingerprint)


def _devices(asked: str, plans: Sequence[Planned], out: Console) -> list[dict[str, Any]]:
    """Fingerprints of the goals' devices that are asked for and are here."""
    if asked not in (*DEVICES, "auto"):
        raise UsageError(f"--device: given {asked!r}; expected auto, {', '.join(DEVICES)}")
    found = []
    for device in dict.fromkeys(plan.goal.device for plan in plans):
        if asked not in (device, "auto"):
            continue
        try:
            found.append(device_fingerprint(device))
        except UsageError as reason:
            if asked == device:
                raise
            say(out, f"goals of {device} are not measured: {reason}")
    return found


def _dry(out: Console, plans: Sequence[Planned], works: Sequence[_Work]) -> None:
    for plan in plans:
        say(out, f"{plan.goal.id}: {plan.goal.what}; {table.bound_text(plan.goal) or 'shown'}")
        for case in plan.cases:
            say(out, f"  {case.id}")
        if plan.missing:
            say(out, f"  missing: {plan.missing}")
    for work in works:
        say(out, work.plan_line())


def _measured(out: Console, works: Sequence[_Work], folder: Path) -> dict[str, Held]:
    for work in works:
        say(out, work.plan_line())
        try:
            work.measure(out)
        except KeyboardInterrupt:
            say(out, f"stopped; what is finished is in {folder}: the same command goes on")
            raise
    return {str(work.fingerprint["device"]): work.held() for work in works}


def _code(results: Sequence[Result], strict: bool) -> int:
    """1 where something could not be measured, or with --strict was missed."""
    failed = any(result.verdict not in RESULTS for result in results)
    return int(failed or (strict and any(result.verdict == MISSED for result in results)))


def command(values: dict[str, Any]) -> int:
    """Do what the options say; returns the exit code.

    Raises
    ------
    UsageError
        For an option that can't be.
    """
    check_json(values["json_file"])
    out = console(200, table_alone=values["markdown"])
    goals, known = load(Path(values["goals"])), registry()
    chosen = instead(goals.chosen(values["only"]), values["instead"])
    plans = planned(chosen, goals.measuring, known)
    if values["given"]:
        held, warnings = read_folder(_folder(values["given"]), plans)
        for warning in warnings:
            print(f"goals: {warning}", file=sys.stderr)
    else:
        folder = _folder(values["journal"])
        works = [
            _Work(fingerprint, goals, plans, known, folder, values["blocks"])
            for fingerprint in _devices(values["device"], plans, out)
        ]
        if values["dry_run"]:
            _dry(out, plans, works)
            return 0
        held = _measured(out, works, folder)
    results = judge_all(plans, held, known.mechanisms)
    write_json(values["json_file"], table.as_json(results, held))
    if values["markdown"]:
        print(table.markdown(results, held))
    else:
        table.print_results(out, results, held)
    return _code(results, values["strict"])


@app.command()
def main(
    only: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="a goal; may be repeated")
    ] = None,
    blocks: Annotated[int | None, typer.Option(help="fresh interpreters of each size")] = None,
    journal: Annotated[str, typer.Option(metavar="DIR")] = "results/goals",
    given: Annotated[
        str, typer.Option("--from", metavar="DIR", help="judge these records, measure nothing")
    ] = "",
    device: Annotated[str, typer.Option(help="auto: all that are here; cpu or cuda")] = "auto",
    instead_of: Annotated[
        list[str] | None,
        typer.Option("--instead", metavar="OLD=NEW", help="another implementation; repeatable"),
    ] = None,
    goals: Annotated[str, typer.Option(metavar="FILE", help="other goals")] = str(FILE),
    strict: Annotated[bool, typer.Option("--strict", help="exit code 1 on a miss")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="the cases; measure nothing")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="the table of docs/results")] = False,
    json_file: Annotated[str | None, typer.Option("--json", metavar="FILE")] = None,
) -> None:
    """Measure the goals of performance and say met, missed or undecided, on one thread.

    Killed and started again it goes on where it was. Exit code 1: something could not be measured.
    """
    values = {
        "only": only or [],
        "blocks": blocks,
        "journal": journal,
        "given": given,
        "device": device,
        "instead": instead_of or [],
        "goals": goals,
        "strict": strict,
        "dry_run": dry_run,
        "markdown": markdown,
        "json_file": json_file,
    }
    finish("goals", lambda: command(values))


if __name__ == "__main__":
    app()
