"""``python -m suites.programs.calibration.statistics``: draw what is missing, judge, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import say, steps
from harness.errors import UsageError
from suites.programs.calibration.statistics.run import (
    HEADS,
    chunks,
    conditions,
    done,
    drawn,
    run,
    score,
)
from suites.programs.command import (
    application,
    console,
    finishing,
    print_judged,
)

DRAWS, QUICK = 100_000, 400

app = application()


@app.command()
@finishing("calibrate")
def main(
    draws: Annotated[int, typer.Option(help="of each condition")] = DRAWS,
    journal: Annotated[str, typer.Option(metavar="DIR")] = "results/calibration-statistics",
    quick: Annotated[bool, typer.Option("--quick", help="a self-test in seconds")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="the table of docs/results")] = False,
) -> int:
    """Prove the statistics: false positives, coverage and power as they are said to be.

    Killed and started again it goes on where it was. Exit code 1: the goals are not met.
    """
    out, folder = console(markdown), Path(journal)
    if draws < 1:
        raise UsageError(f"--draws: given {draws}; expected 1 or more")
    wanted = chunks(conditions(), QUICK if quick else draws)
    known = done(folder)
    todo = [chunk for chunk in wanted if chunk.key not in known]
    there = len(wanted) - len(todo)
    say(out, f"{len(wanted)} chunks, {there} of them already there; journal {folder}")
    if todo:
        with steps(out, "simulating", len(todo)) as step:
            for _ in run(todo, folder):
                step()
    records = done(folder)
    rows = score(wanted, records)
    met, cells = all(row.met for row in rows), [row.cells for row in rows]
    few = "draws" if quick else ""
    told = [drawn(records[c.key] for c in wanted if c.key in records)]
    print_judged(out, HEADS, cells, told, met=met, few=few, markdown=markdown)
    return int(not (quick or met))


if __name__ == "__main__":
    app()
