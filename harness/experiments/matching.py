"""Equal numbers of parameters: the larger model is narrowed to the smaller one's number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.errors import UsageError
from harness.experiments.design import Model, Surroundings
from harness.isolate import Limits, run
from harness.train.recipe import Recipe
from harness.train.task import Task

CALL = "harness.train.run:count_parameters"
LIMIT_SECONDS = 600.0


def counter(
    model: Model, task: Task, recipe: Recipe, around: Surroundings
) -> Callable[[Sequence[int]], list[int]]:
    """A function from widths to numbers of parameters (without word vectors), by a child.

    Raises
    ------
    UsageError
        From the function: if the model can't be built.
    """
    arguments: Mapping[str, Any] = {
        "model": model.name, "task": task.name, "recipe": recipe.as_dict(),
        "options": dict(model.options), "directory": around.directory, "vectors": around.vectors,
        "given": list(around.registry.extra),
    }  # fmt: skip

    def count(widths: Sequence[int]) -> list[int]:
        outcome = run(CALL, {**arguments, "widths": list(widths)}, Limits(seconds=LIMIT_SECONDS))
        if outcome.status != "ok":
            detail = outcome.detail.removeprefix("UsageError: ").removeprefix("BadOption: ")
            raise UsageError(
                f"{model} can't be built on {task.name}: {detail} (--recipe width=... heads=...)"
            )
        return list(outcome.value)

    return count


def nearest_width(counts: Mapping[int, int], target: int) -> int:
    """The width whose number of parameters is nearest to the target; of equals the larger."""
    return min(counts, key=lambda width: (abs(counts[width] - target), -width))


def match_parameters(
    models: Sequence[Model], task: Task, recipes: Sequence[Recipe], around: Surroundings
) -> list[Recipe]:
    """Recipes under which both models have as nearly as possible the same number of parameters.

    The width of the larger model's context fusion is reduced, in steps of its heads.

    Returns
    -------
    list of Recipe
        One per model; at most one of them is changed.

    Raises
    ------
    UsageError
        If a model can't be built, or the larger one can't be narrowed.
    """
    counters = [counter(m, task, r, around) for m, r in zip(models, recipes, strict=True)]
    sizes = [c([r.width])[0] for c, r in zip(counters, recipes, strict=True)]
    if sizes[0] == sizes[1]:
        return list(recipes)
    larger = sizes.index(max(sizes))
    recipe, target = recipes[larger], min(sizes)
    widths = list(range(recipe.heads, recipe.width + 1, recipe.heads))
    try:
        counts = dict(zip(widths, counters[larger](widths), strict=True))
    except UsageError as error:
        raise UsageError(f"--match parameters: {error}") from None
    narrowed = replace(recipe, width=nearest_width(counts, target))
    return [narrowed if i == larger else r for i, r in enumerate(recipes)]
