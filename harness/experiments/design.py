"""What is compared, how: declared, and written down, before there are results."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from harness.case import literal, parse_options
from harness.errors import UsageError
from harness.experiments.replicates import replicates, units_of
from harness.experiments.unread import one_sided
from harness.records import schema
from harness.registry import Registry, code_hash, module_hash, resolve
from harness.train.recipe import Recipe, identity
from harness.train.task import Task, check_fold

POOLING = "source2token"
"""Part of every model, and so of every run's code."""
SET_BY_RECIPES = ("attention_dropout", "heads")
"""Options whose place a recipe's setting takes where a model's name has none."""
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


def meaning(model: Model, registry: Registry) -> str:
    """A model by what it is, however it was typed: keys of runs are made of it.

    Options have no order, those that say what is so anyway say nothing, and ``1`` is ``1.0``. What
    the recipe may set (`SET_BY_RECIPES`) is never so anyway.
    """
    usual = _usual(model, registry)
    told = []
    for name, text in sorted(model.options):
        value = literal(text)
        if name in usual:
            value = _plain(value)
            if name not in SET_BY_RECIPES and _same(value, _plain(usual[name])):
                continue
        told.append(f"{name}={value!r}")
    return model.name + (f"[{','.join(told)}]" if told else "")


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


@dataclass(frozen=True)
class Run:
    """One training run: what it is, the key of its record, the arguments of its call."""

    model: Model
    task: str
    recipe: Recipe
    seed: int
    key: str
    code: str
    arguments: Mapping[str, Any]
    fold: int | None = None
    data: str = ""

    @property
    def draw(self) -> str:
        """``seed 3``, or with folds ``seed 0 fold 7``."""
        return f"seed {self.seed}" + ("" if self.fold is None else f" fold {self.fold}")

    @property
    def case(self) -> str:
        """How a record names it."""
        return f"{self.model} {self.task} {self.draw}"

    @property
    def label(self) -> str:
        """For progress and messages."""
        return f"{self.model} {self.draw}"


@dataclass(frozen=True)
class Surroundings:
    """What all runs of a command share.

    Attributes
    ----------
    registry : Registry
    fingerprint : mapping
        From `harness.measure.device.fingerprint`.
    directory : str or None
        The data directory; None for tasks without files.
    vectors : str
        A file, a table of the data directory, ``none``, or empty for tasks without words.
    data : str
        Digest of the corpus and vector files.
    """

    registry: Registry
    fingerprint: Mapping[str, Any]
    directory: str | None = None
    vectors: str = ""
    data: str = ""


@cache
def run_code(mechanism: str, load: str, registry: Registry) -> str:
    """Hash of all source that a run depends on: of the mechanism, training, and this task's data.

    Parameters
    ----------
    load : str
        The task's loader: other tasks are no part of it.
    """
    codes = [code_hash(registry.mechanism(name), "train") for name in (mechanism, POOLING)]
    return schema.digest([*codes, module_hash(load)])


def make_run(
    model: Model, task: Task, recipe: Recipe, seed: int, around: Surroundings,
    fold: int | None = None,
) -> Run:  # fmt: skip
    """A run with the key under which its record is known again.

    Raises
    ------
    UsageError
        If the task has no such fold, or has folds and none is given.
    """
    check_fold(task, fold)
    code = run_code(model.mechanism, task.load, around.registry)
    made_of = [
        "run", meaning(model, around.registry), task.name, dict(task.options),
        identity(recipe.as_dict()), seed, fold, around.vectors, around.data, code,
        dict(around.fingerprint),
    ]  # fmt: skip
    arguments = {
        "model": model.name, "task": task.name, "recipe": recipe.as_dict(), "seed": seed,
        "fold": fold, "options": dict(model.options), "directory": around.directory,
        "vectors": around.vectors, "device": around.fingerprint["device"],
        "given": list(around.registry.extra),
    }  # fmt: skip
    key = schema.digest(made_of)
    return Run(model, task.name, recipe, seed, key, code, arguments, fold, around.data)


