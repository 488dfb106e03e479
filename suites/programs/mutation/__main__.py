"""``python -m suites.programs.mutation [PACKAGE ...]``: score the checks by mutants noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from harness.errors import UsageError
from suites.programs.command import application, bar, console, finish, say
from suites.programs.mutation import equivalents
from suites.programs.mutation.draw import Mutant, in_order, sample
from suites.programs.mutation.equivalents import Equivalent
from suites.programs.mutation.run import baseline, control, run
from suites.programs.mutation.score import Score, print_mutant, print_table
from suites.programs.mutation.store import Kept, Store
from suites.programs.mutation.tests import test_files
from suites.programs.mutation.units import Unit, select, units

app = application()


def _measured(out: Console, chosen: Sequence[Unit], workers: int) -> list[Any]:
    """Run all checks on the code as it is; tell of those that fail."""
    with bar(out) as progress:
        task = progress.add_task("without mutation", total=len(chosen) + len(test_files()))
        ran, failed = baseline(chosen, workers, lambda: progress.advance(task), kept=Kept())
    for line in failed:
        say(out, f"left out, it fails without any mutation: {line}", style="yellow")
    return ran


def _only(
    out: Console, id: str, seed: int, workers: int, limit_s: float, entries: list[Equivalent]
) -> int:
    """Run one mutant again and show it."""
    [unit] = select([id.partition(":")[0]])
    mutant = next((m for m in in_order(unit, seed) if m.id == id), None)
    if mutant is None:
        raise UsageError(f"no mutant {id!r} of {unit.name}: the code has changed since")
    rows: list[Any] = []
    run([mutant], _measured(out, [unit], workers), Store(), 1, limit_s, rows.append)
    print_mutant(out, mutant, rows[0])
    known = equivalents.declared(mutant, entries)
    if known is not None:
        say(out, f"  declared equivalent: {known.reason}")
    survived = rows[0]["verdict"] == "survived"
    # One declared equivalent must survive, any other must not.
    return int(survived == (known is None))


def _score(
    out: Console,
    chosen: Sequence[Unit],
    count: int,
    seed: int,
    workers: int,
    limit_s: float,
    entries: list[Equivalent],
) -> int:
    """Run what is missing of the samples, print table and survivors."""
    equivalents.refuse_stale(entries, chosen)
    store = Store()
    drawn: dict[str, list[Mutant]] = {}
    with bar(out) as progress:
        for unit in progress.track(chosen, description="drawing"):
            drawn[unit.name] = sample(unit, count, seed)
    tried = {
        name: [m for m in mutants if equivalents.declared(m, entries) is None]
        for name, mutants in drawn.items()
    }
    found = {m.id: store.find(m) for mutants in tried.values() for m in mutants}
    todo = [m for mutants in tried.values() for m in mutants if found[m.id] is None]
    if todo:
        missing = {m.site.unit for m in todo}
        touched = [unit for unit in chosen if unit.name in missing]
        ran = _measured(out, touched, workers)
        control(touched, ran, workers, limit_s)
        with bar(out) as progress:
            task = progress.add_task("mutants", total=len(todo))

            def on_row(row: Any) -> None:
                found[row["id"]] = row
                progress.advance(task)

            run(todo, ran, store, workers, limit_s, on_row)
    scores = [
        Score(
            name,
            len(drawn[name]),
            len(drawn[name]) - len(mutants),
            Counter(found[m.id]["verdict"] for m in mutants),  # type: ignore[index]
        )
        for name, mutants in tried.items()
    ]
    for mutants in tried.values():
        for mutant in mutants:
            row = found[mutant.id]
            if row is not None and row["verdict"] == "survived":
                print_mutant(out, mutant, row)
    print_table(out, scores)
    return int(not all(score.enough for score in scores))


@app.command()
def main(
    packages: Annotated[list[str] | None, typer.Argument(help="packages; all if none")] = None,
    sample: Annotated[int, typer.Option(help="mutants per package, at most")] = 100,
    seed: Annotated[int, typer.Option(help="of the draw")] = 0,
    workers: Annotated[int, typer.Option(help="mutants at a time")] = 2,
    only: Annotated[str | None, typer.Option(help="run one mutant again, by its id")] = None,
    limit_s: Annotated[float, typer.Option(help="seconds beyond what the checks need")] = 20.0,
) -> None:
    """Put small faults into the mechanisms, and count those that the checks notice."""
    out = console(160)

    def command() -> int:
        for name, value in (("--sample", sample), ("--workers", workers), ("--limit-s", limit_s)):
            if value <= 0:
                raise UsageError(f"{name}: given {value}; expected a number above 0")
        entries = equivalents.read()
        equivalents.refuse_unknown_packages(entries, units())
        if only:
            return _only(out, only, seed, workers, limit_s, entries)
        chosen = select(packages or [])
        return _score(out, chosen, sample, seed, workers, limit_s, entries)

    finish("mutants", command)


if __name__ == "__main__":
    app()
