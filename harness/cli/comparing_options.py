"""What the options of ``attnbench compare`` mean: models, seeds, margins, recipes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from harness.experiments.model import Model, parse_model
from harness.experiments.replicates import LARGEST_SEED, MOST_SEEDS
from harness.registry import Registry
from harness.train.recipe import Recipe, changed, parse_settings
from harness.train.task import Task

BASELINE = "multi_head"
SUBJECT = "mtsa"
SEEDS, FOLD_SEEDS = "5", "1"
"""How many seeds unless others are given, without and with folds."""


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


def seeds_for(text: str | None, task: Task) -> list[int]:
    """The seeds of a task; unless others are given five, or one that goes through all folds."""
    return read_seeds(text or (FOLD_SEEDS if task.folds else SEEDS))


def read_margin(text: str | None, task: Task) -> float | None:
    """A difference that does not matter, in units of the metric; ``0.5%`` is 0.005.

    Raises
    ------
    UsageError
        If it is not a positive number, or not below 1 for a share.
    """
    if text is None:
        return None
    try:
        margin = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        margin = math.nan
    if not 0 < margin < math.inf:
        raise UsageError(f"--margin: given {text!r}; expected a positive number, e.g. 0.01 or 1%")
    if task.metric == "accuracy" and margin >= 1:
        raise UsageError(f"--margin: given {text}; one point of accuracy is 0.01 or 1%")
    return margin


def read_margins(texts: Sequence[str], tasks: Sequence[Task]) -> dict[str, float | None]:
    """The margin of each task: ``1%`` for all of them, ``trec:1%`` for one.

    Raises
    ------
    UsageError
        For a task that is not compared, one margin for tasks of unlike metrics, or two for one.
    """
    given: dict[str, str] = {}
    for text in texts:
        name, colon, number = text.rpartition(":")
        if colon and name not in {task.name for task in tasks}:
            known = ", ".join(task.name for task in tasks)
            raise UsageError(f"--margin {text}: {name!r} is not compared; the tasks are {known}")
        if not colon and len({task.metric for task in tasks}) > 1:
            raise UsageError(
                f"--margin {text}: the tasks have different metrics; give one each, e.g. "
                f"--margin {tasks[0].name}:{text}"
            )
        for task in tasks:
            if colon and task.name != name:
                continue
            if task.name in given:
                raise UsageError(f"--margin: given {given[task.name]} and {number} for {task.name}")
            given[task.name] = number
    return {task.name: read_margin(given.get(task.name), task) for task in tasks}


def read_models(names: Sequence[str], registry: Registry, baseline: str | None) -> list[Model]:
    """The models, the baseline last; by default MTSA, or what ``--with`` gave, and multi-head.

    Raises
    ------
    UsageError
        If there are more than two and no baseline is named, or one is unknown.
    """
    own = registry.given_names
    if baseline is not None:
        names = [*(names or own or [SUBJECT]), baseline]
    elif not names:
        names = [own[0] if own else SUBJECT, BASELINE]
    elif len(names) == 1 and own and names[0] not in own:
        names = [own[0], names[0]]
    elif len(names) == 1:
        names = [names[0], BASELINE]
    elif len(names) > 2:
        raise UsageError(
            f"given {len(names)} models; expected two, e.g. compare mtsa multi_head, or all "
            f"against one: --baseline {names[-1]}"
        )
    return [parse_model(name, registry) for name in names]


def recipes_of(task: Task, models: Sequence[Model], values: Mapping[str, Any]) -> list[Recipe]:
    """The recipe of each model: the task's common one, with what ``--recipe`` changes."""
    texts = list(values["recipe"])
    if values["choose"] is not None:
        texts.append(f"choose={values['choose']}")
    settings = parse_settings(texts, [model.names for model in models], task.recipes, task.name)
    return [
        changed(task.recipe_for(model.mechanism), chosen)
        for model, chosen in zip(models, settings, strict=True)
    ]
