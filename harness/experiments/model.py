"""A mechanism as it is trained: its name, its options, and what of a recipe it reads."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from harness.case import literal, parse_options
from harness.errors import UsageError
from harness.registry import Registry, resolve
from harness.train.recipe import Recipe, changed, changes, parse_settings
from harness.train.task import Task

SET_BY_RECIPES = ("attention_dropout", "heads", "positions")
"""Options whose place another setting takes where a model's name has none: a recipe's, or that of
the translation model, which has positions of its own."""
_TYPED = (bool, int, float, str, type(None))
"""What a value of an option can be, but for lists."""
_MODEL = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<options>[^\]]*)\])?")


@dataclass(frozen=True)
class Model:
    """A mechanism as it is trained.

    Attributes
    ----------
    name : str
        ``mechanism.implementation``.
    options : tuple of (str, str)
        For the mechanism's factory.
    """

    name: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """``mtsa.algorithm1[scale_t=identity]``: read back by `parse_model`."""
        options = ",".join(f"{k}={v}" for k, v in self.options)
        return self.name + (f"[{options}]" if options else "")

    @property
    def names(self) -> tuple[str, ...]:
        """By which ``--recipe MODEL:NAME=VALUE`` may call it."""
        return tuple(dict.fromkeys((self.mechanism, self.name, str(self))))

    @property
    def mechanism(self) -> str:
        """First part of the name."""
        return self.name.rpartition(".")[0]


def parse_model(text: str, registry: Registry) -> Model:
    """Read ``mechanism``, ``mechanism.implementation``, with ``[option=value,...]`` behind it.

    Raises
    ------
    UsageError
        If it has another form, an option twice, or there is no such mechanism.
    """
    match = _MODEL.fullmatch(text)
    if match is None:
        raise UsageError(f"given {text!r}; expected e.g. mtsa, or mtsa.plain[scale_t=identity]")
    mechanism, implementation = registry.find(match["name"])
    options = parse_options(match["options"].split(",") if match["options"] else [])
    names = [name for name, _ in options]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"given {text!r}, with {name} twice; expected each option once")
    return Model(f"{mechanism.name}.{implementation.name}", options)


def meaning(model: Model, registry: Registry, tokens: bool = False) -> str:
    """A model by what it is, however it was typed: keys of runs are made of it.

    Options have no order, those that say what is so anyway say nothing, and ``1`` is ``1.0``. What
    the recipe may set (`SET_BY_RECIPES`) is never so anyway.

    Parameters
    ----------
    tokens : bool
        Whether tokens are asked for (tagging), for which a sentence model has other options.
    """
    usual = _usual(model, registry)
    if tokens:
        usual |= registry.find(model.name)[0].tokens
    told = []
    for name, text in sorted(model.options):
        value = literal(text)
        if name in usual:
            value = _plain(value)
            if name not in SET_BY_RECIPES and _same(value, _plain(usual[name])):
                continue
        told.append(f"{name}={value!r}")
    return model.name + (f"[{','.join(told)}]" if told else "")


def recipes_of(task: Task, models: Sequence[Model], texts: Sequence[str]) -> list[Recipe]:
    """The recipe of each model: the task's common one, with what ``--recipe`` changes."""
    settings = parse_settings(texts, [model.names for model in models], task.recipes, task.name)
    return [
        changed(task.recipe_for(model.mechanism), chosen)
        for model, chosen in zip(models, settings, strict=True)
    ]


def _usual(model: Model, registry: Registry) -> dict[str, Any]:
    """What options are where none is given, as the record says; else a factory of ``--with``.

    Others are not asked: that would import their packages, whatever is wanted.
    """
    mechanism, implementation = registry.find(model.name)
    known = {**mechanism.options, **implementation.options}
    if known or mechanism.name not in registry.given_names:
        return known
    try:
        parameters = inspect.signature(resolve(implementation.factory)).parameters
    except (TypeError, ValueError):  # of a callable without one
        return {}
    return {p.name: p.default for p in parameters.values() if isinstance(p.default, _TYPED)}


def _plain(value: Any) -> Any:
    """Whole numbers as integers, lists and tuples as lists."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _same(value: Any, usual: Any) -> bool:
    """Whether two values are equal; true is not 1."""
    return isinstance(value, bool) == isinstance(usual, bool) and bool(value == usual)


def _of_relatedness(task: Task, _vectors: str | None) -> bool:
    return task.kind == "relatedness"


def _of_pairs(task: Task, _vectors: str | None) -> bool:
    return task.kind == "classification" and task.pairs


def _of_tagging(task: Task, _vectors: str | None) -> bool:
    return task.kind == "tagging"


def _of_spelled(task: Task, _vectors: str | None) -> bool:
    """Whether words have characters: those of a corpus do."""
    return task.kind == "tagging" and bool(task.files)


def _has_hidden(task: Task, _vectors: str | None) -> bool:
    return task.kind != "tagging"


def _of_translation(task: Task, _vectors: str | None) -> bool:
    return task.kind == "translation"


def _of_random_words(task: Task, vectors: str | None) -> bool:
    """Whether words start without vectors; a table decides how wide they are."""
    from harness.train.data.vectors import NO_VECTORS

    if task.kind == "translation":
        return False
    return bool(task.vectors) and (vectors or task.vectors) == NO_VECTORS


OF_TASKS: Mapping[str, tuple[str, Callable[[Task, str | None], bool]]] = MappingProxyType(
    {
        "degree_loss": ("relatedness", _of_relatedness),
        "activation": ("classification of pairs", _of_pairs),
        "highway": ("classification of pairs", _of_pairs),
        "hidden": ("sentences and pairs", _has_hidden),
        "characters": ("tagging of words", _of_spelled),
        "crf": ("tagging", _of_tagging),
        "layers": ("translation", _of_translation),
        "smoothing": ("translation", _of_translation),
        "word_width": ("words without vectors (--vectors none)", _of_random_words),
    }
)
"""Fields that only some tasks read; see `harness.train.kinds` and `harness.train.data`."""


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
    """Not what pools words as they are; see `harness.train.encoder.encoder`."""
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
"""Fields that only some mechanisms read; see `harness.train.encoder`."""
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
            text
            for text in alike
            if (name := text.partition("=")[0]) in OF_MECHANISMS
            and _reads(name, reader, registry)
            and not _reads(name, other, registry)
        ]
        if found:
            are = "is" if len(found) == 1 else "are"
            out.append(f"{', '.join(found)} {are} read by {reader} alone, not by {other}")
    return tuple(out)
