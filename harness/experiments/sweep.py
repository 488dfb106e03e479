"""Sweeps: mechanisms x tasks x seeds (or folds), declared before the first run.

In a TOML file the keys are what a sweep crosses; with ``[[part]]`` tables each part is a sweep of
its own, one after the other, for which the keys above them hold where it has none of its own (a
part's ``recipe`` comes on top of the one above)::

    models = ["mtsa", "multi_head", "mtsa[scale_t=identity]"]
    seeds = 5                       # or which: [3, 7, 11]
    recipe = ["epochs=10", "mtsa:rate=2e-3"]

    [[part]]
    tasks = ["trec", "sick_relatedness"]

    [[part]]
    tasks = ["cr"]
    folds = true
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.experiments.design import (
    Run,
    Surroundings,
    check_each_once,
    make_run,
    surroundings,
)
from harness.experiments.model import check_read, parse_model, recipes_of
from harness.experiments.replicates import replicates
from harness.json_file import read_toml
from harness.measure.device import device_fingerprint, git
from harness.options.readers import LARGEST_SEED, MOST_SEEDS
from harness.options.train import SweepOptions
from harness.records import schema
from harness.registry import Registry
from harness.train.recipe import changes
from harness.train.task import Task, tasks_named

SEEDS = (0, 1, 2, 3, 4)
"""Where none are given and the corpus prescribes a split; the folds are run with seed 0."""


KEYS = ("models", "tasks", "seeds", "folds", "recipe", "choose", "vectors")
"""Of a part."""
_LISTS = {"tasks": "trec", "recipe": "epochs=10", "with": "my_package.attention:Mean"}
_EXAMPLES = {"folds": (bool, "true"), "choose": (str, '"dev"'), "vectors": (str, '"none"')}


@dataclass(frozen=True)
class Part:
    """What is crossed with each other."""

    models: tuple[str, ...]  # as `harness.experiments.model.parse_model` reads them.
    tasks: tuple[str, ...]
    seeds: tuple[int, ...] | None = None  # None: `SEEDS`, and on a task with folds seed 0
    folds: bool = False  # tasks with folds have each fold once, with seed 0, whatever `seeds` says
    recipe: tuple[str, ...] = ()  # as ``--recipe`` has them: what differs from the common recipe
    vectors: str | None = None  # instead of the tasks' own


@dataclass(frozen=True)
class Entry:
    """A run of a sweep, and what it takes to ask for it alone."""

    run: Run
    task: Task
    recipe: tuple[str, ...]  # as ``--recipe`` has them: those that are for this model
    vectors: str | None  # instead of the task's own


@dataclass(frozen=True)
class Sweep:
    """All runs, in the order in which they are begun: no run twice.

    Task by task; inside a task seed by seed (fold by fold), and for each all models: a sweep that
    is stopped has pairs.
    """

    parts: tuple[Part, ...]
    entries: tuple[Entry, ...]
    plan: Mapping[str, str] | None = None  # `file_told` of the file that asks for it

    @property
    def models(self) -> list[str]:
        """By first appearance."""
        return list(dict.fromkeys(str(entry.run.model) for entry in self.entries))

    @property
    def tasks(self) -> list[str]:
        """By first appearance."""
        return list(dict.fromkeys(entry.run.task for entry in self.entries))

    @cached_property
    def recipes(self) -> dict[str, str]:
        """By key how a run's recipe is told: empty unless a model has several on one task."""
        several: dict[tuple[str, str], dict[str, str]] = {}
        for e in self.entries:
            told = ", ".join(changes(e.run.recipe.as_dict(), e.task.recipe)) or "common recipe"
            several.setdefault((e.run.task, str(e.run.model)), {})[e.run.key] = told
        return {
            key: f" ({recipe})" if len(set(told.values())) > 1 else ""
            for told in several.values()
            for key, recipe in told.items()
        }

    @cached_property
    def names(self) -> dict[str, str]:
        """By key what a run is called: no two alike but for their word vectors."""
        return {e.run.key: f"{e.run.case}{self.recipes[e.run.key]}" for e in self.entries}

    def record(self, fingerprint: Mapping[str, Any]) -> dict[str, Any]:
        """As it stands in the journal, before any run of it is started."""
        keys = [entry.run.key for entry in self.entries]
        return {
            "kind": "sweep",
            "key": schema.digest(["sweep", keys]),
            "models": self.models,
            "tasks": self.tasks,
            "parts": [asdict(part) for part in self.parts],
            "runs": keys,
            **({} if self.plan is None else {"plan": dict(self.plan)}),
            "fingerprint": schema.digest(dict(fingerprint)),
            "status": "ok",
        }


