"""``python -m suites.programs.goals``: measure what is missing, judge it, print the table."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from harness.cli.output import bare_table, duration, say, steps
from harness.errors import UsageError
from harness.measure import blocks, device
from harness.profile import Profile
from harness.registry import Registry
from harness.stats import Interval, ratio_text
from reports.core import words
from reports.core.words import bytes_text, known
from suites.programs.command import application, console, finishing, markdown_table
from suites.programs.goals import accuracy
from suites.programs.goals.judge import (
    MET,
    MISSED,
    NOT_HERE,
    RESULTS,
    SHOWN,
    UNDECIDED,
    UNMEASURED,
    Against,
    Held,
    Result,
    bounded_by,
    judge_all,
    read_folder,
)
from suites.programs.goals.plan import DEVICES, Goal, Planned, load, planned, registry, sessions

PURPOSE = "goals"

app = application()

HEADS = (
    "goal",
    "what",
    "measured : against",
    "bound",
    "found",
    "verdict",
    "off",
    "ops",
    "of peak",
    "memory",
    "margin",
    "prototype",
)
NOBODY = Against("", Interval(math.nan, math.nan, math.nan, 0), 1.0, "")
UNSEEN = (NOT_HERE, UNMEASURED)
_COLOURS = {MET: "green", MISSED: "red", UNDECIDED: "yellow", SHOWN: "cyan"}


def number_text(goal: Goal, value: float) -> str:
    """A bound or a prototype's figure, in the goal's unit."""
    if goal.kind == "accuracy":
        return f"{value:.1e}"
    if goal.kind == "growth":
        return f"n^{value:g}"
    return f"{value:g}x{' ops' * (goal.kind == 'work')}"


def bound_text(goal: Goal) -> str:
    """``<= 1.2x``."""
    if goal.bound is None:
        return "fits" if goal.kind == "fits" else ""
    return f"{'<=' if goal.at_least is None else '>='} {number_text(goal, goal.bound)}"


def found_text(goal: Goal, one: Against | None, verdict: str) -> str:
    """``1.24x [1.20, 1.28]``."""
    if one is None:
        return "fits" if goal.kind == "fits" and verdict == MET else ""
    if goal.kind == "accuracy":
        return f"{one.value.ratio:.1e}"
    text = str(one.value)
    return f"n^{text.replace('x', '')}" if goal.kind == "growth" else text


def _cells(result: Result, one: Against | None, first: bool) -> list[str]:
    goal, beside = result.goal, one or NOBODY
    lengths = f", n = {', '.join(f'{n:,}' for n in goal.lengths)}" if goal.lengths else ""
    share, its = (words.number_text(part, ".0%") for part in (result.share, beside.share))
    ratio = known(beside.memory_ratio, ratio_text)
    return [
        goal.id if first else "",
        goal.what + lengths if first else "",
        " : ".join(filter(None, (goal.measured, beside.baseline))),
        bound_text(goal),
        found_text(goal, one, result.verdict),
        result.verdict,
        # beyond the bound (+) or within it (-)
        words.number_text(100 * result.distance, "+.0f", " %") if first else "",
        known(beside.operations_ratio, ratio_text),
        " : ".join(filter(None, (share, its))) if beside.baseline else share,
        " ".join(filter(None, (known(result.peak_bytes, bytes_text), ratio))),
        words.number_text(result.margin, ".3g", "x"),
        "" if goal.prototype is None else number_text(goal, goal.prototype),
    ]


def rows(results: Sequence[Result]) -> list[list[str]]:
    """One line for each goal, by its worst baseline; of what is only shown one for each.

    None for those not measured, or of a device that is not here: `sentences` names them.
    """
    lines = []
    for result in results:
        if result.verdict in UNSEEN:
            continue
        shown: Sequence[Against | None] = result.against if result.verdict == SHOWN else ()
        for i, one in enumerate(shown or (result.worst,)):
            lines.append(_cells(result, one, i == 0))
    return lines


def remarks(results: Sequence[Result]) -> list[str]:
    """Below the table: what bounds a goal that was not met, and why a reading is not there.

    Goals of which the same is said share a line.
    """
    lines: dict[str, list[str]] = {}
    for result in results:
        says = [result.detail] if result.detail else []
        if result.verdict in (MISSED, UNDECIDED) and (bound := bounded_by(result)):
            says.append(bound)
        one = result.worst
        if result.verdict == UNDECIDED and one is not None and not one.value.known:
            says.append("one block gives no interval")
        elif result.verdict == UNDECIDED and one is not None and one.floor > 1:
            floor = f"{100 * (one.floor - 1):.1f} %" if math.isfinite(one.floor) else "not known"
            says.append(f"noise floor {floor}")
        says += result.lacking
        if says and result.verdict not in UNSEEN:
            lines.setdefault(f"{result.verdict}: {'; '.join(says)}", []).append(result.goal.id)
    return [f"{', '.join(ids)}: {said}" for said, ids in lines.items()]


def sentences(results: Sequence[Result], held: Mapping[str, Held]) -> list[str]:
    """How many goals ended how, which wait for another device, and where they were measured."""
    counts = Counter(result.verdict for result in results)
    said = [", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) + "."]
    elsewhere: dict[str, list[str]] = {}
    for result in results:
        if result.verdict == NOT_HERE:
            elsewhere.setdefault(result.detail, []).append(result.goal.id)
    said += [f"Not here ({why}): {', '.join(ids)}." for why, ids in elsewhere.items()]
    if missing := [result.goal.id for result in results if result.verdict == UNMEASURED]:
        said.append(f"Not measured: {', '.join(missing)}.")
    for where, one in held.items():
        f = one.fingerprint
        threads = ", one thread" if where == "cpu" else ""
        days = words.days(one.records)
        said.append(
            f"{f.get('model', where)} ({where}{threads}), torch {f.get('torch', '?')}; "
            f"up to {one.blocks} blocks; ratios with 95 % t-intervals over blocks"
            f"{'; commits ' * bool(one.commits)}{', '.join(one.commits)}"
            f"{'; measured ' * bool(days)}{days}."
        )
    return said


LEGEND = (
    "off: beyond the bound (+) or within it (-). ops: operations over the baseline's, by formulas. "
    "of peak: operations per second, of the session's best matrix product, ours : the baseline's. "
    "memory: our peak, and over the baseline's. margin: error budget over error at this size."
)


def print_results(out: Console, results: Sequence[Result], held: Mapping[str, Held]) -> None:
    """Print table, remarks and sentences."""
    table = bare_table()
    for head in HEADS:
        table.add_column(head, overflow="fold", no_wrap=head in ("bound", "found", "verdict"))
    verdict = HEADS.index("verdict")
    for line in rows(results):
        cells = [escape(cell) for cell in line]
        cells[verdict] = f"[{_COLOURS.get(line[verdict], 'bold red')}]{cells[verdict]}[/]"
        table.add_row(*cells)
    out.print(table)
    for text in [LEGEND, *remarks(results), *sentences(results, held)]:
        say(out, text)


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
        say(out, f"{plan.goal.id}: {plan.goal.what}; {bound_text(plan.goal) or 'shown'}")
        for case in plan.cases:
            say(out, f"  {case.id}")
        if plan.missing:
            say(out, f"  missing: {plan.missing}")
    for work in works:
        say(out, work.plan_line())


@app.command()
@finishing("goals")
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
) -> int:
    """Measure the goals of performance and say met, missed or undecided, on one thread.

    Killed and started again it goes on where it was. Exit code 1: something could not be measured.
    """
    out = console(markdown)
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
        print(markdown_table(HEADS, rows(results)), "", LEGEND, sep="\n")
        print(*(f"- {line}" for line in remarks(results)), *sentences(results, held), sep="\n")
    else:
        print_results(out, results, held)
    return int(any(result.verdict not in RESULTS for result in results))


if __name__ == "__main__":
    app()
