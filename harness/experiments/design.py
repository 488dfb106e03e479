"""What is compared, how: declared, and written down, before there are results.

A family of models, each against one baseline, on one task or more; a pair is the smallest family.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.errors import UsageError
from harness.experiments.model import Model, meaning, one_sided
from harness.experiments.replicates import Replicate, replicates, units_of
from harness.options.groups import Training
from harness.records import schema
from harness.registry import Registry, code_hash, module_hash
from harness.train.data import hub
from harness.train.data.corpora import data_digest, unlike
from harness.train.data.directory import data_directory
from harness.train.data.vectors import NO_VECTORS, canonical
from harness.train.recipe import Recipe, identity
from harness.train.task import Task, check_fold

POOLING = "source2token"
"""Part of every model, and so of every run's code."""
CORRECTION = "holm"
OVERALL = (
    "over tasks, of their means: Friedman's test of all models (ranks inside tasks, so that "
    "metrics may differ, of means over the replicates that every model finished); each "
    "model against the baseline by a paired t-test where tasks share a metric, and by "
    "the exact sign test of wins and losses; Holm over the models"
)
"""Declared beforehand, whatever it will show."""


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
    """What all runs of a command share."""

    registry: Registry
    fingerprint: Mapping[str, Any]  # from `harness.measure.device.fingerprint`.
    directory: str | None = None  # the data directory; None for tasks without files
    # A file, a table of the data directory, ``none``, or empty for tasks without words.
    vectors: str = ""
    data: str = ""  # digest of the corpus and vector files


def surroundings(
    task: Task,
    registry: Registry,
    options: Training,
    fingerprint: Callable[[], Mapping[str, Any]],
) -> Surroundings:
    """Data and vectors of a task on a device.

    Parameters
    ----------
    fingerprint : callable
        Tells of the device. Called last: what is wrong with the data is said at once.

    Raises
    ------
    UsageError
        If the task's data are not there, or the vectors.
    """
    if not task.files:
        for option in ("data", "vectors"):
            if getattr(options, option) is not None:
                raise UsageError(f"--{option}: task {task.name} draws its own data; leave it out")
        return Surroundings(registry, fingerprint())
    vectors = options.vectors or task.vectors
    if hub.asked(options.data):
        hub.given_by(task.name, task.files)
        if vectors != NO_VECTORS and not Path(vectors).is_file():
            raise UsageError(
                f"--data hub: the word vectors {vectors!r} are a table of a data directory, "
                "which the hub has not; give --vectors FILE (GloVe's format) or --vectors none"
            )
        folder = hub.directory(task.name, task.files)
    else:
        folder = data_directory(options.data)
    data = data_digest(task, folder, vectors)
    if vectors != NO_VECTORS:
        vectors = canonical(vectors, folder)
    return Surroundings(registry, fingerprint(), str(folder.resolve()), vectors, data)


def tell_unlike(task: Task, folder: Path) -> None:
    """Say which of a task's files are not the listed ones: they may be used, but not unknowingly.

    A line each on standard error, before anything is trained.
    """
    name = task.family or task.name
    for one in unlike(folder, task.files):
        print(
            f"attnbench: {name}: {one.name} in {folder} is not the file of attnbench data "
            "list, so what others measured on that may not be compared with this; attnbench data "
            "check says more",
            file=sys.stderr,
        )


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


def building(model: Model, task: Task, recipe: Recipe, around: Surroundings) -> dict[str, Any]:
    """What of a run's arguments it takes to build its model."""
    return {
        "model": model.name,
        "task": task.name,
        "recipe": recipe.as_dict(),
        "options": dict(model.options),
        "directory": around.directory,
        "vectors": around.vectors,
        "given": list(around.registry.extra),
    }


def make_run(
    model: Model,
    task: Task,
    recipe: Recipe,
    seed: int,
    around: Surroundings,
    fold: int | None = None,
) -> Run:
    """A run with the key under which its record is known again.

    Raises
    ------
    UsageError
        If the task has no such fold, or has folds and none is given.
    """
    check_fold(task, fold)
    code = run_code(model.mechanism, task.load, around.registry)
    made_of = [
        "run",
        meaning(model, around.registry, task.asks_tokens),
        task.name,
        dict(task.options),
        identity(recipe.as_dict()),
        seed,
        fold,
        around.vectors,
        around.data,
        code,
        dict(around.fingerprint),
    ]
    arguments = {
        **building(model, task, recipe, around),
        "seed": seed,
        "fold": fold,
        "device": around.fingerprint["device"],
    }
    key = schema.digest(made_of)
    return Run(model, task.name, recipe, seed, key, code, arguments, fold, around.data)


@dataclass(frozen=True)
class Design:
    """A comparison of two models, paired by seed, and by fold where there are folds.

    Or unpaired, if that is declared: the runs are the same, judged as two independent groups.
    """

    models: tuple[Model, Model]  # the first one is judged against the second
    task: Task
    recipes: tuple[Recipe, Recipe]  # one per model; equal unless asked otherwise
    runs: tuple[tuple[Run, Run], ...]  # by seed; with folds by seed and fold
    record: dict[str, Any]  # as it stands in the journal, before any run of it is started


