"""Recipes tried for the common one: every mechanism by every recipe, judged over the mechanisms.

The records are made by ``attnbench sweep plans/tuning.toml --journal DIR/tuning``, DIR being the
journal of the report that shows them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.experiments.replicates import Unit, unit_of
from harness.records import journal
from harness.records.schema import digest
from harness.stats import (
    LEAST_REPLICATES,
    MeanDifference,
    accuracy_verdict,
    compare_means,
    holm,
    judged_p,
)
from harness.train.recipe import CEILINGS, Recipe, changes, identity
from harness.train.task import HIGHER_IS_BETTER, Task, task
from reports.core.forest import Line, forest
from reports.core.page import Output, Shown, remark, says, together
from reports.core.source import Source
from reports.core.style import mechanism_of
from reports.core.tables import under
from reports.core.words import file_name

FOLDER = "tuning"
"""Below a journal: so many recipes of one model are no replicates of anything."""
COMMON = "common recipe"
BETTER = "better"
NONE = (
    "No recipes were tried for the common one on this device: attnbench sweep plans/tuning.toml "
    f"--journal DIR/{FOLDER} tries them, DIR being the journal of this report."
)


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


@dataclass(frozen=True)
class Tried:
    """The recipes that were tried on one task: the newest trial of each mechanism, recipe and seed.

    `base` is the common one that they were tried against, today's or a former one; `elsewhere` what
    was tried of the same data on other machines.
    """

    task: Task
    trials: tuple[Trial, ...]
    base: Recipe
    elsewhere: tuple[Trial, ...] = ()

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
    def budgets(self) -> dict[str, int]:
        """By mechanism, with how many recipes it was tried anywhere, whatever became of it."""
        found: dict[str, set[str]] = {m: set() for m in self.mechanisms}
        for t in (*self.trials, *self.elsewhere):
            own = {k: v for k, v in identity(t.settings).items() if k not in CEILINGS}
            found.get(t.mechanism, set()).add(digest(own))
        return {m: len(recipes) for m, recipes in found.items()}

    def scores(self, recipe: str) -> dict[str, dict[int, float]]:
        """Of the finished trials of a recipe, by mechanism and seed."""
        found: dict[str, dict[int, float]] = {}
        for t in self.trials:
            if t.recipe == recipe and not math.isnan(t.dev):
                found.setdefault(t.mechanism, {})[t.seed] = t.dev
        return found


@dataclass(frozen=True)
class Judged:
    """A recipe against the common one, paired by mechanism.

    `singles`: differences by mechanism, means over the seeds that both have; `adjusted_p` by Holm
    over the recipes of the task; with under five mechanisms the verdict is ``descriptive only``.
    """

    recipe: str
    singles: Mapping[str, float]
    difference: MeanDifference
    adjusted_p: float
    verdict: str


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
    model, *options = run["model"].partition("[")
    mechanism = mechanism_of(model) + "".join(options)
    return Trial(mechanism, run["recipe"], run["seed"], dev, run["status"], str(run.get("at")))


def tried(
    records: Iterable[Mapping[str, Any]], device: str | None = None
) -> tuple[list[Tried], list[str]]:
    """By task (vectors, data and device) what was tried, and what of the journal was left out.

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
    found = []
    for (name, *data, machine), trials in groups.items():
        if device not in (None, machine):
            continue
        # A variant stands for its mechanism where that was not tried itself.
        whole = {t.mechanism for t in trials.values()}
        own = [
            t for t in trials.values() if t.mechanism.partition("[")[0] not in whole - {t.mechanism}
        ]
        if variants := sorted(whole - {t.mechanism for t in own}):
            left.append(f"{name}: {', '.join(variants)}: variants of what was tried; left out")
        told, others = _against_common(task(name), own)
        alike = (more for at, more in groups.items() if [*at[:-1]] == [name, *data])
        elsewhere = (t for more in alike if more is not trials for t in more.values())
        found.append(replace(told, elsewhere=tuple(elsewhere)))
        if others:
            left.append(
                f"{name}: {others} of {others + len(told.trials)} trials have another common "
                "recipe than the others; left out: give them a journal of their own"
            )
    return found, left


