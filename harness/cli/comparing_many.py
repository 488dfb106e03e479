"""``attnbench compare`` of many: models against a baseline, on any tasks, judged together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.cli.comparing import note_verdict, read_journal
from harness.cli.comparing_options import read_margins, recipes_of, seeds_for
from harness.cli.executing import workers_for
from harness.cli.many_text import print_many
from harness.cli.output import console, write_json
from harness.cli.running import (
    print_failures,
    surroundings,
    train_missing,
    verified_or_refused,
)
from harness.errors import UsageError
from harness.experiments.design import Design, Model, Surroundings, make_design, meaning
from harness.experiments.family import Family, make_family
from harness.experiments.many import Many, conclude_many
from harness.experiments.matching import match_parameters, not_buildable
from harness.experiments.session import finished
from harness.records import schema
from harness.registry import Registry
from harness.train.task import Task


def surroundings_of(
    tasks: Sequence[Task], registry: Registry, values: Mapping[str, Any]
) -> dict[str, Surroundings]:
    """Data and vectors of each task; ``--data`` is for those that read files.

    Raises
    ------
    UsageError
        If none does, and as `harness.cli.running.surroundings`.
    """
    without = {**values, "data": None, "vectors": None}
    reading = any(task.files for task in tasks)
    found: dict[str, Surroundings] = {}
    fingerprint = None
    for task in tasks:
        given = values if task.files or not reading else without
        found[task.name] = surroundings(task, registry, given, fingerprint)
        fingerprint = found[task.name].fingerprint
    return found


def _buildable(
    models: Sequence[Model], tasks: Sequence[Task], around: Mapping[str, Surroundings],
    values: Mapping[str, Any], out: Console,
) -> list[Model]:  # fmt: skip
    """Those of ``--all`` that every task's recipe can build; the others are named."""
    refused: dict[str, str] = {}
    for task in tasks:
        recipes = recipes_of(task, models, values)
        refused |= not_buildable(models, task, recipes, around[task.name])
    for model, why in refused.items():
        out.print(
            f"left out: {model}: {why}", style="dim", highlight=False, markup=False, soft_wrap=True
        )
    return [model for model in models if str(model) not in refused]


def _designs(
    models: Sequence[Model], baseline: Model, tasks: Sequence[Task],
    around: Mapping[str, Surroundings], values: Mapping[str, Any],
) -> tuple[Design, ...]:  # fmt: skip
    margins = read_margins(values["margin"], tasks)
    designs = []
    for task in tasks:
        everyone = [*models, baseline]
        recipes = recipes_of(task, everyone, values)
        if values["match"] == "parameters":
            recipes = match_parameters(everyone, task, recipes, around[task.name])
        designs += [
            make_design(
                [model, baseline], task, [recipe, recipes[-1]], seeds_for(values["seeds"], task),
                around[task.name], margins[task.name], values["match"],
            )
            for model, recipe in zip(models, recipes, strict=False)
        ]  # fmt: skip
    return tuple(designs)


def _announce(
    family: Family, around: Surroundings, runs: int, missing: int, workers: int, folder: Path
) -> str:
    f = around.fingerprint
    have = f", {runs - missing} of them already there" if missing < runs else ""
    return (
        f"{f['model']} ({f['device']}), torch {f['torch']}: {len(family.designs)} comparisons: "
        f"{', '.join(family.models)} against {family.baseline} on {', '.join(family.tasks)}; "
        f"{runs} runs{have}, {workers} at a time; journal {folder}"
    )


def run_many(
    tasks: Sequence[Task], everyone: Sequence[Model], registry: Registry, folder: Path,
    values: Mapping[str, Any], json_file: str | None,
) -> int:  # fmt: skip
    """Declare, verify, train, conclude; returns the exit code.

    Parameters
    ----------
    everyone : sequence of Model
        The baseline last.
    """
    out = console()
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise UsageError(f"--task: given {', '.join(names)}; expected each once")
    baseline = everyone[-1]
    meant = {meaning(model, registry): model for model in everyone[:-1]}
    if values["all"] is not None:
        meant.pop(meaning(baseline, registry), None)
    elif len(meant) < len(everyone) - 1:
        raise UsageError(f"given {', '.join(map(str, everyone[:-1]))}; expected each model once")
    models = list(meant.values())
    places = surroundings_of(tasks, registry, values)
    around = places[names[0]]
    checked = [*models, baseline]
    if values["all"] is not None:
        checked = _buildable(checked, tasks, places, values, out)
        if baseline not in checked or len(checked) < 2:
            raise UsageError(f"--all {baseline}: it can't be built, or nothing else can; see above")
        models = checked[:-1]
    family = make_family(_designs(models, baseline, tasks, places, values))
    todo, known = list(family.runs()), finished(folder)
    missing = [run for run in todo if run.key not in known]
    if missing and values["all"] is None:  # what can't be built is no design: not written down
        _all_buildable(family, places)
    workers = workers_for(values["jobs"], around.fingerprint)
    out.print(
        _announce(family, around, len(todo), len(missing), workers, folder),
        highlight=False, soft_wrap=True, markup=False,
    )  # fmt: skip
    verified_or_refused(todo, around, folder, out)
    record = family.record(around.fingerprint)
    train_missing(missing, around, folder, workers, out, [record])
    everything = read_journal(folder, out)
    declared = next(r for r in everything if r.get("key") == record["key"])
    many = conclude_many(declared, everything)
    print_many(out, many)
    failed = {run["key"]: run for c in many.comparisons for run in c.runs}
    print_failures(out, list(failed.values()))
    done = [c.finished for c in many.comparisons]
    note_verdict(
        {
            "key": schema.digest(["verdict", many.key, done]),
            "design": many.key,
            "designs": [c.key for c in many.comparisons],
            "verdict": many.sentences[0],
            "warnings": list(many.warnings),
        },
        around, folder, everything,
    )  # fmt: skip
    write_json(json_file, _as_json(many))
    return 0 if many.complete else 1


def _as_json(many: Many) -> dict[str, Any]:
    """Everything but the records themselves, which are in the journal."""
    value = {**asdict(many), "sentences": many.sentences}
    del value["record"]
    for comparison in value["comparisons"]:
        del comparison["runs"], comparison["design"]
    return value


def _all_buildable(family: Family, around: Mapping[str, Surroundings]) -> None:
    """Refuse a family of which a task's recipe can't build a model."""
    for task in family.tasks:
        designs = [d for d in family.designs if d.task.name == task]
        models = [*(d.models[0] for d in designs), designs[0].models[1]]
        recipes = [*(d.recipes[0] for d in designs), designs[0].recipes[1]]
        refused = not_buildable(models, designs[0].task, recipes, around[task])
        for model, why in refused.items():
            raise UsageError(
                f"{model} can't be built on {task}: {why} (--recipe width=... heads=...)"
            )
