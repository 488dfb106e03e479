"""Settings of a recipe that would change nothing of a run but its key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from types import MappingProxyType

from harness.errors import UsageError
from harness.experiments.design import Model
from harness.registry import Registry
from harness.train.recipe import Recipe
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


def _has_policy(model: Model, registry: Registry) -> bool:
    """Whether it may have one: of a mechanism of the user's own nothing is known."""
    mechanism, _ = registry.find(model.name)
    return "selection" in mechanism.options or not mechanism.folder


def _drops_attention(model: Model, registry: Registry) -> bool:
    return "attention_dropout" in registry.find(model.name)[0].options


def _has_heads(model: Model, registry: Registry) -> bool:
    return registry.find(model.name)[0].takes_heads


OF_MECHANISMS = MappingProxyType[str, tuple[str, str, Callable[[Model, Registry], bool]]](
    {
        "heads": ("heads", "any", _has_heads),
        "attention_dropout": ("attention dropout", "any", _drops_attention),
        **{
            field.name: ("a policy", "one", _has_policy)
            for field in fields(Recipe)
            if field.name.startswith("policy_")
        },
    }
)
"""Fields that only some mechanisms read; see `harness.train.objective`."""


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
        has, one, has_it = OF_MECHANISMS.get(name, ("", "", None))
        if asked and has_it is not None and not any(has_it(m, registry) for m in asked):
            raise UsageError(
                f"--recipe {text}: only a mechanism with {has} reads {name}, and of "
                f"{', '.join(map(str, asked))} none has {one}; leave it out"
            )
