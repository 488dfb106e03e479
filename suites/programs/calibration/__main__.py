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
from suites.programs.calibration import table
from suites.programs.calibration.plan import CONDITIONS, Plan, short, standard
from suites.programs.calibration.run import load, missing, run
from suites.programs.calibration.score import score
from suites.programs.command import application, console, finish, print_judged

app = application()


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
) -> None:
    """Prove the measuring: no difference where there is none, 10 % and 5 % found where they are.

    Killed and started again it goes on where it was. Exit code 1: the goals are not met.
    """
    out = console(markdown)

    def command() -> int:
        plan_id, measured = "", True
        if not given:
            plan = short() if quick else standard(comparisons, blocks)
            plan_id = plan.id
            measured = _measure(out, plan, _conditions(conditions), Path(journal))
        plan, records, warnings = load(Path(given or journal), plan_id)
        for warning in warnings:
            print(f"calibrate: {warning}", file=sys.stderr)
        result = score(plan, records)
        if markdown:
            print(table.markdown(result))
        else:
            rows, sentences = table.rows(result), table.sentences(result)
            print_judged(
                out, table.HEADS, rows, sentences, met=result.reached, few="blocks" if quick else ""
            )
        return int(not measured or not (result.reached or quick))

    finish("calibrate", command)


if __name__ == "__main__":
    app()
