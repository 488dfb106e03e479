"""Recipes tried for the common one: every mechanism by every recipe, judged over the mechanisms.

The records are made by ``attnbench sweep plans/tuning.toml --journal DIR/tuning``, DIR being the
journal of the report that shows them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import UsageError
from harness.experiments.wording import Unit, unit_of
from harness.records.schema import digest
from harness.stats import (
    LEAST_REPLICATES,
    MeanDifference,
    accuracy_verdict,
    compare_means,
    holm,
    judged_p,
)
from harness.train.recipe import Recipe, changes, identity
from harness.train.task import HIGHER_IS_BETTER, Task, task
from reports.core.style import mechanism_of

FOLDER = "tuning"
"""Below a journal: so many recipes of one model are no replicates of anything."""
COMMON = "common recipe"
BETTER = "better"
Scores = Mapping[str, Mapping[int, float]]
"""By mechanism and seed."""


@dataclass(frozen=True)
class Trial:
    """One run: a mechanism by a recipe.

    Attributes
    ----------
    task, mechanism : str
    settings : mapping
        The recipe as it stands in the record.
    common : Recipe
        That which it was tried against.
    seed : int
    where : tuple
        What trials must share to be compared: word vectors, data, device.
    dev : float
        Metric of the dev split at the epoch that the dev split chose; nan for a run that failed.
    status, at : str
    """

    task: str
    mechanism: str
    settings: Mapping[str, Any]
    common: Recipe
    seed: int
    where: tuple[str, ...]
    dev: float
    status: str
    at: str

    @property
    def recipe(self) -> str:
        """By what it changes of the common one, ``rate=0.002``."""
        return ", ".join(changes(self.settings, self.common)) or COMMON


@dataclass(frozen=True)
class Tried:
    """The recipes that were tried on one task.

    Attributes
    ----------
    task, metric : str
    where : tuple of str
        Word vectors, data, device.
    trials : tuple of Trial
        The newest of each mechanism, recipe and seed.
    base : Recipe
        The common one that they were tried against, today's or a former one.
    """

    task: str
    metric: str
    where: tuple[str, ...]
    trials: tuple[Trial, ...]
    base: Recipe

    @property
    def former(self) -> str:
        """What the common recipe that they were tried against changes of today's, if it does."""
        return ", ".join(changes(self.base.as_dict(), task(self.task).recipe))

    @property
    def today(self) -> str:
        """What today's common recipe changes of that, if it does."""
        return ", ".join(changes(task(self.task).recipe.as_dict(), self.base))

    @property
    def common(self) -> str:
        """``common recipe``, ``former common recipe (dropout=0.3)``."""
        return f"former {COMMON} ({self.former})" if self.former else COMMON

    @property
    def seeds(self) -> list[int]:
        """Of all trials."""
        return sorted({t.seed for t in self.trials})

    @property
    def mechanisms(self) -> list[str]:
        """All that were tried with any of them, in the order in which they were."""
        return list(dict.fromkeys(t.mechanism for t in self.trials))

    @property
    def recipes(self) -> list[str]:
        """The common one first."""
        return sorted({t.recipe for t in self.trials}, key=lambda name: (name != COMMON, name))

    def scores(self, recipe: str) -> dict[str, dict[int, float]]:
        """Of the finished trials of a recipe, by mechanism and seed."""
        found: dict[str, dict[int, float]] = {}
        for t in self.trials:
            if t.recipe == recipe and not math.isnan(t.dev):
                found.setdefault(t.mechanism, {})[t.seed] = t.dev
        return found

    @property
    def budgets(self) -> dict[str, int]:
        """By mechanism, with how many recipes it was tried, whatever became of it."""
        return {
            m: len({t.recipe for t in self.trials if t.mechanism == m}) for m in self.mechanisms
        }

    @property
    def lost(self) -> list[str]:
        """What was tried and gave no score: ``resa by rate=0.002 (timeout)``."""
        return [
            f"{t.mechanism} by {t.recipe} ({t.status})"
            for t in sorted(self.trials, key=lambda t: self.recipes.index(t.recipe))
            if math.isnan(t.dev) and t.mechanism not in self.scores(t.recipe)
        ]

    @property
    def unrun(self) -> dict[tuple[str, ...], list[str]]:
        """By the mechanisms that they lack, the recipes that others ran."""
        found: dict[tuple[str, ...], list[str]] = {}
        for recipe in self.recipes:
            ran = {t.mechanism for t in self.trials if t.recipe == recipe}
            missing = tuple(m for m in self.mechanisms if m not in ran)
            if missing:
                found.setdefault(missing, []).append(recipe)
        return found

    @property
    def unit(self) -> Unit:
        """How the metric is written."""
        return unit_of(self.metric)


