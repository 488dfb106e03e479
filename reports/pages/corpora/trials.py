"""Recipes that were tried for the common one: what records say was tried, by task and machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from harness.errors import UsageError
from harness.experiments.model import form_of
from harness.experiments.replicates import Unit, unit_of
from harness.records.schema import digest
from harness.train.recipe import CEILINGS, Recipe, changes, identity, without_ceilings
from harness.train.recipes import ABLATIONS
from harness.train.task import Task, task

COMMON = "common recipe"
MECHANISMS, ABLATED = "mechanisms", "ablations"


@dataclass(frozen=True)
class Trial:
    """One run: a mechanism by a recipe.

    `dev` is the metric of the dev split at the epoch that the dev split chose, nan for a run that
    failed; `recipe` what the settings change of the common one that it was tried against.
    """

    mechanism: str
    settings: Mapping[str, Any]
    seed: int
    dev: float
    status: str
    at: str
    recipe: str = ""

    @cached_property
    def own(self) -> str:
        """Digest of the recipe that was tried: a ceiling of epochs is nothing that was."""
        return digest(without_ceilings(self.settings))


@dataclass(frozen=True)
class Tried:
    """The recipes that were tried on one task: the newest trial of each mechanism, recipe and seed.

    `base` is the common one that they were tried against, today's or a former one; `others` what
    was tried of the same data on other machines, or against another common one. Ablations are never
    among whole models.
    """

    task: Task
    trials: tuple[Trial, ...]
    base: Recipe
    others: tuple[Tried, ...] = ()

    @property
    def everywhere(self) -> list[Trial]:
        """Trials on all machines."""
        return [*self.trials, *(t for other in self.others for t in other.trials)]

    @property
    def whose(self) -> str:
        """`MECHANISMS` or `ABLATED`."""
        return ABLATED if {*self.mechanisms} <= {*ABLATIONS} else MECHANISMS

    @property
    def title(self) -> str:
        """``trec``, ``trec, ablations``."""
        return self.task.name + (f", {self.whose}" if self.whose != MECHANISMS else "")

    @property
    def metric(self) -> str:
        """The task's first."""
        return self.task.metrics[0]

    @property
    def unit(self) -> Unit:
        """How the metric is written."""
        return unit_of(self.metric)

    @property
    def former(self) -> str:
        """What the common recipe that they were tried against changes of today's, if it does."""
        return ", ".join(changes(self.base.as_dict(), self.task.recipe))

    @property
    def common(self) -> str:
        """``common recipe``, ``former common recipe (dropout=0.3)``."""
        return f"former {COMMON} ({self.former})" if self.former else COMMON

    @property
    def mechanisms(self) -> list[str]:
        """All that were tried with any of them, in the order in which they were."""
        return list(dict.fromkeys(t.mechanism for t in self.trials))

    @property
    def recipes(self) -> list[str]:
        """The common one first."""
        return sorted({t.recipe for t in self.trials}, key=lambda name: (name != COMMON, name))

    @property
    def digests(self) -> dict[str, str]:
        """Of each recipe by its name here; the same where it was tried against another one."""
        return {t.recipe: t.own for t in self.trials}

    @property
    def budgets(self) -> dict[str, int]:
        """By mechanism, with how many recipes it was tried anywhere, whatever became of it."""
        found: dict[str, set[str]] = {m: set() for m in self.mechanisms}
        for t in self.everywhere:
            found.get(t.mechanism, set()).add(t.own)
        return {m: len(recipes) for m, recipes in found.items()}

    def scores(self, recipe: str) -> dict[str, dict[int, float]]:
        """Of the finished trials of a recipe, by mechanism and seed."""
        found: dict[str, dict[int, float]] = {}
        for t in self.trials:
            if t.recipe == recipe and not math.isnan(t.dev):
                found.setdefault(t.mechanism, {})[t.seed] = t.dev
        return found


def trial_of(run: Mapping[str, Any]) -> Trial | str:
    """A run's record as a trial, or why it is none."""
    if run.get("task") is None or run.get("recipe") is None:
        return f"run {run['key']} names no task or recipe"
    try:
        metric = task(run["task"]).metrics[0]
    except UsageError as error:
        return f"run {run['key']}: {error}"
    dev = math.nan
    if run["status"] == "ok":
        chosen = [e.get("dev") or {} for e in run["epochs"] if e["epoch"] == run["chosen_epoch"]]
        dev = float(chosen[0].get(metric, math.nan)) if chosen else math.nan
        if not math.isfinite(dev):
            return f"run {run['key']} has no {metric} of the dev split"
    form, at = form_of(run["model"]), str(run.get("at"))
    return Trial(form, run["recipe"], run["seed"], dev, run["status"], at)