def make_sweep(
    parts: Sequence[Part], registry: Registry, around: Callable[[Task, str | None], Surroundings]
) -> Sweep:
    """Declare a sweep.

    Parameters
    ----------
    parts : sequence of Part
        In their order; a run that several ask for is the first one's.
    around : callable
        From a task and the vectors asked for to what its runs share.

    Raises
    ------
    UsageError
        For an unknown model or task, a recipe that can't be, repeated or no seeds, ``folds`` where
        no task has any, or models of which ``--with`` gives none.
    """
    registry.refuse_unnamed([name for part in parts for name in part.models])
    folded = [name for part in parts if part.folds for name in part.tasks]
    if folded and not any(task.folds for name in folded for task in tasks_named(name)):
        raise UsageError(
            f"folds: none of {', '.join(folded)} is a task with folds; leave it out, and give seeds"
        )
    entries: dict[str, Entry] = {}
    for part in parts:
        for entry in _entries(part, registry, around):
            entries.setdefault(entry.run.key, entry)
    return Sweep(tuple(parts), tuple(entries.values()))


def _entries(
    part: Part, registry: Registry, around: Callable[[Task, str | None], Surroundings]
) -> Iterator[Entry]:
    tasks = [task for name in part.tasks for task in tasks_named(name)]
    models = [parse_model(name, registry) for name in part.models]
    for what, given in (("models", models), ("tasks", part.tasks), ("seeds", part.seeds)):
        if given is not None:
            check_each_once(what, given)
    check_read(part.recipe, models, tasks, registry, part.vectors)
    named = [(text.rpartition(":")[0], text) for text in part.recipe]
    texts = [tuple(t for name, t in named if not name or name in m.names) for m in models]
    for task in tasks:
        shared = around(task, part.vectors)
        vectors = part.vectors if task.files else None
        recipes = recipes_of(task, models, part.recipe)
        seeds = SEEDS if part.seeds is None else part.seeds
        if task.folds and (part.folds or part.seeds is None):
            seeds = (0,)
        for one in replicates(seeds, task.folds):
            for model, recipe, own in zip(models, recipes, texts, strict=True):
                run = make_run(model, task, recipe, one.seed, shared, one.fold)
                yield Entry(run, task, own, vectors)


def file_told(path: Path, content: bytes) -> dict[str, str]:
    """What records tell of the file that asked: its name, its hash, and ``committed``.

    That is the last commit that changed the file, if it is as that left it; else empty.
    """
    folder = path.resolve().parent
    clean = git(folder, "status", "--porcelain", "--", path.name) == ""
    return {
        "file": path.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "committed": (clean and git(folder, "log", "-1", "--format=%H", "--", path.name)) or "",
    }


def read_file(path: Path) -> tuple[list[Part], list[str]]:
    """Parts of a sweep, and what ``with`` names (mechanisms of one's own).

    Raises
    ------
    UsageError
        If the file can't be read, or a key or a value is not one of a sweep.
    """
    _, content = read_toml(path, "sweep")
    given = _texts(path, "with", content.pop("with", []))
    tables = content.pop("part", None)
    if tables is None:
        return [_part_of(path, content)], given
    if not (isinstance(tables, list) and tables and all(isinstance(t, dict) for t in tables)):
        raise UsageError(f"{path}: part is no table of its own; write [[part]]")
    # The last of several settings of one name counts.
    above = _texts(path, "recipe", content.pop("recipe", []))
    recipes = [above + _texts(path, "recipe", table.get("recipe", [])) for table in tables]
    return [
        _part_of(path, {**content, **table, "recipe": recipe})
        for table, recipe in zip(tables, recipes, strict=True)
    ], given


