"""Settings of a recipe that would change nothing of a run but its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.registry import Registry
from harness.train.recipe import Recipe, changes
from harness.train.task import Task

if TYPE_CHECKING:
    from harness.experiments.design import Model


def _of_relatedness(task: Task, _vectors: str | None) -> bool:
    return task.kind == "relatedness"


def _of_pairs(task: Task, _vectors: str | None) -> bool:
    return task.kind == "classification" and task.pairs


def _of_random_words(task: Task, vectors: str | None) -> bool:
    """Whether words start without vectors; a table decides how wide they are."""
    from harness.train.data.corpus import NO_VECTORS

    return bool(task.vectors) and (vectors or task.vectors) == NO_VECTORS


OF_TASKS: Mapping[str, tuple[str, Callable[[Task, str | None], bool]]] = MappingProxyType(
    {
        "degree_loss": ("relatedness", _of_relatedness),
        "activation": ("classification of pairs", _of_pairs),
        "highway": ("classification of pairs", _of_pairs),
        "word_width": ("words without vectors (--vectors none)", _of_random_words),
    }
)
"""Fields that only some tasks read; see `harness.train.objective` and `harness.train.data`."""


def _has_policy(model: Model, registry: Registry) -> bool:
    """Whether it may have one: of a mechanism of the user's own nothing is known."""
    mechanism, _ = registry.find(model.name)
    return "selection" in mechanism.options or not mechanism.folder


def _drops_attention(model: Model, registry: Registry) -> bool:
    return "attention_dropout" in registry.find(model.name)[0].options


def _has_heads(model: Model, registry: Registry) -> bool:
    """Whether it may have some: a factory of the user's own is passed them if it names them."""
    mechanism, _ = registry.find(model.name)
    return mechanism.takes_heads or not mechanism.folder


def _has_width(model: Model, registry: Registry) -> bool:
    """Not what pools words as they are; see `harness.train.objective.encoder`."""
    mechanism, _ = registry.find(model.name)
    return not (mechanism.keeps_width and mechanism.output == "sentence")


OF_MECHANISMS: Mapping[str, tuple[str, str, Callable[[Model, Registry], bool]]] = MappingProxyType(
    {
        "heads": ("heads", "any", _has_heads),
        "width": ("a width of its own", "one", _has_width),
        "attention_dropout": ("attention dropout", "any", _drops_attention),
        **{
            field.name: ("a policy", "one", _has_policy)
            for field in fields(Recipe)
            if field.name.startswith("policy_")
        },
    }
)
"""Fields that only some mechanisms read; see `harness.train.objective`."""
FOR_ALL = ("heads", "width", "attention_dropout")
"""Those of them that are set for all of a sweep at once, read or not: the command that repeats one
of its runs has to be taken. `one_sided` tells of them."""


def _reads(name: str, model: Model, registry: Registry) -> bool:
    """Whether a model reads a field of `OF_MECHANISMS`: what its own options say comes first."""
    return OF_MECHANISMS[name][2](model, registry) and name not in dict(model.options)


def check_read(
    texts: Sequence[str],
    models: Sequence[Model],
    tasks: Sequence[Task],
    registry: Registry,
    vectors: str | None = None,
) -> None:
    """Refuse a field that no model of those it is given to reads, or that none of the tasks does.

    Parameters
    ----------
    texts : sequence of str
        As ``--recipe`` has them; named recipes set every field, read or not.
    vectors : str, optional
        As ``--vectors`` has them, instead of the tasks' own.

    Raises
    ------
    UsageError
        For the first one.
    """
    for text in texts:
        left, equals, _ = text.rpartition("=")
        whose, _, name = left.rpartition(":") if equals else ("", "", "")
        if name in OF_TASKS:
            _check_tasks(text, name, tasks, vectors)
        asked = [m for m in models if not whose or whose in m.names]
        if name in OF_MECHANISMS and asked and (whose or name not in FOR_ALL):
            _check_models(text, name, asked, registry)


def _check_tasks(text: str, name: str, tasks: Sequence[Task], vectors: str | None) -> None:
    of, reads = OF_TASKS[name]
    if not any(reads(task, vectors) for task in tasks):
        raise UsageError(
            f"--recipe {text}: {name} is read for {of} alone, and of "
            f"{', '.join(task.name for task in tasks)} none is; leave it out"
        )


def _check_models(text: str, name: str, asked: Sequence[Model], registry: Registry) -> None:
    if any(_reads(name, model, registry) for model in asked):
        return
    has, one, has_it = OF_MECHANISMS[name]
    fixed = [str(model) for model in asked if has_it(model, registry)]
    if fixed:
        raise UsageError(
            f"--recipe {text}: the options of {', '.join(fixed)} say {name} themselves; "
            "leave out one of them"
        )
    raise UsageError(
        f"--recipe {text}: only a mechanism with {has} reads {name}, and of "
        f"{', '.join(map(str, asked))} none has {one}; leave it out"
    )


def one_sided(
    models: Sequence[Model], task: Task, recipes: Sequence[Recipe], registry: Registry
) -> tuple[str, ...]:
    """What two recipes change alike of the common one, but only one of both models reads.

    Returns
    -------
    tuple of str
        One line for each model that reads some of it alone.
    """
    mine, others = (changes(recipe.as_dict(), task.recipe) for recipe in recipes)
    alike = [text for text in mine if text in others]
    out = []
    for reader, other in (models, models[::-1]):
        found = [
            text for text in alike
            if (name := text.partition("=")[0]) in OF_MECHANISMS
            and _reads(name, reader, registry) and not _reads(name, other, registry)
        ]  # fmt: skip
        if found:
            are = "is" if len(found) == 1 else "are"
            out.append(f"{', '.join(found)} {are} read by {reader} alone, not by {other}")
    return tuple(out)
