"""Settings of a recipe that would change nothing of a run but its key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

from harness.errors import UsageError
from harness.experiments.design import Model
from harness.registry import Registry
from harness.train.task import Task


def _of_relatedness(task: Task) -> bool:
    return task.kind == "relatedness"


def _of_pairs(task: Task) -> bool:
    return task.kind == "classification" and task.pairs


OF_TASKS = MappingProxyType[str, tuple[str, Callable[[Task], bool]]](
    {
        "degree_loss": ("relatedness", _of_relatedness),
        "activation": ("classification of pairs", _of_pairs),
        "highway": ("classification of pairs", _of_pairs),
    }
)
"""Fields that only some tasks read; see `harness.train.objective`."""
OF_POLICIES = "policy_"
"""What the fields begin with that only a mechanism with a policy reads.

Heads and attention dropout are read by some mechanisms alone, too; they are set for all of a sweep
at once, and the command that repeats one of its runs has to be taken.
"""


def check_read(
    texts: Sequence[str], models: Sequence[Model], tasks: Sequence[Task], registry: Registry
) -> None:
    """Refuse a field that no model of those it is given to reads, or that none of the tasks does.

    Parameters
    ----------
    texts : sequence of str
        As ``--recipe`` has them; named recipes set every field, read or not.

    Raises
    ------
    UsageError
        For the first one.
    """
    for text in texts:
        left, equals, _ = text.rpartition("=")
        whose, _, name = left.rpartition(":") if equals else ("", "", "")
        asked = [m for m in models if not whose or whose in m.names]
        of, reads = OF_TASKS.get(name, ("", None))
        if reads is not None and not any(map(reads, tasks)):
            raise UsageError(
                f"--recipe {text}: {name} is read for {of} alone, and of "
                f"{', '.join(task.name for task in tasks)} none is; leave it out"
            )
        policy = name.startswith(OF_POLICIES)
        if policy and asked and not any(_has_policy(m, registry) for m in asked):
            raise UsageError(
                f"--recipe {text}: only a mechanism with a policy reads {name}, and of "
                f"{', '.join(map(str, asked))} none has one; leave it out"
            )


def _has_policy(model: Model, registry: Registry) -> bool:
    """Whether it may have one: of a mechanism of the user's own nothing is known."""
    mechanism, _ = registry.find(model.name)
    return "selection" in mechanism.options or not mechanism.folder
