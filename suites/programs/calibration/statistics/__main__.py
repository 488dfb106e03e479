"""``python -m suites.programs.calibration.statistics``: draw what is missing, judge, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from harness.errors import UsageError
from harness.json_file import check_json, write_json
from suites.programs.calibration.statistics.conditions import conditions
from suites.programs.calibration.statistics.run import Chunk, chunks, done, run
from suites.programs.calibration.statistics.score import HEADS, Row, as_json, markdown, score
from suites.programs.command import application, bar, console, finish, say

DRAWS, QUICK = 100_000, 400

app = application()


def _draw(out: Console, wanted: list[Chunk], folder: Path) -> None:
    known = done(folder)
    todo = [chunk for chunk in wanted if chunk.key not in known]
    there = len(wanted) - len(todo)
    say(out, f"{len(wanted)} chunks, {there} of them already there; journal {folder}")
    if not todo:
        return
    with bar(out) as progress:
        task = progress.add_task("simulating", total=len(todo))
        for _ in run(todo, folder):
            progress.advance(task)


def _print(out: Console, rows: list[Row], quick: bool) -> None:
    table = Table(*HEADS)
    for row in rows:
        table.add_row(*row.cells)
    out.print(table)
    if quick:
        out.print("A self-test: so few draws prove nothing either way.")
    elif all(row.met for row in rows):
        out.print("[green]all goals met[/]")
    else:
        out.print("[red]goals not met[/]")


@app.command()
def main(
    draws: Annotated[int, typer.Option(help="of each condition")] = DRAWS,
    journal: Annotated[str, typer.Option(metavar="DIR")] = "results/calibration-statistics",
    quick: Annotated[bool, typer.Option("--quick", help="a self-test in seconds")] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="the table of docs/results")
    ] = False,
    json_file: Annotated[str | None, typer.Option("--json", metavar="FILE")] = None,
) -> None:
    """Prove the statistics: false positives, coverage and power as they are said to be.

    Killed and started again it goes on where it was. Exit code 1: the goals are not met.
    """
    out = console(160, table_alone=as_markdown)

    def command() -> int:
        if draws < 1:
            raise UsageError(f"--draws: given {draws}; expected 1 or more")
        check_json(json_file)
        wanted = chunks(conditions(), QUICK if quick else draws)
        _draw(out, wanted, Path(journal))
        rows = score(wanted, done(Path(journal)))
        write_json(json_file, as_json(rows))
        if as_markdown:
            print(markdown(rows))
        else:
            _print(out, rows, quick)
        return int(not (quick or all(row.met for row in rows)))

    finish("calibrate", command)


if __name__ == "__main__":
    app()
