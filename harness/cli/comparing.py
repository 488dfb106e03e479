"""``attnbench compare``: declare, verify, train in pairs, conclude.

Models against a baseline, on one task or more: declared together and judged together. Two models on
one task are the smallest such family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.cli.comparing_options import read_margins, read_models, seeds_for
from harness.cli.comparison_text import print_conclusion
from harness.cli.executors import workers_for
from harness.cli.output import console, plain, tell_skipped, write_json
from harness.cli.running import (
    print_failures,
    train_missing,
    verified_or_refused,
)
from harness.cli.surroundings import surroundings
from harness.errors import UsageError
from harness.experiments.buildable import NotBuildable, match_parameters, not_buildable
from harness.experiments.conclusion import Conclusion, conclude
from harness.experiments.design import (
    Design,
    Family,
    Surroundings,
    check_pairing,
    make_design,
)
from harness.experiments.model import Model, check_read, meaning, parse_model, recipes_of
from harness.experiments.queue import finished
from harness.experiments.replicates import counted, counted_each, unit_of, units_of
from harness.options import CompareOptions
from harness.records import journal, schema
from harness.registry import Registry
from harness.train.task import Task
from harness.train.task import task as find_task


def run_compare(options: CompareOptions) -> int:
    """Do all of it; returns the exit code."""
    out = console()
    registry = Registry(options.given)
    folder = options.journal
    tasks = _tasks(options)
    everyone = _models(registry, options)
    check_read(options.changes, everyone, tasks, registry, options.vectors)
    if options.unpaired:
        if len(everyone) > 2 or len(tasks) > 1:
            raise UsageError(
                "--unpaired is for two models on one task; several are judged in pairs"
            )
        check_pairing(tasks[0], paired=False)  # before any data are looked for
    margins = read_margins(options.margin, tasks)
    places = _surroundings(tasks, registry, options)
    if options.all is not None:
        everyone = _buildable(everyone, tasks, places, options, out)
    family = Family(
        tuple(
            design
            for task in tasks
            for design in _designs(task, everyone, places[task.name], margins[task.name], options)
        )
    )
    around = places[tasks[0].name]
    todo, known = list(family.runs()), finished(folder)
    missing = [run for run in todo if run.key not in known]
    workers = workers_for(options.jobs, around.fingerprint)
    said = _announcement(family, around, len(todo), len(missing), workers, folder)
    out.print(said, highlight=False, soft_wrap=True, markup=False)
    if missing and options.all is None:  # what can't be built is no design: not written down
        _refuse_unbuildable(family, places)
    verified_or_refused(todo, around, folder, out)
    record = family.record
    train_missing(missing, around, folder, workers, out, [record])
    everything = read_journal(folder, out)
    declared = next(r for r in everything if r.get("key") == record["key"])
    conclusion = conclude(declared, everything)
    print_conclusion(out, conclusion)
    print_failures(out, conclusion.runs)
    _note_verdict(conclusion, around, folder, everything)
    write_json(options.json_file, as_json(conclusion))
    return 0 if conclusion.complete else 1


def _tasks(options: CompareOptions) -> list[Task]:
    tasks = [find_task(name) for name in options.tasks]
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise UsageError(f"--task: given {', '.join(names)}; expected each once")
    return tasks


def _models(registry: Registry, options: CompareOptions) -> list[Model]:
    """All models, the baseline last, each once by what it is."""
    if options.all is None:
        models = read_models(options.names, registry, options.baseline)
        meant = [meaning(model, registry) for model in models[:-1]]
        if len(set(meant)) < len(meant):
            raise UsageError(f"given {', '.join(map(str, models[:-1]))}; expected each model once")
        return models
    baseline = parse_model(options.all, registry)
    others = [parse_model(name, registry) for name in registry.mechanisms]
    same = meaning(baseline, registry)
    return [*(m for m in others if meaning(m, registry) != same), baseline]


def _surroundings(
    tasks: Sequence[Task], registry: Registry, options: CompareOptions
) -> dict[str, Surroundings]:
    """Data and vectors of each task; ``--data`` is for those that read files.

    Raises
    ------
    UsageError
        If none does, and as `harness.cli.surroundings`.
    """
    without = replace(options, data=None, vectors=None)
    reading = any(task.files for task in tasks)
    found: dict[str, Surroundings] = {}
    fingerprint = None
    for task in tasks:
        given = options if task.files or not reading else without
        found[task.name] = surroundings(task, registry, given, fingerprint)
        fingerprint = found[task.name].fingerprint
    return found


def _buildable(
    everyone: Sequence[Model],
    tasks: Sequence[Task],
    around: Mapping[str, Surroundings],
    options: CompareOptions,
    out: Console,
) -> list[Model]:
    """Those of ``--all`` that every task's recipe can build; the others are named."""
    refused: dict[Model, NotBuildable] = {}
    for task in tasks:
        refused |= not_buildable(
            everyone, task, recipes_of(task, everyone, options.changes), around[task.name]
        )
    for model, why in refused.items():
        said = f"left out: {model}: {why.reason}"
        out.print(said, style="dim", highlight=False, markup=False, soft_wrap=True)
    kept = [model for model in everyone if model not in refused]
    if everyone[-1] not in kept or len(kept) < 2:
        raise UsageError(f"--all {everyone[-1]}: it can't be built, or nothing else can; see above")
    return kept