def _against_common(of: Task, trials: Sequence[Trial]) -> tuple[Tried, int]:
    """Against the common recipe, today's or a former one, that more mechanisms have finished with.

    Of equals, that against which more was tried. Left out, and counted, is what changes more of
    that than of another common recipe: it was tried against that.
    """
    every = (of.recipe, *of.former)
    # A ceiling of epochs is nothing that was tried.
    changed = [
        {r: changes({**t.settings, **{c: getattr(r, c) for c in CEILINGS}}, r) for r in every}
        for t in trials
    ]

    def against(common: Recipe) -> list[bool]:
        # A common recipe was tried against the others too.
        return [not 0 < min(map(len, c.values())) < len(c[common]) for c in changed]

    def rank(common: Recipe) -> tuple[int, int]:
        pairs = zip(trials, changed, strict=True)
        finished = {t.mechanism for t, c in pairs if not math.isnan(t.dev) and not c[common]}
        return len(finished), sum(against(common))

    common = max(every, key=rank)
    mine = [
        replace(t, recipe=", ".join(c[common]) or COMMON)
        for t, c, fits in zip(trials, changed, against(common), strict=True)
        if fits
    ]
    return Tried(of, tuple(mine), common), len(trials) - len(mine)


def judged(one: Tried) -> list[Judged]:
    """Every other recipe against the common one, by the mechanisms and seeds that have both.

    The mechanisms are the replicates. They share a dev split, so what they have in common with it
    is in the mean and not in its error: the test finds a difference rather too easily than too
    rarely.
    """
    common = one.scores(COMMON)
    pairs: dict[str, dict[str, tuple[float, float]]] = {}
    for recipe in one.recipes:
        both = {}
        for m, mine in one.scores(recipe).items():
            if seeds := sorted(set(mine) & set(common.get(m, {}))):
                means = (statistics.fmean(of[s] for s in seeds) for of in (mine, common[m]))
                both[m] = (next(means), next(means))
        if recipe != COMMON and len(both) > 1:
            pairs[recipe] = both
    tests = [
        compare_means([a for a, _ in p.values()], [b for _, b in p.values()], paired=True)
        for p in pairs.values()
    ]
    adjusted = holm([judged_p(d) for d in tests])
    higher = HIGHER_IS_BETTER.get(one.metric, True)
    return [
        Judged(
            recipe,
            {m: a - b for m, (a, b) in both.items()},
            difference,
            p,
            accuracy_verdict(difference, higher, None, p),
        )
        for (recipe, both), difference, p in zip(pairs.items(), tests, adjusted, strict=True)
    ]


def sentence(one: Tried, found: Sequence[Judged]) -> str:
    """What follows for the common recipe."""
    here = one.budgets
    # One without a record of its own is counted by what is here alone.
    every = {m: max(count, one.task.tuned.get(m.partition("[")[0], 0)) for m, count in here.items()}
    counted = _each(here)
    if every != here:
        counted += f"; {_each(every)} with those that have no record here"
    seeds = ", ".join(map(str, sorted({t.seed for t in one.trials})))
    said = (
        f"{one.task.name}: {len(one.mechanisms)} mechanisms, {counted}, by {one.metric} on the dev "
        f"split (seed {seeds})."
    )
    unrun: dict[str, list[str]] = {}
    lost = []
    for recipe in one.recipes:
        ran = {t.mechanism: t.status for t in one.trials if t.recipe == recipe}
        if missing := [m for m in one.mechanisms if m not in ran]:
            unrun.setdefault(", ".join(missing), []).append(recipe)
        scored = one.scores(recipe)
        lost += [f"{m} by {recipe} ({status})" for m, status in ran.items() if m not in scored]
    for without, recipes in unrun.items():
        said += f" Not run with {without}: {', '.join(recipes)}."
    if lost:
        return f"{said} Without a score: {', '.join(lost)}."
    if not found or all(len(j.singles) < LEAST_REPLICATES for j in found):
        return f"{said} Too little to judge a recipe by."
    if best := [j.recipe for j in found if j.verdict == BETTER]:
        today = ", ".join(changes(one.task.recipe.as_dict(), one.base))
        now = f" {today} is the common recipe now." if today else ""
        return f"{said} Better than the {one.common}, over the mechanisms: {', '.join(best)}.{now}"
    if one.former:
        return f"{said} No other is shown to be better than the {one.common} over the mechanisms."
    return f"{said} No other is shown to be better over the mechanisms: the common recipe stays."