def check_each_once(what: str, given: Sequence[Any]) -> None:
    """Nothing is asked of no seed, or of one twice; nor of models or tasks.

    Raises
    ------
    UsageError
        If there are none, or one stands there twice.
    """
    if not given or len(set(given)) < len(given):
        shown = ", ".join(map(str, given)) or "none"
        raise UsageError(f"{what}: given {shown}; expected at least one, each of them once")


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
    models: Sequence[Model],
    task: Task,
    recipes: Sequence[Recipe],
    seeds: Sequence[int],
    around: Surroundings,
    margin: float | None = None,
    match: str = "none",
    paired: bool = True,
    elsewhere: Mapping[Replicate, Surroundings] = MappingProxyType({}),
) -> Design:
    """Declare a comparison.

    Parameters
    ----------
    seeds : sequence of int
        The same for both: data order and split are then the same, and differences are paired. With
        folds, every fold is run once per seed.
    margin : float or None
        Differences smaller than this do not matter (in units of the metric).
    match : {"none", "parameters"}
        Whether the larger model was narrowed to the other's number of parameters.
    elsewhere : mapping
        Replicates that another machine has trained: their runs are those made there.

    Raises
    ------
    UsageError
        For equal models, no seeds, repeated seeds, a margin that is not positive, or folds that
        are not to be paired.
    """
    first, second = models
    meanings = [meaning(model, around.registry, task.asks_tokens) for model in models]
    if meanings[0] == meanings[1] and recipes[0] == recipes[1]:
        also = "" if first == second else f", as which {second} is the same"
        raise UsageError(f"{first} is compared with itself{also}; give two different models")
    check_each_once("seeds", seeds)
    if margin is not None and not 0 < margin < math.inf:
        raise UsageError(f"given --margin {margin}; expected a positive number of the metric")
    check_pairing(task, paired)
    runs = tuple(
        (
            make_run(first, task, recipes[0], one.seed, place, one.fold),
            make_run(second, task, recipes[1], one.seed, place, one.fold),
        )
        for one in replicates(seeds, task.folds)
        for place in [elsewhere.get(one, around)]
    )
    keys = [[run.key for run in pair] for pair in runs]
    # Designs of one question differ in seeds, margin and the order of the models at most.
    sides = sorted(
        [meant, schema.digest(identity(r.as_dict()))]
        for meant, r in zip(meanings, recipes, strict=True)
    )
    question = [sides, task.name, match, around.vectors]
    # Of a paired design nothing is added: those that were declared before keep their keys.
    how = [] if paired else ["unpaired"]
    record = {
        "kind": "design",
        "key": schema.digest(["design", keys, margin, match, *how]),
        "question": schema.digest([*question, *how]),
        "paired_question": schema.digest(question),
        "models": [str(m) for m in models],
        "task": task.name,
        "metric": task.metric,
        "metrics": list(task.metrics),
        "higher_is_better": task.higher_is_better,
        "split": task.split,
        "one_test_set": task.one_test_set,
        "recipes": [r.as_dict() for r in recipes],
        "one_sided": list(one_sided(models, task, recipes, around.registry)),
        "seeds": list(seeds),
        "folds": task.folds,
        "units": units_of(len(seeds), task.folds),
        "paired": paired,
        "margin": margin,
        "match": match,
        "runs": keys,
        "fingerprint": schema.digest(dict(around.fingerprint)),
        "status": "ok",
    }
    return Design((first, second), task, (recipes[0], recipes[1]), runs, record)


@dataclass(frozen=True)
class Family:
    """What is judged together, as it is declared before there are results."""

    # One per model and task, each once, the same baseline second; by task, in the order of the
    # models.
    designs: tuple[Design, ...]
    # The file that declares it: see `harness.experiments.declare.planned`.
    plan: Mapping[str, Any] | None = None

    @property
    def baseline(self) -> str:
        """The model that all others are judged against."""
        return str(self.designs[0].models[1])

    @property
    def models(self) -> tuple[str, ...]:
        """The others."""
        return tuple(dict.fromkeys(str(design.models[0]) for design in self.designs))

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(dict.fromkeys(design.task.name for design in self.designs))

    def runs(self) -> Iterator[Run]:
        """Every run once, all models of a replicate in turn: a stop leaves few pairs open."""
        seen = set()
        for task in self.tasks:
            of_task = [d for d in self.designs if d.task.name == task]
            for pairs in zip(*(d.runs for d in of_task), strict=True):
                for run in [pairs[0][1], *(pair[0] for pair in pairs)]:
                    if run.key not in seen:
                        seen.add(run.key)
                        yield run

    @property
    def record(self) -> dict[str, Any]:
        """As it stands in the journal, before any run of it is started: of a pair its design."""
        designs = [design.record for design in self.designs]
        plan = {} if self.plan is None else {"plan": dict(self.plan)}
        by = [] if self.plan is None else [self.plan["sha256"]]
        if len(designs) == 1:
            key = schema.digest(["design", designs[0]["key"], *by]) if by else designs[0]["key"]
            return {**designs[0], **plan, "key": key}
        return {
            "kind": "family",
            "key": schema.digest(["family", *sorted(d["key"] for d in designs), *by]),
            "question": schema.digest(["family", *sorted(d["question"] for d in designs)]),
            "baseline": self.baseline,
            "models": list(self.models),
            "tasks": list(self.tasks),
            "correction": CORRECTION,
            "overall": OVERALL if len(self.tasks) > 1 else "",
            "designs": designs,
            "fingerprint": designs[0]["fingerprint"],
            "status": "ok",
            **plan,
        }
