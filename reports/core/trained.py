"""Trained models by task, from run records alone: values by replicate, means, differences."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.experiments.costs import at_dev_epoch, steps_of
from harness.experiments.replicates import (
    BEST_ON_TEST,
    Replicate,
    Unit,
    unit_of,
)
from harness.experiments.warnings import selecting_everything
from harness.stats import (
    MeanInterval,
    fold_interval,
    mean_interval,
)
from harness.train.task import HIGHER_IS_BETTER, by_common_recipe, family_of, known_tasks
from reports.core.recipes import (
    recipe_text,
    trained_alike,
    trained_with,
    unlike_common,
)
from reports.core.style import mechanism_of


@dataclass(frozen=True)
class ModelRuns:
    """All finished runs of one model on one task, or all of a family, by one recipe, on one device.

    The newest run of each seed and fold (and task of a family), and the failed of replicates that
    were never finished; `metric` is the task's primary one.
    """

    model: str
    task: str
    metric: str
    runs: tuple[Mapping[str, Any], ...]
    failed: tuple[Mapping[str, Any], ...] = ()

    @property
    def mechanism(self) -> str:
        """First part of the model's name."""
        return mechanism_of(self.model)

    @property
    def variant(self) -> bool:
        """Whether it is not the mechanism's own configuration."""
        return "[" in self.model

    @property
    def unit(self) -> Unit:
        """How the metric is written."""
        return unit_of(self.metric)

    @property
    def higher_is_better(self) -> bool:
        """Direction of the metric."""
        return HIGHER_IS_BETTER.get(self.metric, True)

    @property
    def replicates(self) -> dict[Replicate, float]:
        """Test metric by seed and fold."""
        found: dict[Replicate, list[float]] = {}
        for r in self.runs:
            found.setdefault(replicate_of(r), []).append(float(r["test"][self.metric]))
        return {replicate: statistics.fmean(values) for replicate, values in found.items()}

    @cached_property
    def values(self) -> list[float]:
        """One number per seed; with folds one per fold, its mean over seeds."""
        return self.numbers(self.metric)

    def numbers(self, metric: str) -> list[float]:
        """The same of another metric of the test set."""
        return per_unit(self.runs, lambda r: (r.get("test") or {}).get(metric))

    @property
    def mean(self) -> float:
        """Of `values`."""
        return statistics.fmean(self.values)

    @property
    def sd(self) -> float:
        """Sample deviation of `values`; nan for one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else math.nan

    @property
    def interval(self) -> MeanInterval:
        """`mean` with its 95 % t-interval; that of folds has the corrected variance."""
        if not (folds := len({r.fold for r in self.replicates} - {None})):
            return mean_interval(self.values)
        return fold_interval(self.values, max(2, folds, folds_of(self.task)))

    @property
    def recipe(self) -> str:
        """`recipe_text` of them."""
        return recipe_text(self.runs)

    @property
    def best_on_test(self) -> bool:
        """Whether the test set chose the epoch that is counted."""
        return BEST_ON_TEST in trained_with(self.runs)

    @property
    def by_dev(self) -> float | None:
        """Mean of the test metric after the epochs that dev would have chosen.

        None unless the test set chose, and every run kept both metrics of every epoch.
        """
        if not self.best_on_test:
            return None
        higher = self.higher_is_better
        by_key = {r["key"]: at_dev_epoch(r, self.metric, higher) for r in self.runs}
        if any(map(math.isnan, by_key.values())):
            return None
        return statistics.fmean(per_unit(self.runs, lambda run: by_key[run["key"]]))

    @property
    def steps(self) -> float | None:
        """Of the optimiser, the median over its runs; None where no record tells."""
        told = [found[0] for run in self.runs if (found := steps_of(run))]
        return statistics.median(told) if told else None

    @property
    def text(self) -> str:
        """``90.56 (1.02)``: mean and deviation."""
        spread = "" if math.isnan(self.sd) else f" ({self.unit.number(self.sd)})"
        return f"{self.unit.number(self.mean)}{spread}"

    @property
    def counted(self) -> str:
        """``10 seeds``, ``10 folds``."""
        seeds, folds = {r.seed for r in self.replicates}, {r.fold for r in self.replicates} - {None}
        if not folds:
            return f"{len(seeds)} seed{'s' * (len(seeds) != 1)}"
        again = f", each the mean of {len(seeds)} seeds" if len(seeds) > 1 else ""
        return f"{len(folds)} folds{again}"


def mean_text(unit: Unit, e: MeanInterval) -> str:
    """``86.25 [85.10, 87.40]``."""
    ends = "" if math.isnan(e.low) else f" [{unit.number(e.low)}, {unit.number(e.high)}]"
    return f"{unit.number(e.mean)}{ends}"


def per_unit(runs: Sequence[Mapping[str, Any]], value: Any) -> list[float]:
    """A number per seed (of a family its mean over tasks), or per fold its mean over seeds."""
    found: dict[Any, list[float]] = {}
    for r in runs:
        number = value(r)
        if isinstance(number, int | float) and math.isfinite(number):
            one = replicate_of(r)
            found.setdefault(one.seed if one.fold is None else one.fold, []).append(float(number))
    return [statistics.fmean(found[key]) for key in sorted(found)]


def replicate_of(run: Mapping[str, Any]) -> Replicate:
    """Seed and fold of a run."""
    return Replicate(run["seed"], run.get("fold"))


@dataclass(frozen=True)
class TaskRuns:
    """The models trained on one task by one recipe; of runs by others there is but the number."""

    name: str
    models: tuple[ModelRuns, ...]
    others: int

    @property
    def trained(self) -> list[str]:
        """What of how they were trained is not the common."""
        return unlike_common([run for one in self.models for run in one.runs])

    @property
    def selecting(self) -> list[str]:
        """That a policy selects everything; a line for each model that does."""
        return selecting_everything((m.model, m.runs) for m in self.models)

    def find(self, model: str) -> ModelRuns | None:
        """The model of that name; of a mechanism's name, in its own configuration."""
        for one in self.models:
            if one.model == model or (one.mechanism == model and not one.variant):
                return one
        return None


