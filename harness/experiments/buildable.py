"""Which models can be built, known before hours of work; how large they are, and equal sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.errors import UsageError
from harness.experiments.design import Surroundings, building
from harness.experiments.executors import Executor, Job
from harness.experiments.model import Model
from harness.experiments.sweep import Entry
from harness.isolate import USAGE, Interpreter, Limits
from harness.records import schema
from harness.train.recipe import Recipe, identity
from harness.train.task import Task

CALL = "harness.train.run:count_parameters"
LIMIT_SECONDS = 600.0
PRELOAD = ("torch", "harness.train.run")
TRAINED_BY = ("seed", "fold", "device")
"""Of a run's arguments those that its model is built without."""


def _numbers(
    interpreter: Interpreter,
    model: Model,
    task: Task,
    recipe: Recipe,
    around: Surroundings,
    widths: Sequence[int],
) -> dict[int, int]:
    """Numbers of parameters by width, without word vectors; `NotBuildable` if a child refuses."""
    arguments = {**building(model, task, recipe, around), "widths": list(widths)}
    outcome = interpreter.run(CALL, arguments, Limits(seconds=LIMIT_SECONDS))
    if outcome.status == "ok":
        return dict(zip(widths, outcome.value, strict=True))
    if outcome.status != "unsupported" and outcome.error != USAGE:
        raise UsageError(f"{model} on {task.name}: {outcome.status}: {outcome.detail}")
    raise NotBuildable(model, task, outcome.detail)


class NotBuildable(UsageError):
    """A task's recipe can't build a model; ``reason`` says why."""

    def __init__(self, model: Model, task: Task, reason: str) -> None:
        super().__init__(f"{model} can't be built on {task.name}: {reason}")
        self.reason = reason


def match_parameters(
    models: Sequence[Model], task: Task, recipes: Sequence[Recipe], around: Surroundings
) -> list[Recipe]:
    """Recipes under which all models have as nearly as possible the same number of parameters.

    The width of a larger model's context fusion is reduced, in steps of its heads, to come nearest
    to the number of the smallest; of two that are as near the larger one is taken.

    Returns
    -------
    list of Recipe
        One per model; that of the smallest is unchanged.

    Raises
    ------
    UsageError
        If a model can't be built, or a larger one can't be narrowed.
    """
    with Interpreter("fork", preload=PRELOAD) as interpreter:
        both = list(zip(models, recipes, strict=True))
        sizes = [
            _numbers(interpreter, model, task, recipe, around, [recipe.width])[recipe.width]
            for model, recipe in both
        ]
        matched = []
        for (model, recipe), size in zip(both, sizes, strict=True):
            if size > min(sizes):
                widths = range(recipe.heads, recipe.width + 1, recipe.heads)
                try:
                    counts = _numbers(interpreter, model, task, recipe, around, widths)
                except UsageError as error:
                    raise UsageError(f"--match parameters: {error}") from None
                width = min(counts, key=lambda w: (abs(counts[w] - min(sizes)), -w))
                recipe = replace(recipe, width=width)
            matched.append(recipe)
        return matched


def not_buildable(
    models: Sequence[Model], task: Task, recipes: Sequence[Recipe], around: Surroundings
) -> dict[Model, NotBuildable]:
    """Which of many models a task's recipe can't build, and why: by one interpreter, in turn.

    Raises
    ------
    UsageError
        If building one ends in anything but a refusal (a crash, say).
    """
    refused = {}
    with Interpreter("fork", preload=PRELOAD) as interpreter:
        for model, recipe in zip(models, recipes, strict=True):
            try:
                _numbers(interpreter, model, task, recipe, around, [recipe.width])
            except NotBuildable as why:
                refused[model] = why
    return refused


def checks(entries: Iterable[Entry], finished: Iterable[Mapping[str, Any]]) -> list[Job]:
    """One job for each model with its recipe on each task, but not where such a run has been.

    Parameters
    ----------
    entries : iterable of Entry
        Runs to be done.
    finished : iterable of mapping
        Records of runs.
    """
    been = {
        (r["model"], r.get("task"), _digest(r.get("recipe") or {}), r.get("code"))
        for r in finished
        if r["status"] == "ok"
    }
    jobs: dict[str, Job] = {}
    for entry in entries:
        run = entry.run
        recipe = run.recipe.as_dict()
        if (str(run.model), run.task, _digest(recipe), run.code) in been:
            continue
        arguments = {k: v for k, v in run.arguments.items() if k not in TRAINED_BY}
        key = schema.digest(["build", arguments, run.code])
        label = f"{run.model} on {run.task}"
        arguments["widths"] = [run.recipe.width]
        jobs[key] = Job(key, label, CALL, arguments, run.code, run.data, reports=False)
    return list(jobs.values())


def _digest(recipe: Mapping[str, Any]) -> str:
    return schema.digest(identity(recipe))


def check(jobs: Sequence[Job], executor: Executor, on_done: Callable[[], None]) -> None:
    """Build each model once.

    Raises
    ------
    UsageError
        If one can't be built: the first of them, and how many more.
    """
    failed: dict[str, str] = {}
    for job, outcome in executor.run(iter(jobs), lambda _: None):
        on_done()
        if outcome.status != "ok":
            failed[job.key] = f"{job.label} can't be built: {outcome.detail}"
    found = [failed[job.key] for job in jobs if job.key in failed]
    if found:
        more = f"; and {len(found) - 1} more can't" if len(found) > 1 else ""
        raise UsageError(f"{found[0]}{more}")