def tried(
    records: Iterable[Mapping[str, Any]], device: str | None = None
) -> tuple[list[Tried], list[str]]:
    """By task (vectors, data and device) and common recipe what was tried, and what was left out;
    of ablations by itself.

    Parameters
    ----------
    device : str, optional
        Only what was tried there, by its key.
    """
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], Trial]] = {}
    left: list[str] = []
    for r in records:
        if r["kind"] != "run":
            continue
        one = trial_of(r)
        if isinstance(one, str):
            if device in (None, r.get("fingerprint")):
                left.append(f"{one}; left out")
            continue
        newest = groups.setdefault(
            tuple(map(r.get, ("task", "vectors", "data", "fingerprint"))), {}
        )
        key = (one.mechanism, digest(identity(one.settings)), one.seed)
        # What is finished is not undone by a later run that failed.
        rank = (not math.isnan(one.dev), one.at)
        before = newest.get(key)
        if before is None or rank >= (not math.isnan(before.dev), before.at):
            newest[key] = one
    every: list[tuple[tuple[Any, ...], Tried]] = []
    for at, trials in groups.items():
        name, shown = at[0], device in (None, at[-1])
        models, variants = _models(trials.values())
        if shown and variants:
            left.append(f"{name}: {', '.join(variants)}: variants of what was tried; left out")
        own = [t for t in trials.values() if t.mechanism in models]
        for parts in (False, True):
            some = [t for t in own if (t.mechanism in ABLATIONS) is parts]
            every += [((parts, *at), one) for one in _against_common(task(name), some)]
    found = []
    for at, here in every:
        if device in (None, at[-1]):
            alike = (other for of, other in every if other is not here and _same_data(of, at))
            found.append(replace(here, others=tuple(alike)))
    return found, left


def _models(trials: Iterable[Trial]) -> tuple[set[str], list[str]]:
    """Models that were tried, and variants that were not: by one recipe beside its mechanism it
    is an ablation.
    """
    recipes: dict[str, set[str]] = {}
    for t in trials:
        recipes.setdefault(t.mechanism, set()).add(t.own)
    wholes = {m: m.partition("[")[0] for m in recipes}
    variants = [m for m, of in wholes.items() if of != m and of in recipes and len(recipes[m]) < 2]
    return recipes.keys() - set(variants), sorted(variants)


def _same_data(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether task and vectors are the same, and the data as far as both records tell them."""
    *mine, data, _ = one
    *theirs, data_too, _ = other
    return mine == theirs and (data == data_too or not (data and data_too))


def _against_common(of: Task, trials: Sequence[Trial]) -> list[Tried]:
    """Against the common recipe, today's or a former one, that more mechanisms have finished with.

    Of equals, that against which more was tried, then the newest that another has replaced, which
    was tried against it. What changes more of that than of another common recipe was tried against
    the other, and stands beside it.
    """
    every = (*reversed(of.former), of.recipe)
    # A ceiling of epochs is nothing that was tried.
    changed = [
        {r: changes({**t.settings, **{c: getattr(r, c) for c in CEILINGS}}, r) for r in every}
        for t in trials
    ]

    # A common recipe was tried against the others too.
    fits = [{r for r in every if not 0 < min(map(len, c.values())) < len(c[r])} for c in changed]

    def rank(common: Recipe) -> tuple[int, int]:
        pairs = zip(trials, changed, strict=True)
        finished = {t.mechanism for t, c in pairs if not math.isnan(t.dev) and not c[common]}
        return len(finished), sum(common in some for some in fits)

    ranked = sorted(every, key=rank, reverse=True)
    first = [next(r for r in ranked if r in some) for some in fits]
    tables = {
        common: tuple(
            replace(t, recipe=", ".join(c[common]) or COMMON)
            for t, c, base in zip(trials, changed, first, strict=True)
            if base == common or not c[common]
        )
        for common in ranked
        if common in first
    }
    return [Tried(of, some, common) for common, some in tables.items()]
