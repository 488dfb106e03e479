"""What the options of ``attnbench compare`` mean: models, seeds, margins, recipes."""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import UsageError
from harness.experiments.model import Model, parse_model
from harness.options import Amount
from harness.registry import Registry
from harness.train.task import Task

BASELINE = "multi_head"
SUBJECT = "mtsa"
SEEDS, FOLD_SEEDS = 5, 1
"""How many seeds unless others are given, without and with folds."""


def seeds_for(seeds: Sequence[int] | None, task: Task) -> Sequence[int]:
    """The seeds of a task; unless others are given five, or one that goes through all folds."""
    if seeds is not None:
        return seeds
    return range(FOLD_SEEDS if task.folds else SEEDS)


def read_margins(
    given: Sequence[tuple[str, Amount]], tasks: Sequence[Task]
) -> dict[str, float | None]:
    """The margin of each task: ``1%`` for all of them, ``trec:1%`` for one.

    Raises
    ------
    UsageError
        For a task that is not compared, one margin for tasks of unlike metrics, two for one task,
        or one point of accuracy and more.
    """
    found: dict[str, Amount] = {}
    for name, margin in given:
        typed = f"{name}:{margin.text}" if name else margin.text
        if name and name not in {task.name for task in tasks}:
            known = ", ".join(task.name for task in tasks)
            raise UsageError(f"--margin {typed}: {name!r} is not compared; the tasks are {known}")
        if not name and len({task.metric for task in tasks}) > 1:
            raise UsageError(
                f"--margin {typed}: the tasks have different metrics; give one each, e.g. "
                f"--margin {tasks[0].name}:{typed}"
            )
        for task in tasks:
            if name and task.name != name:
                continue
            if task.name in found:
                before = found[task.name].text
                raise UsageError(f"--margin: given {before} and {margin.text} for {task.name}")
            if task.metric == "accuracy" and margin.value >= 1:
                raise UsageError(
                    f"--margin: given {margin.text}; one point of accuracy is 0.01 or 1%"
                )
            found[task.name] = margin
    return {t.name: found[t.name].value if t.name in found else None for t in tasks}


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
