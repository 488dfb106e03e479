"""``attnbench compare``: declare, verify, train in pairs, conclude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from harness.cli.comparison_text import print_comparison
from harness.cli.output import check_json, console, plain, write_json
from harness.cli.running import (
    journal_folder,
    print_failures,
    surroundings,
    train_missing,
    verified_or_refused,
    workers_for,
)
from harness.errors import UsageError
from harness.experiments.conclusion import Comparison, conclude
from harness.experiments.design import Design, Model, make_design, parse_model
from harness.experiments.matching import counter, match_parameters
from harness.experiments.session import finished
from harness.experiments.wording import paired_seeds, unit_of
from harness.records import journal, schema
from harness.registry import Registry
from harness.train.recipe import changed, parse_settings
from harness.train.task import Task
from harness.train.task import task as find_task

BASELINE = "multi_head"
SUBJECT = "mtsa"
MATCHES = ("none", "parameters")
MOST_SEEDS = 10_000
LARGEST_SEED = 2**32 - 1


def read_seeds(text: str) -> list[int]:
    """``10`` is seeds 0 to 9; ``3,7,11`` are these.

    Raises
    ------
    UsageError
        For anything else.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise UsageError(f"--seeds: given {text!r}; expected a number of seeds, or e.g. 3,7,11")
    numbers = [int(part) for part in parts]
    if (len(numbers) == 1 and numbers[0] > MOST_SEEDS) or max(numbers) > LARGEST_SEED:
        raise UsageError(
            f"--seeds: given {text}; expected at most {MOST_SEEDS} seeds, each up to {LARGEST_SEED}"
        )
    return numbers if len(numbers) > 1 else list(range(numbers[0]))


def read_margin(text: str | None, task: Task) -> float | None:
    """A difference that does not matter, in units of the metric; ``0.5%`` is 0.005.

    Raises
    ------
    UsageError
        If it is not a number, or not below 1 for a share.
    """
    if text is None:
        return None
    try:
        margin = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"--margin: given {text!r}; expected a number, e.g. 0.01 or 1%") from None
    if task.metric == "accuracy" and margin >= 1:
        raise UsageError(f"--margin: given {text}; one point of accuracy is 0.01 or 1%")
    return margin


def read_models(names: Sequence[str], registry: Registry) -> list[Model]:
    """Two models; by default MTSA, or what ``--with`` gave, against multi-head attention.

    Raises
    ------
    UsageError
        If there are not two, or one is unknown.
    """
    if not names:
        names = [registry.given_names[0] if registry.given_names else SUBJECT, BASELINE]
    elif len(names) == 1 and registry.given_names and names[0] not in registry.given_names:
        names = [registry.given_names[0], names[0]]
    elif len(names) == 1:
        names = [names[0], BASELINE]
    if len(names) > 2:
        raise UsageError(f"given {len(names)} models; expected two, e.g. compare mtsa multi_head")
    return [parse_model(name, registry) for name in names]


def _declare(values: Mapping[str, Any], registry: Registry, out: Console) -> tuple[Design, Any]:
    task = find_task(values["task"])
    models = read_models(values["names"], registry)
    if values["match"] not in MATCHES:
        raise UsageError(f"--match: given {values['match']!r}; expected {' or '.join(MATCHES)}")
    texts = list(values["recipe"])
    if values["choose"] is not None:
        texts.append(f"choose={values['choose']}")
    settings = parse_settings(texts, [model.names for model in models], task.recipes)
    recipes = [
        changed(task.recipe_for(model.mechanism), chosen)
        for model, chosen in zip(models, settings, strict=True)
    ]
    seeds, margin = read_seeds(values["seeds"]), read_margin(values["margin"], task)
    around = surroundings(task, registry, values)
    if values["match"] == "parameters":
        recipes = match_parameters(models, task, recipes, around)
    return make_design(models, task, recipes, seeds, around, margin, values["match"]), around


def _announce(design: Design, around: Any, missing: int, workers: int, folder: Path) -> str:
    f = around.fingerprint
    total = 2 * len(design.seeds)
    have = f", {total - missing} of them already there" if missing < total else ""
    unit = unit_of(design.task.metric)
    margin = "" if design.margin is None else f", margin {unit.size(design.margin)}"
    widths = " and ".join(dict.fromkeys(str(r.width) for r in design.recipes))
    return (
        f"{f['model']} ({f['device']}), torch {f['torch']}: {design.models[0]} against "
        f"{design.models[1]} on {design.task.name} ({design.task.summary}), "
        f"{paired_seeds(len(design.seeds))}{margin}, width {widths}; {total} runs{have}, "
        f"{workers} at a time; journal {folder}"
    )


def run_compare(values: dict[str, Any], json_file: str | None) -> int:
    """Do all of it; returns the exit code."""
    out = console()
    check_json(json_file)
    registry = Registry(values["given"])
    folder = journal_folder(values["journal"])
    design, around = _declare(values, registry, out)
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
    verified_or_refused(
        [model.name for model in design.models], [m.options for m in design.models], around, folder,
        out,
    )  # fmt: skip
    train_missing(missing, around, folder, workers, out, [record])
    everything = journal.read(folder)
    for warning in everything.warnings:
        out.print(f"[yellow]journal:[/] {escape(warning)}")
    declared = next(r for r in everything.records if r.get("key") == record["key"])
    comparison = conclude(declared, everything.records)
    print_comparison(out, comparison)
    print_failures(out, comparison.runs)
    _note_verdict(comparison, around, folder, everything.records)
    write_json(json_file, _as_json(comparison))
    incomplete = len(comparison.values) < len(comparison.seeds)
    return 1 if incomplete else 0


def _note_verdict(
    comparison: Comparison, around: Any, folder: Path, records: Sequence[Mapping[str, Any]]
) -> None:
    """Write down that these results have been seen: later seeds are then added after looking."""
    from harness.measure.device import environment

    key = schema.digest(["verdict", comparison.key, len(comparison.values)])
    if any(r.get("key") == key for r in records):
        return
    difference = comparison.difference
    session = {"environment": environment(), "purpose": "verdict"}
    writer = journal.Writer(folder, {**session, "fingerprint": dict(around.fingerprint)})
    writer.append(
        {
            "kind": "verdict",
            "key": key,
            "design": comparison.key,
            "status": "ok",
            "verdict": comparison.verdict,
            "sentence": comparison.sentence,
            "difference": None if difference is None else plain(asdict(difference)),
            "warnings": list(comparison.warnings),
        }
    )
    writer.close()


def _as_json(comparison: Comparison) -> dict[str, Any]:
    value = asdict(comparison)
    value.pop("unit", None)
    return value
