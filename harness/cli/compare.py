"""``attnbench compare``: declare, verify, train in pairs, conclude.

Models against a baseline, on one task or more: declared together and judged together. Two models on
one task are the smallest such family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.cli.output import bare_table, console, say, tell_skipped
from harness.cli.running import print_failures, train_missing, verified_or_refused
from harness.errors import UsageError
from harness.experiments import tables
from harness.experiments.conclusion import Comparison, Conclusion, conclude
from harness.experiments.costs import workload
from harness.experiments.declare import (
    declare,
    left_out,
    note_seen,
    places_of,
    planned,
    read_margins,
    read_models,
    read_tasks,
    refuse_unbuildable,
)
from harness.experiments.design import Design, Family, Surroundings, check_pairing
from harness.experiments.executors.local import workers_for
from harness.experiments.model import check_read
from harness.experiments.over_tasks import (
    OVER_TASKS,
    beside_tests,
    counted_tasks,
    overall_rows,
)
from harness.experiments.overall import Overall
from harness.experiments.queue import finished
from harness.experiments.replicates import counted, counted_each, unit_of, units_of
from harness.json_file import write_json
from harness.options.train import CompareOptions
from harness.records import journal, predictions, schema
from harness.records.sharing import at_work
from harness.registry import Registry
from harness.train.task import gathered

COLOURS = {"better": "green", "worse": "red", "practically equal": "blue"}


def run_compare(options: CompareOptions) -> int:
    """Do all of it; returns the exit code."""
    out, folder = console(), options.journal
    plan = None
    if options.plan is not None:
        options, plan = planned(options)
    registry = Registry(options.given)
    tasks = read_tasks(options.tasks)
    models = read_models(options, registry)
    check_read(options.changes, models, tasks, registry, options.vectors)
    if options.unpaired:
        if len(models) > 2 or len(tasks) > 1:
            raise UsageError(
                "--unpaired is for two models on one task; several are judged in pairs"
            )
        check_pairing(tasks[0], paired=False)  # before any data are looked for
    margins = read_margins(options.margin, tasks)
    places = places_of(tasks, registry, options)
    if options.all is not None:
        refused = left_out(models, tasks, places, options.changes)
        for model, why in refused.items():
            say(out, f"left out: {model}: {why.reason}", "dim")
        baseline, models = models[-1], [model for model in models if model not in refused]
        if baseline not in models or len(models) < 2:
            raise UsageError(f"--all {baseline}: it can't be built, or nothing else can; see above")
    family = declare(options, models, tasks, margins, places, plan)
    around = places[tasks[0].name]
    todo, known = list(family.runs()), finished(folder)
    missing = [run for run in todo if run.key not in known]
    workers = workers_for(options.jobs, around.fingerprint)
    here = schema.digest(dict(around.fingerprint))
    found_at = [known[run.key].get("fingerprint", here) for run in todo if run.key in known]
    there = sum(place != here for place in found_at)
    say(out, _announcement(family, around, len(todo), len(missing), there, workers, folder))
    if missing and options.all is None:  # what can't be built is no design: not written down
        refuse_unbuildable(family, places)
    record = family.record
    with at_work(folder, "compare", alone=False):
        verified_or_refused(todo, around, folder, out)
        train_missing(missing, around, folder, workers, out, [record])
    found = journal.read(folder)
    tell_skipped(out, found.warnings)
    declared = next(r for r in found.records if r.get("key") == record["key"])
    said = partial(predictions.read, [folder])
    conclusion = conclude(declared, found.records, said=said)
    print_conclusion(out, conclusion)
    print_failures(out, conclusion.runs)
    note_seen(conclusion, around.fingerprint, folder, found.records)
    write_json(options.json_file, as_json(conclusion))
    return 0 if conclusion.complete else 1


def _announcement(
    family: Family,
    around: Surroundings,
    runs: int,
    missing: int,
    elsewhere: int,
    workers: int,
    folder: Path,
) -> str:
    f = around.fingerprint
    count = len(family.designs)
    several = f"{count} comparisons: " if count > 1 else ""
    of_tasks = [
        _of_task(name, [d for d in family.designs if name in (d.task.name, d.task.family)])
        for name in gathered(family.tasks)
    ]
    have = f", {runs - missing} of them already there" if missing < runs else ""
    if elsewhere:
        have += f" ({elsewhere} from another machine)"
    return (
        f"{f['model']} ({f['device']}), torch {f['torch']}: {several}{', '.join(family.models)} "
        f"against {family.baseline} on {'; '.join(of_tasks)}; {runs} runs{have}, "
        f"{workers} at a time; journal {folder}"
    )


def _of_task(name: str, designs: Sequence[Design]) -> str:
    """``trec (six types of questions), 5 paired seeds, margin 1.00 points, width 300``."""
    first, count = designs[0], len({d.task.name for d in designs})
    task, seeds, margin = first.task, len(first.record["seeds"]), first.record["margin"]
    over = counted(units_of(seeds, task.folds), task.folds or seeds, seeds)
    if not first.record["paired"]:
        over = counted_each(seeds, seeds)
    apart = "" if margin is None else f", margin {unit_of(task.metric).size(margin)}"
    widths = dict.fromkeys(str(recipe.width) for d in designs for recipe in d.recipes)
    what = task.summary if count == 1 else f"{count} tasks, each {task.summary.partition('; ')[0]}"
    return f"{name} ({what}), {over}{apart}, width {' and '.join(widths)}"


def as_json(conclusion: Conclusion) -> dict[str, Any]:
    """Of two models all that is known; of more everything but the records in the journal."""
    if conclusion.is_pair:
        return asdict(conclusion.comparisons[0])
    value = {**asdict(conclusion), "sentences": conclusion.sentences}
    del value["record"]
    for comparison in value["comparisons"]:
        del comparison["runs"], comparison["design"]
    return value


def print_conclusion(out: Console, conclusion: Conclusion) -> None:
    """Verdict and interval first, then a section per task, tests over tasks, warnings."""
    first, *others = conclusion.sentences
    only = conclusion.comparisons[0] if len(conclusion.comparisons) == 1 else None
    out.print()
    say(out, first, "bold" if only is None else f"bold {COLOURS.get(only.said, 'yellow')}")
    for said in others:
        say(out, said)
    for task in conclusion.tasks:
        out.print()
        _print_task(out, task, conclusion.of_task(task))
        for said in tables.tied_on(conclusion, task):
            say(out, said)
    if conclusion.overall is not None:
        out.print()
        _print_overall(out, conclusion.baseline, conclusion.overall)
        for said in beside_tests(conclusion):
            say(out, said)
    out.print()
    for line in (*tables.asked(conclusion), *tables.reading(conclusion)):
        say(out, line)
    for warning in conclusion.warnings:
        say(out, f"[yellow]warning:[/] {escape(warning)}", markup=True)


def _print_task(out: Console, task: str, comparisons: Sequence[Comparison]) -> None:
    """One comparison with every value and every test; several as a row each."""
    say(out, f"[bold]{escape(task)}[/]: {escape(tables.headed(comparisons))}", markup=True)
    if len(comparisons) > 1:
        out.print(_verdicts(tables.columns(comparisons), tables.task_rows(comparisons)))
    elif comparisons[0].difference is not None:
        out.print(values_table(comparisons[0]))
        out.print()
        tests = bare_table("", "")
        tests.show_header = False
        for name, value, _ in tables.statistics_rows(comparisons[0]):
            tests.add_row(escape(name), escape(value))
        out.print(tests)
    for line in tables.of_examples(comparisons):
        say(out, line)
    if costs := tables.cost_rows(comparisons):
        out.print()
        out.print(_table(tables.COSTS, costs))
    coverage = next((c.coverage for c in comparisons if c.coverage), "")
    for said in filter(None, (coverage, workload(r for c in comparisons for r in c.runs))):
        say(out, said)


def _print_overall(out: Console, baseline: str, overall: Overall) -> None:
    say(out, f"[bold]over tasks[/]: {escape(counted_tasks(overall))}", markup=True)
    out.print(_verdicts(OVER_TASKS, overall_rows(baseline, overall)))
    for said in [] if overall.ties is None else tables.tied(overall.ties, "tasks"):
        say(out, said)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Names at the left, numbers at the right."""
    table = bare_table(names[0])
    for name in names[1:]:
        table.add_column(escape(name), justify="right")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def values_table(comparison: Comparison) -> Table:
    """Every seed or fold, then means and deviations."""
    unit, d = comparison.unit, comparison.difference
    assert d is not None
    unpaired = [] if d.paired else ["difference (unpaired)"]
    table = _table([*tables.value_columns(comparison), *unpaired], tables.value_rows(comparison))
    means = [unit.value(d.mean_first), unit.value(d.mean_second), unit.difference(d.difference)]
    table.add_row("mean", *means, style="bold")
    if not math.isnan(d.sd_first):
        table.add_row("sd", unit.value(d.sd_first), unit.value(d.sd_second))
    return table


def _verdicts(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Models at the left, the baseline first and grey, each verdict in its colour."""
    table = _table(names, [])
    for *cells, verdict in rows:
        grey = verdict == tables.BASELINE
        colour = "dim" if grey else COLOURS.get(verdict, "yellow")
        table.add_row(
            *map(escape, cells), f"[{colour}]{escape(verdict)}[/]", style="dim" if grey else ""
        )
    return table
