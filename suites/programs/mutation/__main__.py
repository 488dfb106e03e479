"""``python -m suites.programs.mutation [PACKAGE ...]``: score the checks by mutants noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from harness.cli.output import bare_table, say, steps
from harness.errors import UsageError
from suites.programs.command import application, console, finishing
from suites.programs.mutation.draw import (
    Equivalent,
    Mutant,
    Unit,
    declared,
    in_order,
    read,
    refuse_stale,
    sample,
    select,
)
from suites.programs.mutation.inside import test_files
from suites.programs.mutation.relevance import Ran
from suites.programs.mutation.run import Store, baseline, control, run

app = application()

WANTED = 0.9
FEWEST = 20
"""Of fewer a single survivor decides: such a package is judged with all others, not by itself."""
NOTICED = ("killed", "incompetent", "timeout", "oom", "crash")


@dataclass(frozen=True)
class Score:
    """What became of a unit's sample; those declared ``equivalent`` were not run.

    Of the ``verdicts`` of the others all of `NOTICED` but the first are without a check's finding.
    """

    unit: str
    sampled: int
    equivalent: int
    verdicts: Counter[str]

    @property
    def killed(self) -> int:
        """Noticed ones."""
        return sum(self.verdicts[verdict] for verdict in NOTICED)

    @property
    def share(self) -> float:
        """Killed ones of those that are not equivalent; 1 where there is none."""
        return self.killed / self.verdicts.total() if self.verdicts.total() else 1.0

    @property
    def enough(self) -> bool:
        """Whether the unit passes."""
        return self.share >= WANTED


def together(scores: Sequence[Score]) -> Score:
    """Of all units."""
    return Score(
        "all",
        sum(s.sampled for s in scores),
        sum(s.equivalent for s in scores),
        sum((s.verdicts for s in scores), Counter()),
    )


def passed(scores: Sequence[Score]) -> bool:
    """Whether enough are noticed: of all units, and of each with `FEWEST` or more."""
    judged = [s for s in scores if s.verdicts.total() >= FEWEST]
    return all(s.enough for s in [*judged, together(scores)])


def print_table(out: Console, scores: Sequence[Score]) -> None:
    """A line per unit, and one for all."""
    numbers = ("sampled", "equivalent", "killed", "survived", "score", "of these:", *NOTICED[1:])
    table = bare_table("package", numbers=numbers)
    for s in [*scores, together(scores)] if len(scores) > 1 else scores:
        colour = "green" if s.enough else "bold red"
        counts = map(str, (s.sampled, s.equivalent, s.killed, s.verdicts["survived"]))
        ends = (str(s.verdicts[verdict]) for verdict in NOTICED[1:])
        table.add_row(s.unit, *counts, f"[{colour}]{s.share:.0%}[/]", "", *ends)
    out.print(table)


def print_mutant(out: Console, mutant: Mutant, row: Mapping[str, Any]) -> None:
    """Where, what, what was found, and how to run it again."""
    out.print(f"[bold]{mutant.id}[/] {escape(row['file'])}:{mutant.site.row}", highlight=False)
    for line in mutant.diff.splitlines()[2:]:
        colour = {"-": "red", "+": "green"}.get(line[:1], "dim")
        out.print(f"  [{colour}]{escape(line)}[/]", highlight=False, soft_wrap=True)
    by = f" by {row['by']}" if row["by"] else ""
    said = f"{row['verdict']}{by}: {row['detail']} ({row['seconds']:.1f} s, {row['operator']})"
    out.print(f"  {escape(said)}", highlight=False, soft_wrap=True)
    out.print(f"  again: nox -s mutants -- --only {mutant.id}", highlight=False)


def _measured(out: Console, chosen: Sequence[Unit], workers: int, store: Store) -> list[Ran]:
    """Run all checks on the code as it is; tell of those that fail."""
    with steps(out, "without mutation", len(chosen) + len(test_files())) as done:
        ran, failed = baseline(chosen, workers, store, done)
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
    rows: list[Mapping[str, Any]] = []
    store = Store()
    run([mutant], _measured(out, [unit], workers, store), store, 1, limit_s, rows.append)
    print_mutant(out, mutant, rows[0])
    known = declared(mutant, entries)
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
    refuse_stale(entries, chosen)
    store = Store()
    drawn: dict[str, list[Mutant]] = {}
    with steps(out, "drawing", len(chosen)) as done:
        for unit in chosen:
            drawn[unit.name] = sample(unit, count, seed)
            done()
    tried = {
        name: [m for m in mutants if declared(m, entries) is None]
        for name, mutants in drawn.items()
    }
    todo = [m for mutants in tried.values() for m in mutants if store.find(m.id) is None]
    if todo:
        missing = {m.site.unit for m in todo}
        touched = [unit for unit in chosen if unit.name in missing]
        ran = _measured(out, touched, workers, store)
        control(touched, ran, workers, limit_s)
        with steps(out, "mutants", len(todo)) as done:
            run(todo, ran, store, workers, limit_s, lambda row: done())
    scores = []
    for name, mutants in tried.items():
        rows = [(mutant, store.find(mutant.id) or {}) for mutant in mutants]
        for mutant, row in rows:
            if row["verdict"] == "survived":
                print_mutant(out, mutant, row)
        count, verdicts = len(drawn[name]), Counter(row["verdict"] for _, row in rows)
        scores.append(Score(name, count, count - len(mutants), verdicts))
    print_table(out, scores)
    return int(not passed(scores))


@app.command()
@finishing("mutants")
def main(
    packages: Annotated[list[str] | None, typer.Argument(help="packages; all if none")] = None,
    sample: Annotated[int, typer.Option(help="mutants per package, at most")] = 100,
    seed: Annotated[int, typer.Option(help="of the draw")] = 0,
    workers: Annotated[int, typer.Option(help="mutants at a time")] = 2,
    only: Annotated[str | None, typer.Option(help="run one mutant again, by its id")] = None,
    limit_s: Annotated[float, typer.Option(help="seconds beyond what the checks need")] = 20.0,
) -> int:
    """Put small faults into the mechanisms, and count those that the checks notice."""
    out = console()
    for name, value in (("--sample", sample), ("--workers", workers), ("--limit-s", limit_s)):
        if value <= 0:
            raise UsageError(f"{name}: given {value}; expected a number above 0")
    entries = read()
    if only:
        return _only(out, only, seed, workers, limit_s, entries)
    chosen = select(packages or [])
    return _score(out, chosen, sample, seed, workers, limit_s, entries)


if __name__ == "__main__":
    app()