@dataclass(frozen=True)
class Design:
    """A comparison of two models, paired by seed, and by fold where there are folds.

    Or unpaired, if that is declared: the runs are the same, judged as two independent groups.

    Attributes
    ----------
    models : pair of Model
        The first one is judged against the second.
    task : Task
    recipes : pair of Recipe
        One per model; equal unless asked otherwise.
    seeds : tuple of int
        The same for both: data order and split are then the same, and differences are paired. With
        folds, every fold is run once per seed.
    margin : float or None
        Differences smaller than this do not matter (in units of the metric): declared before.
    match : {"none", "parameters"}
        Whether the larger model was narrowed to the other's number of parameters.
    runs : tuple of pair of Run
        By seed; with folds by seed and fold.
    meanings : pair of str
        Of the models, see `meaning`.
    paired : bool
    one_sided : tuple of str
        What the recipes say to both, but only one of the models reads; a line each.
    """

    models: tuple[Model, Model]
    task: Task
    recipes: tuple[Recipe, Recipe]
    seeds: tuple[int, ...]
    margin: float | None
    match: str
    runs: tuple[tuple[Run, Run], ...]
    meanings: tuple[str, str]
    paired: bool = True
    one_sided: tuple[str, ...] = ()

    def record(self, fingerprint: Mapping[str, Any]) -> dict[str, Any]:
        """As it stands in the journal, before any run of it is started."""
        keys = [[first.key, second.key] for first, second in self.runs]
        # Designs of one question differ in seeds, margin and the order of the models at most.
        sides = sorted(
            [meant, schema.digest(identity(r.as_dict()))]
            for meant, r in zip(self.meanings, self.recipes, strict=True)
        )
        question = [sides, self.task.name, self.match, self.runs[0][0].arguments["vectors"]]
        # Of a paired design nothing is added: those that were declared before keep their keys.
        how = [] if self.paired else ["unpaired"]
        return {
            "kind": "design",
            "key": schema.digest(["design", keys, self.margin, self.match, *how]),
            "question": schema.digest([*question, *how]),
            "paired_question": schema.digest(question),
            "models": [str(m) for m in self.models],
            "task": self.task.name,
            "metric": self.task.metric,
            "metrics": list(self.task.metrics),
            "higher_is_better": self.task.higher_is_better,
            "split": self.task.split,
            "one_test_set": self.task.one_test_set,
            "recipes": [r.as_dict() for r in self.recipes],
            "one_sided": list(self.one_sided),
            "seeds": list(self.seeds),
            "folds": self.task.folds,
            "units": units_of(len(self.seeds), self.task.folds),
            "paired": self.paired,
            "margin": self.margin,
            "match": self.match,
            "runs": keys,
            "fingerprint": schema.digest(dict(fingerprint)),
            "status": "ok",
        }


def check_pairing(task: Task, paired: bool) -> None:
    """Refuse folds that are not to be paired.

    Raises
    ------
    UsageError
        With what to leave out.
    """
    if task.folds and not paired:
        raise UsageError(
            f"--unpaired: {task.name} is judged by {task.folds} folds, which both models share; "
            "leave it out"
        )


def make_design(
    models: Sequence[Model], task: Task, recipes: Sequence[Recipe], seeds: Sequence[int],
    around: Surroundings, margin: float | None = None, match: str = "none", paired: bool = True,
) -> Design:  # fmt: skip
    """Declare a comparison.

    Raises
    ------
    UsageError
        For equal models, no seeds, repeated seeds, a margin that is not positive, or folds that
        are not to be paired.
    """
    first, second = models
    meanings = meaning(first, around.registry), meaning(second, around.registry)
    if meanings[0] == meanings[1] and recipes[0] == recipes[1]:
        also = "" if first == second else f", as which {second} is the same"
        raise UsageError(f"{first} is compared with itself{also}; give two different models")
    if not seeds or len(set(seeds)) < len(seeds):
        raise UsageError(f"given seeds {list(seeds)}; expected at least one, each of them once")
    if margin is not None and not 0 < margin < math.inf:
        raise UsageError(f"given --margin {margin}; expected a positive number of the metric")
    check_pairing(task, paired)
    runs = tuple(
        (
            make_run(first, task, recipes[0], one.seed, around, one.fold),
            make_run(second, task, recipes[1], one.seed, around, one.fold),
        )
        for one in replicates(seeds, task.folds)
    )
    return Design(
        (first, second), task, (recipes[0], recipes[1]), tuple(seeds), margin, match, runs,
        meanings, paired, one_sided(models, task, recipes, around.registry),
    )  # fmt: skip
