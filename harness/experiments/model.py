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
from reference_impls.mechanism import Mechanism

SET_BY_RECIPES = ("attention_dropout", "heads", "positions")
"""Options whose place another setting takes where a model's name has none: a recipe's, or that of
the translation model, which has positions of its own."""
_TYPED = (bool, int, float, str, type(None))
"""What a value of an option can be, but for lists."""
_MODEL = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<options>[^\]]*)\])?")


@dataclass(frozen=True)
class Model:
    """A mechanism as it is trained."""

    name: str  # ``mechanism.implementation``.
    options: tuple[tuple[str, str], ...] = ()  # for the mechanism's factory

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

    @property
    def form(self) -> str:
        """What recipes are tried with: ``multi_head[positions=none]``, however it is computed."""
        return form_of(str(self))


def form_of(model: str) -> str:
    """``multi_head[positions=none]`` of ``multi_head.sdpa[positions=none]``."""
    name, bracket, options = model.partition("[")
    return (name.rpartition(".")[0] or name) + bracket + options


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
            value, other = _plain(value), _plain(usual[name])
            # True is not 1.
            same = isinstance(value, bool) == isinstance(other, bool) and value == other
            if same and name not in SET_BY_RECIPES:
                continue
        told.append(f"{name}={value!r}")
    return model.name + (f"[{','.join(told)}]" if told else "")


def recipes_of(task: Task, models: Sequence[Model], texts: Sequence[str]) -> list[Recipe]:
    """The recipe of each model: the task's common one, with what ``--recipe`` changes."""
    settings = parse_settings(texts, [model.names for model in models], task.recipes, task.name)
    return [
        changed(task.recipe_for(model.form), chosen)
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


def _of_random_words(task: Task, vectors: str | None) -> bool:
    """Whether words start without vectors; a table decides how wide they are."""
    from harness.train.data.vectors import NO_VECTORS

    own_words = task.kind != "translation" and bool(task.vectors)
    return own_words and (vectors or task.vectors) == NO_VECTORS


_OF_PAIRS = "classification of pairs", lambda t, _: t.kind == "classification" and t.pairs
_OF_TRANSLATION = "translation", lambda t, _: t.kind == "translation"
OF_TASKS: Mapping[str, tuple[str, Callable[[Task, str | None], bool]]] = MappingProxyType(
    {
        "degree_loss": ("relatedness", lambda t, _: t.kind == "relatedness"),
        "activation": _OF_PAIRS,
        "highway": _OF_PAIRS,
        "hidden": ("sentences and pairs", lambda t, _: t.kind != "tagging"),
        # Words of a corpus have characters.
        "characters": ("tagging of words", lambda t, _: t.kind == "tagging" and bool(t.files)),
        "crf": ("tagging", lambda t, _: t.kind == "tagging"),
        "layers": _OF_TRANSLATION,
        "smoothing": _OF_TRANSLATION,
        "word_width": ("words without vectors (--vectors none)", _of_random_words),
    }
)
"""Fields that only some tasks read; see `harness.train.kinds` and `harness.train.data`."""
OF_MECHANISMS: Mapping[str, tuple[str, str, Callable[[Mechanism], bool]]] = MappingProxyType(
    {
        "heads": ("heads", "any", lambda m: m.takes_heads is not False),
        # Not what pools words as they are; see `harness.train.encoder.encoder`.
        "width": (
            "a width of its own",
            "one",
            lambda m: not (m.keeps_width and m.output == "sentence"),
        ),
        "attention_dropout": (
            "attention dropout",
            "any",
            lambda m: "attention_dropout" in m.options,
        ),
        **{
            field.name: ("a policy", "one", lambda m: "selection" in m.options or not m.folder)
            for field in fields(Recipe)
            if field.name.startswith("policy_")
        },
    }
)
"""Fields that only some mechanisms read; see `harness.train.encoder`. Of one of the user's own,
which has no folder, nothing is known: it may have heads, or a policy."""
FOR_ALL = ("heads", "width", "attention_dropout")
"""Those of them that are set for all of a sweep at once, read or not: the command that repeats one
of its runs has to be taken. `one_sided` tells of them."""


def _reads(name: str, model: Model, registry: Registry) -> bool:
    """Whether a model reads a field of `OF_MECHANISMS`: what its own options say comes first."""
    mechanism, _ = registry.find(model.name)
    return OF_MECHANISMS[name][2](mechanism) and name not in dict(model.options)


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
        of, read = OF_TASKS.get(name, ("", None))
        if read is not None and not any(read(task, vectors) for task in tasks):
            raise UsageError(
                f"--recipe {text}: {name} is read for {of} alone, and of "
                f"{', '.join(task.name for task in tasks)} none is; leave it out"
            )
        asked = [m for m in models if not whose or whose in m.names]
        if name not in OF_MECHANISMS or not asked or (name in FOR_ALL and not whose):
            continue
        if any(_reads(name, model, registry) for model in asked):
            continue
        has, one, has_it = OF_MECHANISMS[name]
        fixed = [str(model) for model in asked if has_it(registry.find(model.name)[0])]
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
