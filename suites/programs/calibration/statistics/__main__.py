"""``python -m suites.programs.calibration.statistics``: draw what is missing, judge, print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from harness.errors import UsageError
from suites.programs.calibration.statistics.conditions import conditions
from suites.programs.calibration.statistics.run import Chunk, chunks, done, run
from suites.programs.calibration.statistics.score import HEADS, Row, as_json, markdown, score

DRAWS, QUICK = 100_000, 400

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _draw(out: Console, wanted: list[Chunk], folder: Path) -> None:
    known = done(folder)
    todo = [chunk for chunk in wanted if chunk.key not in known]
    out.print(
        f"{len(wanted)} chunks, {len(wanted) - len(todo)} of them already there; journal {folder}",
        markup=False, highlight=False, soft_wrap=True,
    )  # fmt: skip
    if not todo:
        return
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=out, transient=True, disable=not out.is_terminal
    ) as bar:
        task = bar.add_task("simulating", total=len(todo))
        for _ in run(todo, folder):
            bar.advance(task)


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
    # The table of docs/results alone may go to standard output.
    out = Console(stderr=as_markdown)
    out = out if out.is_terminal else Console(width=160, stderr=as_markdown)
    try:
        if draws < 1:
            raise UsageError(f"--draws: given {draws}; expected 1 or more")
        wanted = chunks(conditions(), QUICK if quick else draws)
        _draw(out, wanted, Path(journal))
        rows = score(wanted, done(Path(journal)))
        if json_file is not None:
            _write(json_file, rows)
        if as_markdown:
            print(markdown(rows))
        else:
            _print(out, rows, quick)
        code = int(not (quick or all(row.met for row in rows)))
    except UsageError as error:
        print(f"calibrate: {error}", file=sys.stderr)
        code = 2
    raise typer.Exit(code)


def _write(path: str, rows: list[Row]) -> None:
    try:
        Path(path).write_text(json.dumps(as_json(rows), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write --json {path}: {error.strerror}") from None


if __name__ == "__main__":
    app()
