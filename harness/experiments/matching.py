"""Which models can be built, how large they are, and narrowing them to equal sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.errors import UsageError
from harness.experiments.design import Model, Surroundings
from harness.isolate import USAGE, Interpreter, Limits, run
from harness.train.recipe import Recipe
from harness.train.task import Task

CALL = "harness.train.run:count_parameters"
LIMIT_SECONDS = 600.0
PRELOAD = ("torch", "harness.train.run")


def _arguments(model: Model, task: Task, recipe: Recipe, around: Surroundings) -> dict[str, Any]:
    return {
        "model": model.name, "task": task.name, "recipe": recipe.as_dict(),
        "options": dict(model.options), "directory": around.directory, "vectors": around.vectors,
        "given": list(around.registry.extra),
    }  # fmt: skip


def counter(
    model: Model, task: Task, recipe: Recipe, around: Surroundings
) -> Callable[[Sequence[int]], list[int]]:
    """A function from widths to numbers of parameters (without word vectors), by a child.

    Raises
    ------
    UsageError
        From the function: if the model can't be built.
    """
    arguments = _arguments(model, task, recipe, around)

    def count(widths: Sequence[int]) -> list[int]:
        outcome = run(CALL, {**arguments, "widths": list(widths)}, Limits(seconds=LIMIT_SECONDS))
        if outcome.status != "ok":
            raise UsageError(
                f"{model} can't be built on {task.name}: {outcome.detail} "
                "(--recipe width=... heads=...)"
            )
        return list(outcome.value)

    return count


def nearest_width(counts: Mapping[int, int], target: int) -> int:
    """The width whose number of parameters is nearest to the target; of equals the larger."""
    return min(counts, key=lambda width: (abs(counts[width] - target), -width))


def match_parameters(
    models: Sequence[Model], task: Task, recipes: Sequence[Recipe], around: Surroundings
) -> list[Recipe]:
    """Recipes under which all models have as nearly as possible the same number of parameters.

    The width of a larger model's context fusion is reduced, in steps of its heads, to the number of
    the smallest.

    Returns
    -------
    list of Recipe
        One per model; that of the smallest is unchanged.

    Raises
    ------
    UsageError
        If a model can't be built, or a larger one can't be narrowed.
    """
    counters = [counter(m, task, r, around) for m, r in zip(models, recipes, strict=True)]
    sizes = [c([r.width])[0] for c, r in zip(counters, recipes, strict=True)]
    target = min(sizes)
    return [
        recipe if size == target else _narrowed(recipe, count, target)
        for recipe, count, size in zip(recipes, counters, sizes, strict=True)
    ]


def _narrowed(recipe: Recipe, count: Callable[[Sequence[int]], list[int]], target: int) -> Recipe:
    widths = list(range(recipe.heads, recipe.width + 1, recipe.heads))
    try:
        counts = dict(zip(widths, count(widths), strict=True))
    except UsageError as error:
        raise UsageError(f"--match parameters: {error}") from None
    return replace(recipe, width=nearest_width(counts, target))


def not_buildable(
    models: Sequence[Model], task: Task, recipes: Sequence[Recipe], around: Surroundings
) -> dict[str, str]:
    """Which of many models a task's recipe can't build, and why: by one interpreter, in turn.

    Raises
    ------
    UsageError
        If building one ends in anything but a refusal (a crash, say).
    """
    refused = {}
    with Interpreter("fork", preload=PRELOAD) as interpreter:
        for model, recipe in zip(models, recipes, strict=True):
            arguments = {**_arguments(model, task, recipe, around), "widths": [recipe.width]}
            outcome = interpreter.run(CALL, arguments, Limits(seconds=LIMIT_SECONDS))
            if outcome.status == "ok":
                continue
            if outcome.status != "unsupported" and outcome.error != USAGE:
                raise UsageError(f"{model} on {task.name}: {outcome.status}: {outcome.detail}")
            refused[str(model)] = outcome.detail
    return refused