@dataclass(frozen=True)
class Judged:
    """A recipe against the common one, paired by mechanism.

    Attributes
    ----------
    recipe : str
    singles : mapping
        Differences by mechanism, means over the seeds that both have.
    difference : MeanDifference
    adjusted_p : float
        By Holm over the recipes of the task.
    verdict : str
        ``better``, ``worse``, ``undecided``; with under five mechanisms ``descriptive only``.
    """

    recipe: str
    singles: Mapping[str, float]
    difference: MeanDifference
    adjusted_p: float
    verdict: str


def trial_of(run: Mapping[str, Any]) -> Trial | str:
    """A run's record as a trial, or why it is none.

    Only a mechanism's own configuration counts: a variant is another model.
    """
    name, model, recipe = run.get("task"), run.get("model"), run.get("recipe")
    if not (isinstance(name, str) and isinstance(model, str) and isinstance(recipe, dict)):
        return f"run {run.get('key')} names no task, model or recipe"
    if "[" in model:
        return f"run {run.get('key')} is of a variant, {model}"
    try:
        of = task(name)
    except UsageError as error:
        return f"run {run.get('key')}: {error}"
    dev = math.nan
    if run.get("status") == "ok":
        epochs = run.get("epochs")
        chosen = [
            e
            for e in (epochs if isinstance(epochs, list) else [])
            if isinstance(e, dict) and e.get("epoch") == run.get("chosen_epoch")
        ]
        metrics = chosen[0].get("dev") if chosen else None
        value = metrics.get(of.metrics[0]) if isinstance(metrics, dict) else None
        if not isinstance(value, int | float) or not math.isfinite(value):
            return f"run {run.get('key')} has no {of.metrics[0]} of the dev split"
        dev = float(value)
    where = tuple(str(run.get(key) or "") for key in ("vectors", "data", "fingerprint"))
    return Trial(
        name,
        mechanism_of(model),
        recipe,
        of.recipe,
        int(run["seed"]),
        where,
        dev,
        str(run.get("status")),
        str(run.get("at")),
    )


def _tried(of: Task, where: tuple[str, ...], trials: Sequence[Trial]) -> tuple[Tried, list[str]]:
    """Against the common recipe, today's or a former one, that more mechanisms have finished with.

    Of equals, that against which more was tried. Left out is what changes more of that than of
    another common recipe: it was tried against that.
    """
    every = (of.recipe, *of.former)
    changed = [{r: len(changes(t.settings, r)) for r in every} for t in trials]

    def against(common: Recipe) -> list[bool]:
        # A common recipe was tried against the others too.
        return [not 0 < min(c.values()) < c[common] for c in changed]

    common = max(every, key=lambda r: (len(_finished_by(trials, r)), sum(against(r))))
    mine: list[Trial] = []
    others: list[Trial] = []
    for t, is_mine in zip(trials, against(common), strict=True):
        (mine if is_mine else others).append(replace(t, common=common))
    left = (
        [
            f"{of.name}: {len(others)} trials were made against another common recipe than the "
            f"other {len(mine)}; left out: give them a journal of their own"
        ]
        if others
        else []
    )
    return Tried(of.name, of.metrics[0], where, tuple(mine), common), left


def _finished_by(trials: Sequence[Trial], recipe: Recipe) -> set[str]:
    """Mechanisms that have a score by this recipe."""
    return {
        t.mechanism for t in trials if not math.isnan(t.dev) and not changes(t.settings, recipe)
    }