def _designs(
    task: Task,
    everyone: Sequence[Model],
    around: Surroundings,
    margin: float | None,
    options: CompareOptions,
) -> list[Design]:
    """Each model against the last one."""
    recipes = recipes_of(task, everyone, options.changes)
    seeds = seeds_for(options.seeds, task)
    if options.match == "parameters":
        recipes = match_parameters(everyone, task, recipes, around)
    return [
        make_design(
            [model, everyone[-1]],
            task,
            [recipe, recipes[-1]],
            seeds,
            around,
            margin,
            options.match,
            not options.unpaired,
        )
        for model, recipe in zip(everyone[:-1], recipes, strict=False)
    ]


def _announcement(
    family: Family, around: Surroundings, runs: int, missing: int, workers: int, folder: Path
) -> str:
    f = around.fingerprint
    count = len(family.designs)
    several = f"{count} comparisons: " if count > 1 else ""
    of_tasks = [[d for d in family.designs if d.task.name == task] for task in family.tasks]
    tasks = "; ".join(map(_of_task, of_tasks))
    have = f", {runs - missing} of them already there" if missing < runs else ""
    return (
        f"{f['model']} ({f['device']}), torch {f['torch']}: {several}{', '.join(family.models)} "
        f"against {family.baseline} on {tasks}; {runs} runs{have}, {workers} at a time; "
        f"journal {folder}"
    )


def _of_task(designs: Sequence[Design]) -> str:
    """``trec (six types of questions), 5 paired seeds, margin 1.00 points, width 300``."""
    first = designs[0]
    task, seeds, margin = first.task, len(first.record["seeds"]), first.record["margin"]
    over = counted(units_of(seeds, task.folds), task.folds or seeds, seeds)
    if not first.record["paired"]:
        over = counted_each(seeds, seeds)
    apart = "" if margin is None else f", margin {unit_of(task.metric).size(margin)}"
    widths = dict.fromkeys(str(recipe.width) for d in designs for recipe in d.recipes)
    return f"{task.name} ({task.summary}), {over}{apart}, width {' and '.join(widths)}"


def _refuse_unbuildable(family: Family, around: Mapping[str, Surroundings]) -> None:
    """Refuse a family of which a task's recipe can't build a model."""
    for task in family.tasks:
        recipes = {
            model: recipe
            for d in family.designs
            if d.task.name == task
            for model, recipe in zip(d.models, d.recipes, strict=True)
        }
        for why in not_buildable(
            list(recipes), find_task(task), list(recipes.values()), around[task]
        ).values():
            raise why


def read_journal(folder: Path, out: Console) -> list[dict[str, Any]]:
    """Records of a journal; what had to be skipped is told."""
    found = journal.read(folder)
    tell_skipped(out, found.warnings)
    return found.records


def _note_verdict(
    conclusion: Conclusion,
    around: Surroundings,
    folder: Path,
    records: Sequence[Mapping[str, Any]],
) -> None:
    """Write down that these results have been seen: later seeds are then added after looking."""
    from harness.measure.device import environment

    seen: dict[str, Any]
    if conclusion.is_pair:
        (one,) = conclusion.comparisons
        done: Any = one.finished
        difference = None if one.difference is None else plain(asdict(one.difference))
        seen = {"verdict": one.verdict, "sentence": one.sentence, "difference": difference}
    else:
        done = [c.finished for c in conclusion.comparisons]
        designs = [c.key for c in conclusion.comparisons]
        seen = {"designs": designs, "verdict": conclusion.sentences[0]}
    key = schema.digest(["verdict", conclusion.key, done])
    if any(r.get("key") == key for r in records):
        return
    session = {"environment": environment(), "purpose": "verdict"}
    writer = journal.Writer(folder, {**session, "fingerprint": dict(around.fingerprint)})
    record = {"kind": "verdict", "status": "ok", "key": key, "design": conclusion.key, **seen}
    writer.append({**record, "warnings": list(conclusion.warnings)})
    writer.close()


def as_json(conclusion: Conclusion) -> dict[str, Any]:
    """Of two models all that is known; of more everything but the records in the journal."""
    if conclusion.is_pair:
        return asdict(conclusion.comparisons[0])
    value = {**asdict(conclusion), "sentences": conclusion.sentences}
    del value["record"]
    for comparison in value["comparisons"]:
        del comparison["runs"], comparison["design"]
    return value
