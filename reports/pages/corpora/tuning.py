"""Recipes tried for the common one: every mechanism by every recipe, judged over the mechanisms.

The records are made by ``attnbench sweep plans/tuning.toml --journal DIR/tuning``, DIR being the
journal of the report that shows them.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness.experiments.tables import DETECTABLE
from harness.records import journal
from harness.stats import (
    MeanDifference,
    accuracy_verdict,
    compare_means,
    holm,
    judged_p,
)
from harness.train.recipe import changes
from harness.train.task import HIGHER_IS_BETTER
from reports.core.forest import Line, forest
from reports.core.page import Output, Shown, remark, says, together
from reports.core.source import Source
from reports.core.tables import under
from reports.core.words import file_name, known
from reports.pages.corpora.trials import ABLATED, COMMON, Tried, tried

FOLDER = "tuning"
"""Below a journal: so many recipes of one model are no replicates of anything."""
BETTER, DESCRIPTIVE = "better", "descriptive only"
NONE = (
    "No recipes were tried for the common one on this device: attnbench sweep plans/tuning.toml "
    f"--journal DIR/{FOLDER} tries them, DIR being the journal of this report."
)


@dataclass(frozen=True)
class Judged:
    """A recipe against the common one, paired by mechanism.

    `singles`: differences by mechanism, means over the seeds that both have; `adjusted_p` by Holm
    over the recipes of the task; with under five mechanisms the verdict is `DESCRIPTIVE`, and of
    ablations, of which several are of one model.
    """

    recipe: str
    singles: Mapping[str, float]
    difference: MeanDifference
    adjusted_p: float
    verdict: str


def judged(one: Tried) -> list[Judged]:
    """Every other recipe against the common one, by the mechanisms and seeds that have both.

    The mechanisms are the replicates. They share a dev split, so what they have in common with it
    is in the mean and not in its error: the test finds a difference rather too easily than too
    rarely. Holm's is over all recipes of the task, each once, on whatever machine it was tried.
    """
    pairs = _pairs(one)
    tests = {recipe: _test(both) for recipe, both in pairs.items()}
    family: dict[str, float] = {}  # by the recipe's digest
    for other in one.others:
        digests = other.digests
        for recipe, both in _pairs(other).items():
            at, p = digests[recipe], judged_p(_test(both))
            family[at] = min(p, family.get(at, p))
    digests = one.digests
    family |= {digests[recipe]: judged_p(test) for recipe, test in tests.items()}
    adjusted = dict(zip(family, holm(list(family.values())), strict=True))
    higher = HIGHER_IS_BETTER.get(one.metric, True)
    return [
        Judged(
            recipe,
            {m: a - b for m, (a, b) in both.items()},
            tests[recipe],
            p := adjusted[digests[recipe]],
            DESCRIPTIVE
            if one.whose == ABLATED
            else accuracy_verdict(tests[recipe], higher, None, p),
        )
        for recipe, both in pairs.items()
    ]


def _pairs(one: Tried) -> dict[str, dict[str, tuple[float, float]]]:
    """By recipe and mechanism its score and that of the common one, where two have both."""
    common = one.scores(COMMON)
    pairs: dict[str, dict[str, tuple[float, float]]] = {}
    for recipe in one.recipes:
        both = {}
        for m, mine in one.scores(recipe).items():
            if seeds := sorted(set(mine) & set(common.get(m, {}))):
                first, second = ([of[s] for s in seeds] for of in (mine, common[m]))
                both[m] = (statistics.fmean(first), statistics.fmean(second))
        if recipe != COMMON and len(both) > 1:
            pairs[recipe] = both
    return pairs


def _test(both: Mapping[str, tuple[float, float]]) -> MeanDifference:
    return compare_means([a for a, _ in both.values()], [b for _, b in both.values()], paired=True)


def sentence(one: Tried, found: Sequence[Judged]) -> str:
    """What follows for the common recipe."""
    here = one.budgets
    # One without a record of its own is counted by what is here alone.
    every = {m: max(count, one.task.tuned.get(m, 0)) for m, count in here.items()}
    counted = _each(here)
    if every != here:
        counted += f"; {_each(every)} with those that have no record here"
    seeds = ", ".join(map(str, sorted({t.seed for t in one.trials})))
    said = (
        f"{one.title}: {len(one.mechanisms)} {one.whose}, {counted}, by {one.metric} on the dev "
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
    if one.whose == ABLATED:
        return f"{said} They are described only, and trained as their whole models are."
    if all(j.verdict == DESCRIPTIVE for j in found):
        return f"{said} Too little to judge a recipe by."
    if best := [j.recipe for j in found if j.verdict == BETTER]:
        today = ", ".join(changes(one.task.recipe.as_dict(), one.base))
        now = (
            f" {today} is the common recipe now."
            if today
            else " The common recipe is not yet that."
        )
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
    records: list[Mapping[str, Any]] = []
    warnings: list[str] = []
    for folder in source.folders:
        read = journal.read(folder / FOLDER)
        warnings += [f"{folder / FOLDER}: {warning}" for warning in read.warnings]
        records += read.records
    found, left = tried(records, device)
    return found, [*warnings, *left]


def section(found: Sequence[Tried], place: Output) -> Shown:
    """The recipes that were tried, task by task."""
    return together(*([_task(one, place) for one in found] or [remark(NONE)]))


def _task(one: Tried, place: Output) -> Shown:
    verdicts = judged(one)
    named = f"{one.title} {one.former}".rstrip()
    name, shown = f"tuning-{file_name(named)}", says([sentence(one, verdicts)])
    if verdicts:
        points, base = one.unit.of_differences.strip(), "former" if one.former else "common"
        draw = partial(
            forest,
            lines(one, verdicts),
            f"{one.title}: recipes less the {base} one",
            f"bars: 95 % t-intervals over {one.whose}; grey: not shown after Holm",
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
    less = f"{one.title}: less the {one.common}{f', {points}' if points else ''}"
    columns = [less, "mean [95 %]", "p (Holm), verdict", *one.mechanisms]
    row = [
        unit.number(statistics.fmean(common[m].values())) if m in common else ""
        for m in one.mechanisms
    ]
    rows = [[f"{one.common}: {unit.named(one.metric)}", "", "", *row]]
    for j in found:
        described = j.verdict == DESCRIPTIVE
        verdict = j.verdict if described else f"{j.adjusted_p:.2g}, {j.verdict}"
        if j.verdict == "undecided":
            least = known(j.difference.detectable_among(len(found)), unit.number)
            verdict += f" ({DETECTABLE} {least})" if least else ""
        singles = [unit.difference(j.singles[m]) if m in j.singles else "" for m in one.mechanisms]
        rows.append([j.recipe, unit.interval(j.difference), verdict, *singles])
    return under(columns, rows)


def lines(one: Tried, found: Sequence[Judged]) -> list[Line]:
    """Rows of a forest plot: the mean over the mechanisms, and each of them."""
    return [
        Line.of(j.recipe, "", j.difference, one.unit.scale, decided=j.verdict in (BETTER, "worse"))
        for j in found
    ]
