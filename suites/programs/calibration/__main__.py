"""``python -m suites.programs.calibration``: measure what is missing, judge it, print the table."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from harness.cli.output import say, steps
from harness.errors import UsageError
from harness.measure.device import device_fingerprint
from suites.programs.calibration.plan import CONDITIONS, Goal, Plan, short, standard
from suites.programs.calibration.run import load, missing, run
from suites.programs.calibration.score import ATTNBENCH, ONE_RUN, POOLED, Score, Share, score
from suites.programs.command import application, console, finishing, print_judged

app = application()
JUDGES = (ATTNBENCH, ONE_RUN, POOLED)
SAYS = {"same": "equal work (A/A): false alarms"}


def _wanted(goal: Goal | None, total: int) -> str:
    if goal is None:
        return ""
    if goal.at_most is not None:
        return f"at most {goal.at_most * total:g} of {total}"
    return f"at least {goal.at_least:.0%}"


def _shown(share: Share) -> str:
    if not share.total:
        return "-"
    return f"{share.count} of {share.total} ({share.count / share.total:.1%})"


def rows(score: Score) -> list[list[str]]:
    """Condition, what is counted, the goal, and one column per judge."""
    by = {(s.condition, s.arm, s.judge): s for s in score.shares}
    pairs = dict.fromkeys((s.condition, s.arm) for s in score.shares)
    return [
        [
            condition,
            SAYS.get(arm, f"{arm}: found"),
            _wanted(by[condition, arm, ATTNBENCH].goal, by[condition, arm, ATTNBENCH].total),
            *(_shown(by[condition, arm, judge]) for judge in JUDGES),
        ]
        for condition, arm in pairs
    ]


HEADS = ["condition", "", "goal", *JUDGES]


def sentences(score: Score) -> list[str]:
    """What was measured, how noisy it was, and what is missing."""
    plan = score.plan
    said = [
        f"{plan.comparisons} comparisons of each kind in {plan.blocks} blocks; {plan.seconds:g} s "
        f"and at least {plan.rounds} samples per arm and block, one thread; "
        f"{len(plan.problems)} different works."
    ]
    said += [
        f"{n.condition}: load {n.load[0]:.1f} to {n.load[1]:.1f}; the arms waited for a core "
        f"{n.waited:.1%} of the time; median noise floor {n.spread:.1%}."
        for n in score.noise
    ]
    for count, shares in score.fewer.items():
        for condition in dict.fromkeys(s.condition for s in shares if s.total):
            told = [
                f"{'equal work' if s.arm == 'same' else s.arm} {s.count / s.total:.1%}"
                for s in shares
                if s.condition == condition
            ]
            each = f"of {shares[0].total:,} each"
            said.append(f"Of {count} blocks, {condition}, told apart: {', '.join(told)}; {each}.")
    said += [
        f"{condition}: {count} comparisons are not complete and not counted; start again."
        for condition, count in score.missing.items()
        if count
    ]
    return said


def _conditions(text: str) -> list[str]:
    chosen = [c.strip() for c in text.split(",") if c.strip()]
    if not chosen or set(chosen) - set(CONDITIONS):
        raise UsageError(f"--conditions: given {text!r}; expected some of {','.join(CONDITIONS)}")
    return list(dict.fromkeys(chosen))


def _measure(out: Console, plan: Plan, conditions: list[str], folder: Path) -> bool:
    """Measure what is missing; returns whether all of it could be."""
    fingerprint = device_fingerprint("cpu")
    todo = missing(plan, conditions, folder, fingerprint)
    wanted = plan.blocks * plan.repeats * len(conditions)
    say(out, f"{wanted} passages, {wanted - len(todo)} of them already there; journal {folder}")
    failures: list[str] = []
    with steps(out, "calibrating", len(todo)) as done:

        def on_passage(record: Mapping[str, Any]) -> None:
            done()
            if record["status"] != "ok":
                failures.append(record["detail"])

        if todo:
            run(plan, todo, folder, fingerprint, on_passage)
    for detail in failures[:5]:
        say(out, f"not measured: {detail}", "red")
    return not failures


@app.command()
@finishing("calibrate")
def main(
    comparisons: Annotated[int, typer.Option(help="of each kind, under each condition")] = 200,
    blocks: Annotated[int, typer.Option(help="fresh interpreters")] = 15,
    conditions: Annotated[str, typer.Option(help="joined by a comma")] = ",".join(CONDITIONS),
    journal: Annotated[str, typer.Option(metavar="DIR")] = "results/calibration",
    quick: Annotated[bool, typer.Option("--quick", help="a self-test in seconds")] = False,
    given: Annotated[
        str, typer.Option("--from", metavar="DIR", help="judge these records, measure nothing")
    ] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="the table of docs/results")] = False,
) -> int:
    """Prove the measuring: no difference where there is none, 10 % and 5 % found where they are.

    Killed and started again it goes on where it was. Exit code 1: the goals are not met.
    """
    out = console(markdown)
    plan_id, measured = "", True
    if not given:
        plan = short() if quick else standard(comparisons, blocks)
        plan_id = plan.id
        measured = _measure(out, plan, _conditions(conditions), Path(journal))
    plan, records, made, warnings = load(Path(given or journal), plan_id)
    for warning in warnings:
        print(f"calibrate: {warning}", file=sys.stderr)
    result = score(plan, records)
    said, few = [*sentences(result), made], "blocks" if quick else ""
    met = result.reached
    print_judged(out, HEADS, rows(result), said, met=met, few=few, markdown=markdown)
    return int(not measured or not (result.reached or quick))


if __name__ == "__main__":
    app()