def trained_tasks(records: Iterable[Mapping[str, Any]]) -> list[TaskRuns]:
    """All tasks that models were trained on, each by the recipe that comes first of its own."""
    return [recipes[0] for recipes in tasks_by_recipe(records)]


def tasks_by_recipe(records: Iterable[Mapping[str, Any]]) -> list[list[TaskRuns]]:
    """The same by every recipe: for each task, the one that most mechanisms have first.

    One with a single model comes after all others; of equals the task's common recipe is first,
    then the one that most models, with variants, have. Tasks of a family count as one, of the seeds
    with which a model was trained on all of them.
    """
    by_task: dict[str, list[Mapping[str, Any]]] = {}
    for r in records:
        if r["kind"] == "run" and isinstance(r.get("task"), str):
            by_task.setdefault(family_of(r["task"]) or r["task"], []).append(r)
    found = []
    for name, runs in sorted(by_task.items()):
        each = [
            (TaskRuns(name, tuple(_models(name, some)), len(runs) - len(some)), len(some))
            for some in trained_alike(runs)
        ]
        ranked = sorted(each, key=lambda t: (*_rank(t[0]), t[1]), reverse=True)
        if kept := [task for task, _ in ranked if task.models]:
            found.append(kept)
    return found


def _rank(one: TaskRuns) -> tuple[bool, int, bool, int]:
    """Whether models can be compared, mechanisms, whether it is the common recipe, models."""
    mechanisms = {m.mechanism for m in one.models}
    usual = any(by_common_recipe(m.runs[0]) for m in one.models[:1])
    return len(one.models) > 1, len(mechanisms), usual, len(one.models)


def _models(task: str, runs: Sequence[Mapping[str, Any]]) -> list[ModelRuns]:
    newest: dict[str, dict[tuple[Replicate, str], Mapping[str, Any]]] = {}
    failed: dict[str, dict[tuple[Replicate, str], Mapping[str, Any]]] = {}
    for r in sorted(runs, key=lambda r: str(r.get("at"))):
        good = r["status"] == "ok" and isinstance(r.get("test"), dict) and r["test"]
        (newest if good else failed).setdefault(r["model"], {})[replicate_of(r), r["task"]] = r
    found = []
    whole = len(known_tasks(task)) or 1
    for model, good_runs in newest.items():
        done = Counter(replicate for replicate, _ in good_runs)
        kept = tuple(r for (one, _), r in good_runs.items() if done[one] == whole)
        lost = [r for key, r in failed.get(model, {}).items() if key not in good_runs]
        if kept:
            metric = next(iter(kept[0]["test"]))
            found.append(ModelRuns(model, task, metric, kept, tuple(lost)))
    return sorted(found, key=lambda t: t.model)


def folds_of(name: str) -> int:
    """Folds of a task; 0 for one that this attnbench does not know."""
    return max((one.folds for one in known_tasks(name)), default=0)


def reads_files(name: str) -> bool:
    """Whether a task reads a corpus, some of whose examples may stand in it twice."""
    return any(one.files for one in known_tasks(name))