def _each(counts: Mapping[str, int]) -> str:
    """``4 recipes each``, or ``4 recipes (mtsa, multi_head), 9 recipes (none)``."""
    said = {count: f"{count} recipe{'s' if count != 1 else ''}" for count in counts.values()}
    if len(said) == 1:
        return f"{next(iter(said.values()))} each"
    return ", ".join(
        f"{said[count]} ({', '.join(m for m, of in counts.items() if of == count)})"
        for count in sorted(said)
    )


def tuned(source: Source, device: str | None = None) -> tuple[list[Tried], list[str]]:
    """What the folder ``tuning`` of the report's journals holds, and what it lacks: `tried`."""
    records, warnings = _read(source.folders)
    found, left = tried(records, device)
    return found, [*warnings, *left]


@lru_cache(maxsize=1)
def _read(folders: tuple[Path, ...]) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Records and warnings; every page of a comparison asks for them."""
    records: list[Mapping[str, Any]] = []
    warnings: list[str] = []
    for folder in folders:
        read = journal.read(folder / FOLDER)
        warnings += [f"{folder / FOLDER}: {warning}" for warning in read.warnings]
        records += read.records
    return records, warnings


def section(found: Sequence[Tried], place: Output) -> Shown:
    """The recipes that were tried, task by task."""
    return together(*([_task(one, place) for one in found] or [remark(NONE)]))


def _task(one: Tried, place: Output) -> Shown:
    verdicts = judged(one)
    name, shown = f"tuning-{file_name(one.task.name)}", says([sentence(one, verdicts)])
    if verdicts:
        points, base = one.unit.of_differences.strip(), "former" if one.former else "common"
        draw = partial(
            forest,
            lines(one, verdicts),
            f"{one.task.name}: recipes less the {base} one",
            "bars: 95 % t-intervals over mechanisms; grey: not shown after Holm",
            f"{one.metric} on the dev split, less the {one.common}'s{points and f' ({points})'}",
        )
        shown = place.figure(name, draw, shown.plain)
    kept = ("recipe", "mechanism", "seed", "status", "dev")
    scores = [
        {"task": one.task.name, "metric": one.metric, **{k: getattr(t, k) for k in kept}}
        for t in one.trials
    ]
    return together(shown, place.table(name, scores, cells(one, verdicts)))


def cells(one: Tried, found: Sequence[Judged]) -> list[dict[str, str]]:
    """What the common recipe gave, then every other's difference to it."""
    unit, common = one.unit, one.scores(COMMON)
    points = unit.of_differences.strip()
    less = f"{one.task.name}: less the {one.common}{f', {points}' if points else ''}"
    columns = [less, "mean [95 %]", "p (Holm), verdict", *one.mechanisms]
    row = [
        unit.number(statistics.fmean(common[m].values())) if m in common else ""
        for m in one.mechanisms
    ]
    rows = [[f"{one.common}: {unit.named(one.metric)}", "", "", *row]]
    for j in found:
        counted = len(j.singles) >= LEAST_REPLICATES
        verdict = f"{j.adjusted_p:.2g}, {j.verdict}" if counted else j.verdict
        singles = [unit.difference(j.singles[m]) if m in j.singles else "" for m in one.mechanisms]
        rows.append([j.recipe, unit.interval(j.difference), verdict, *singles])
    return under(columns, rows)


def lines(one: Tried, found: Sequence[Judged]) -> list[Line]:
    """Rows of a forest plot: the mean over the mechanisms, and each of them."""
    return [
        Line.of(j.recipe, "", j.difference, one.unit.scale, decided=j.verdict in (BETTER, "worse"))
        for j in found
    ]