def _part_of(path: Path, table: Mapping[str, Any]) -> Part:
    unknown = [name for name in table if name not in KEYS]
    if "question" in unknown:
        raise UsageError(f"{path} declares a comparison; give attnbench compare --plan {path}")
    if unknown:
        raise UsageError(
            f"{path}: unknown key {unknown[0]!r}; a sweep has {', '.join(KEYS)}, with, and "
            "[[part]] tables"
        )
    for name in ("models", "tasks"):
        if name not in table:
            raise UsageError(f"{path}: no {name}; give {name} = [...]")
    read: dict[str, Any] = {}
    for name, value in table.items():
        if name == "seeds":
            read[name] = seeds_of(path, value)
        elif name in _EXAMPLES:
            kind, example = _EXAMPLES[name]
            if not isinstance(value, kind):
                raise UsageError(f"{path}: {name} = {value!r}; expected e.g. {example}")
            read[name] = value
        else:
            read[name] = tuple(_texts(path, name, value))
    if "choose" in read:
        read["recipe"] = (*read.get("recipe", ()), f"choose={read.pop('choose')}")
    return Part(**read)


def _texts(path: Path, name: str, value: Any) -> list[str]:
    if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        example = _LISTS.get(name, "mtsa")
        raise UsageError(
            f'{path}: {name} = {value!r}; expected a list of texts, e.g. ["{example}"]'
        )
    return value


def seeds_of(path: Path, value: Any) -> tuple[int, ...]:
    """Seeds as a file gives them: how many, or which.

    Raises
    ------
    UsageError
        Naming the file.
    """
    count = type(value) is int and 1 <= value <= MOST_SEEDS
    which = isinstance(value, list) and all(
        type(seed) is int and 0 <= seed <= LARGEST_SEED for seed in value
    )
    if not (count or which):
        raise UsageError(
            f"{path}: seeds = {value!r}; expected how many (at most {MOST_SEEDS}), or which, "
            "e.g. [3, 7]"
        )
    return tuple(range(value)) if count else tuple(value)


def sweep_of(options: SweepOptions) -> tuple[Sweep, Surroundings]:
    """The sweep that options ask for, and what its runs share whatever their task.

    Raises
    ------
    UsageError
        As `make_sweep` and `surroundings`, and for data or vectors that no task reads.
    """
    given: list[str] = []
    plan = None
    if options.plan is not None:
        parts, given = read_file(options.plan)
        plan = file_told(options.plan, options.plan.read_bytes())
    else:
        seeds, folds, recipe = options.seeds, options.folds, options.changes
        tasks = tuple(map(options.sized, options.tasks))
        parts = [Part(options.models, tasks, seeds, folds, recipe, options.vectors)]
    registry = Registry([*given, *options.given])
    fingerprint = device_fingerprint(options.device)
    known: dict[tuple[str, str | None], Surroundings] = {}

    def around(task: Task, vectors: str | None) -> Surroundings:
        """A corpus is read once, for its digest."""
        if (task.name, vectors) not in known:
            data, words = (options.data, vectors) if task.files else (None, None)
            asked = replace(options, data=data, vectors=words)
            known[task.name, vectors] = surroundings(task, registry, asked, lambda: fingerprint)
        return known[task.name, vectors]

    sweep = replace(make_sweep(parts, registry, around), plan=plan)
    if options.data is not None and not any(entry.task.files for entry in sweep.entries):
        raise UsageError(f"--data: {', '.join(sweep.tasks)} draw their own data; leave it out")
    for part in parts:
        reads = any(task.files for name in part.tasks for task in tasks_named(name))
        if part.vectors is not None and not reads:
            raise UsageError(
                f"--vectors: {', '.join(part.tasks)} draw their own data; leave it out"
            )
    return sweep, Surroundings(registry, fingerprint)