def tried(records: Iterable[Mapping[str, Any]]) -> tuple[list[Tried], list[str]]:
    """By task (vectors, data and device) what was tried, and what of the journal was left out."""
    newest: dict[tuple[Any, ...], Trial] = {}
    left: list[str] = []
    for r in records:
        if r["kind"] != "run":
            continue
        one = trial_of(r)
        if isinstance(one, str):
            left.append(f"{one}; left out")
            continue
        key = (one.task, one.where, one.mechanism, digest(identity(one.settings)), one.seed)
        # What is finished is not undone by a later run that failed.
        rank = (not math.isnan(one.dev), one.at)
        before = newest.get(key)
        if before is None or rank >= (not math.isnan(before.dev), before.at):
            newest[key] = one
    groups: dict[tuple[str, tuple[str, ...]], list[Trial]] = {}
    for one in newest.values():
        groups.setdefault((one.task, one.where), []).append(one)
    found = []
    for (name, where), some in groups.items():
        told, others = _tried(task(name), where, some)
        found.append(told)
        left += others
    return found, left


def judged(one: Tried) -> list[Judged]:
    """Every other recipe against the common one, by the mechanisms and seeds that have both.

    The mechanisms are the replicates. They share a dev split, so what they have in common with it
    is in the mean and not in its error: the test finds a difference rather too easily than too
    rarely.
    """
    common = one.scores(COMMON)
    pairs = {
        recipe: _pairs(one.scores(recipe), common) for recipe in one.recipes if recipe != COMMON
    }
    pairs = {recipe: both for recipe, both in pairs.items() if len(both) > 1}
    differences = {
        recipe: compare_means(
            [a for a, _ in both.values()], [b for _, b in both.values()], paired=True
        )
        for recipe, both in pairs.items()
    }
    adjusted = holm([judged_p(d) for d in differences.values()])
    higher = HIGHER_IS_BETTER.get(one.metric, True)
    return [
        Judged(
            recipe,
            {m: a - b for m, (a, b) in pairs[recipe].items()},
            difference,
            p,
            accuracy_verdict(difference, higher, None, p),
        )
        for (recipe, difference), p in zip(differences.items(), adjusted, strict=True)
    ]


def _pairs(first: Scores, second: Scores) -> dict[str, tuple[float, float]]:
    """By mechanism its mean scores over the seeds that both recipes have."""
    found = {}
    for m in first:
        seeds = sorted(set(first[m]) & set(second.get(m, {})))
        if seeds:
            found[m] = (
                statistics.fmean(first[m][s] for s in seeds),
                statistics.fmean(second[m][s] for s in seeds),
            )
    return found


def sentence(one: Tried, found: Sequence[Judged]) -> str:
    """What follows for the common recipe."""
    said = (
        f"{one.task}: {len(one.mechanisms)} mechanisms, {_counted(one)}, by {one.metric} on the "
        f"dev split (seed {', '.join(map(str, one.seeds))})."
    )
    for without, recipes in one.unrun.items():
        said += f" Not run with {', '.join(without)}: {', '.join(recipes)}."
    if one.lost:
        return f"{said} Without a score: {', '.join(one.lost)}."
    if not found or all(len(j.singles) < LEAST_REPLICATES for j in found):
        return f"{said} Too little to judge a recipe by."
    best = [j.recipe for j in found if j.verdict == BETTER]
    if best:
        now = f" {one.today} is the common recipe now." if one.today else ""
        return f"{said} Better than the {one.common}, over the mechanisms: {', '.join(best)}.{now}"
    if one.former:
        return f"{said} No other is shown to be better than the {one.common} over the mechanisms."
    return f"{said} No other is shown to be better over the mechanisms: the common recipe stays."


def _counted(one: Tried) -> str:
    """How many recipes are recorded, and what the task counts if that is more."""
    here = one.budgets
    counted = task(one.task).tuned
    # One without a record of its own is counted by what is here alone.
    all_ = {mechanism: max(count, counted.get(mechanism, 0)) for mechanism, count in here.items()}
    more = "" if all_ == here else f"; {_each(all_)} with those that have no record here"
    return _each(here) + more


def _each(counts: Mapping[str, int]) -> str:
    """``4 recipes each``, or ``4 recipes (mtsa, multi_head), 9 recipes (none)``."""
    said = {count: f"{count} recipe{'s' if count != 1 else ''}" for count in counts.values()}
    if len(said) == 1:
        return f"{next(iter(said.values()))} each"
    return ", ".join(
        f"{said[count]} ({', '.join(m for m, of in counts.items() if of == count)})"
        for count in sorted(said)
    )
