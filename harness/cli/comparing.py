"""``attnbench compare``: declare, verify, train in pairs, conclude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.cli.comparing_options import read_margins, read_models, recipes_of, seeds_for
from harness.cli.comparison_text import print_comparison
from harness.cli.executing import workers_for
from harness.cli.output import check_json, console, plain, tell_skipped, write_json
from harness.cli.running import (
    journal_folder,
    print_failures,
    surroundings,
    train_missing,
    verified_or_refused,
)
from harness.errors import UsageError
from harness.experiments.conclusion import conclude
from harness.experiments.design import (
    Design,
    Model,
    Surroundings,
    check_pairing,
    make_design,
    parse_model,
)
from harness.experiments.matching import counter, match_parameters
from harness.experiments.replicates import counted, counted_each, units_of
from harness.experiments.session import finished
from harness.experiments.unread import check_read
from harness.experiments.wording import unit_of
from harness.records import journal, schema
from harness.registry import Registry
from harness.train.task import Task
from harness.train.task import task as find_task

MATCHES = ("none", "parameters")


def _declare(
    task: Task, models: Sequence[Model], registry: Registry, values: Mapping[str, Any]
) -> tuple[Design, Surroundings]:
    paired = not values["unpaired"]
    check_pairing(task, paired)  # before any data are looked for
    recipes = recipes_of(task, models, values)
    seeds = seeds_for(values["seeds"], task)
    margin = read_margins(values["margin"], [task])[task.name]
    around = surroundings(task, registry, values)
    if values["match"] == "parameters":
        recipes = match_parameters(models, task, recipes, around)
    return make_design(
        models, task, recipes, seeds, around, margin, values["match"], paired
    ), around


def _announce(design: Design, around: Any, missing: int, workers: int, folder: Path) -> str:
    f = around.fingerprint
    total = 2 * len(design.runs)
    have = f", {total - missing} of them already there" if missing < total else ""
    unit = unit_of(design.task.metric)
    margin = "" if design.margin is None else f", margin {unit.size(design.margin)}"
    widths = " and ".join(dict.fromkeys(str(r.width) for r in design.recipes))
    folds, seeds = design.task.folds, len(design.seeds)
    over = counted(units_of(seeds, folds), folds or seeds, seeds)
    if not design.paired:
        over = counted_each(seeds, seeds)
    return (
        f"{f['model']} ({f['device']}), torch {f['torch']}: {design.models[0]} against "
        f"{design.models[1]} on {design.task.name} ({design.task.summary}), "
        f"{over}{margin}, width {widths}; {total} runs{have}, "
        f"{workers} at a time; journal {folder}"
    )


def run_compare(values: dict[str, Any], json_file: str | None) -> int:
    """Do all of it; returns the exit code."""
    check_json(json_file)
    registry = Registry(values["given"])
    folder = journal_folder(values["journal"])
    tasks = [find_task(name) for name in values["task"]]
    if values["match"] not in MATCHES:
        raise UsageError(f"--match: given {values['match']!r}; expected {' or '.join(MATCHES)}")
    if values["all"] is not None:
        for option in ("names", "baseline"):
            if values[option]:
                raise UsageError("--all BASELINE compares every mechanism; name no others")
        models = [parse_model(name, registry) for name in registry.mechanisms]
        models = [*models, parse_model(values["all"], registry)]
    else:
        models = read_models(values["names"], registry, values["baseline"])
    check_read(values["recipe"], models, tasks, registry, values["vectors"])
    if values["all"] is not None or len(models) > 2 or len(tasks) > 1:
        from harness.cli.comparing_many import run_many

        if values["unpaired"]:
            raise UsageError(
                "--unpaired is for two models on one task; several are judged in pairs"
            )
        return run_many(tasks, models, registry, folder, values, json_file)
    return _run_pair(tasks[0], models, registry, folder, values, json_file)


def _run_pair(
    task: Task, models: Sequence[Model], registry: Registry, folder: Path,
    values: Mapping[str, Any], json_file: str | None,
) -> int:  # fmt: skip
    out = console()
    design, around = _declare(task, models, registry, values)
    workers = workers_for(values["jobs"], around.fingerprint)
    todo = [run for pair in design.runs for run in pair]
    known = finished(folder)
    missing = [run for run in todo if run.key not in known]
    out.print(
        _announce(design, around, len(missing), workers, folder),
        highlight=False, soft_wrap=True, markup=False,
    )  # fmt: skip
    record = design.record(around.fingerprint)
    if missing:  # a design that can't be built is no design: not written down
        for model, recipe in zip(design.models, design.recipes, strict=True):
            counter(model, design.task, recipe, around)([recipe.width])
    verified_or_refused(todo, around, folder, out)
    train_missing(missing, around, folder, workers, out, [record])
    everything = read_journal(folder, out)
    declared = next(r for r in everything if r.get("key") == record["key"])
    comparison = conclude(declared, everything)
    print_comparison(out, comparison)
    print_failures(out, comparison.runs)
    difference = comparison.difference
    note_verdict(
        {
            "key": schema.digest(["verdict", comparison.key, comparison.finished]),
            "design": comparison.key,
            "verdict": comparison.verdict,
            "sentence": comparison.sentence,
            "difference": None if difference is None else plain(asdict(difference)),
            "warnings": list(comparison.warnings),
        },
        around, folder, everything,
    )  # fmt: skip
    write_json(json_file, asdict(comparison))
    return 0 if comparison.complete else 1


def read_journal(folder: Path, out: Console) -> list[dict[str, Any]]:
    """Records of a journal; what had to be skipped is told."""
    found = journal.read(folder)
    tell_skipped(out, found.warnings)
    return found.records


def note_verdict(
    verdict: Mapping[str, Any], around: Surroundings, folder: Path,
    records: Sequence[Mapping[str, Any]],
) -> None:  # fmt: skip
    """Write down that these results have been seen: later seeds are then added after looking."""
    from harness.measure.device import environment

    if any(r.get("key") == verdict["key"] for r in records):
        return
    session = {"environment": environment(), "purpose": "verdict"}
    writer = journal.Writer(folder, {**session, "fingerprint": dict(around.fingerprint)})
    writer.append({"kind": "verdict", "status": "ok", **verdict})
    writer.close()
