"""Where the grid of recipes that were tried ends, and what else must stand beside a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Any

from harness.experiments.conclusion import Conclusion
from harness.experiments.model import form_of
from harness.experiments.unequal import as_tuned
from harness.train.recipe import CEILINGS, HOW_FOUND, changes, without_ceilings
from harness.train.task import HIGHER_IS_BETTER, Task
from reports.core.against import asked_again, outdone
from reports.core.source import Source
from reports.core.style import mechanism_of
from reports.core.trained import tasks_by_recipe
from reports.pages.corpora.patience import short_patience
from reports.pages.corpora.trials import ABLATED, COMMON, MECHANISMS, Tried
from reports.pages.corpora.tuning import BETTER, Judged, judged, tuned


def _grids(one: Tried) -> dict[str, list[float]]:
    """By field the numbers that were tried, two or more, in their order."""
    every = one.everywhere
    names = dict.fromkeys(name for t in every for name in t.settings)
    found = {}
    for name in names.keys() - {*CEILINGS, *HOW_FOUND}:
        values = {t.settings.get(name) for t in every}
        numbers = {v for v in values if isinstance(v, int | float) and not isinstance(v, bool)}
        if len(numbers) > 1:
            found[name] = sorted(numbers)
    return {name: found[name] for name in names if name in found}


def _edge(grid: Sequence[float], value: float) -> str:
    """Which end of a grid a value is at, and how it goes on; empty inside.

    Zero is no edge: nothing below it can be tried.
    """
    tried = ", ".join(f"{one:g}" for one in grid)
    if value >= grid[-1]:
        return f"the largest that was tried ({tried}): a larger one may be better"
    if value <= grid[0] and value != 0:
        return f"the smallest that was tried ({tried}): a smaller one may be better"
    return ""


def at_edges(one: Tried, recipe: Mapping[str, Any]) -> list[str]:
    """A line for each tuned field in which a recipe of the task is at the edge of the grid."""
    grids = {n: g for n, g in _grids(one).items() if isinstance(recipe.get(n), int | float)}
    said = {n: _edge(grid, recipe[n]) for n, grid in grids.items()}
    return [
        f"{one.title}: {name} {recipe[name]:g} is {edge}" for name, edge in said.items() if edge
    ]


def best_at_edges(one: Tried) -> list[str]:
    """A line for each field of which the best value, not the common one, is at the edge.

    By the mean over the mechanisms, of recipes that change nothing but this field.
    """
    sign = 1 if HIGHER_IS_BETTER.get(one.metric, True) else -1
    fields = {t.recipe: t.recipe.partition("=")[0] for t in one.trials if "," not in t.recipe}
    alone = [j for j in judged(one) if j.recipe in fields and j.recipe != COMMON]
    out = []
    for name, grid in _grids(one).items():
        of_field = [j for j in alone if fields[j.recipe] == name]
        best = max(of_field, key=lambda j: sign * j.difference.difference, default=None)
        if best is None or sign * best.difference.difference <= 0:
            continue
        value = next(t.settings[name] for t in one.trials if t.recipe == best.recipe)
        # Each mechanism by itself: its best of this field, the common value among them.
        own = [
            max(of_field, key=lambda j: sign * j.singles.get(m, 0.0)).recipe == best.recipe
            and sign * gain > 0
            for m, gain in best.singles.items()
        ]
        if value != one.task.recipe.as_dict().get(name) and (edge := _edge(grid, value)):
            out.append(
                f"{one.title}: {name} {value:g}, the best on the dev split over the {one.whose} "
                f"(by itself of {sum(own)} of {len(own)}), is {edge}"
            )
    return out


def unequal_trials(one: Tried) -> list[str]:
    """That some mechanisms were tried with more recipes than others, or that of some not all trials
    are recorded: the task counts more.
    """
    counts = one.budgets
    least, most = min(counts.values()), max(counts.values())
    if least == most:
        return []
    told = {m: max(n, one.task.tuned.get(m, 0)) for m, n in counts.items()}
    if min(told.values()) == max(told.values()):
        some = ", ".join(f"{m} {n}" for m, n in counts.items() if n < told[m])
        said = f"{max(told.values())} recipes were tried with each mechanism, fewer are recorded of"
        return [f"{one.title}: {said} {some}"]
    few = ", ".join(m for m, count in counts.items() if count < most)
    unequal = f"unequal numbers of trials, {least} to {most} recipes; fewer with {few}"
    return [f"{one.title}: {unequal}"]


def worst_for(one: Tried, of: Collection[str] | None = None) -> list[str]:
    """With which mechanisms, of those asked for, every other recipe was better on dev than the
    common one, of those that were tried on its machine; nothing of a former common one.
    """
    if one.former:
        return []
    sign = 1 if HIGHER_IS_BETTER.get(one.metric, True) else -1
    others = [j.singles for j in judged(one) if j.recipe != COMMON]
    found = [
        m
        for m in one.mechanisms
        if of is None or m in of or (one.whose == MECHANISMS and m.partition("[")[0] in of)
        if len(own := [singles[m] for singles in others if m in singles]) > 2
        and all(sign * gain > 0 for gain in own)
    ]
    count = len(one.recipes)
    if not found:
        return []
    seeds = max(len(one.scores(COMMON)[m]) for m in found)
    by = f"the dev split, by {seeds} seed{'s' * (seeds > 1)}, with {', '.join(found)}"
    worst = f"the common recipe is the worst of {count} on {by}, so that others gain by it"
    return [f"{one.title}: {worst}{apart(one)}"]


def apart(one: Tried) -> str:
    """How far the same trial ended apart when it was tried again; empty for none that was."""
    devs: dict[tuple[Any, ...], list[float]] = {}
    for t in one.everywhere:
        if not math.isnan(t.dev):
            devs.setdefault((t.mechanism, t.own, t.seed), []).append(t.dev)
    most = max((max(some) - min(some) for some in devs.values()), default=0.0)
    same = "; the same recipe and seed ended up to {} apart when it was tried again"
    return same.format(one.unit.size(most)) if most else ""


def replaced(one: Tried, recipe: Mapping[str, Any]) -> list[str]:
    """That a recipe is a former common one, and what a later one was found to gain."""
    if not one.former or changes(without_ceilings(recipe), one.base):
        return []
    every = [*one.task.former, one.task.recipe]
    later = every[every.index(one.base) + 1 :]
    names = {", ".join(changes(each.as_dict(), one.base)) for each in later}
    return [
        f"{one.title}: {one.former} is the common recipe no more: {j.recipe} in its place "
        f"{_gave(one, j)}"
        for j in judged(one)
        if j.recipe in names and j.verdict == BETTER
    ]


def to_follow(one: Tried, of: Collection[str] = ()) -> list[str]:
    """What was found better than today's common recipe, which stands until all is run by another.

    Parameters
    ----------
    of : collection of str
        Mechanisms that are told by themselves too.
    """
    if one.former:
        return []
    said = []
    for j in (j for j in judged(one) if j.verdict == BETTER):
        own = "".join(
            f", {one.unit.difference(d)} with {m}" for m, d in j.singles.items() if m in of
        )
        said.append(
            f"{one.title}: {j.recipe} in the place of the common recipe's {_gave(one, j)}{own}: "
            "by the rule of these trials the common recipe is to be that, and is not yet"
        )
    return said


def _gave(one: Tried, j: Judged) -> str:
    return (
        f"gave {one.unit.told(j.difference)} on the dev split, over {len(j.singles)} mechanisms "
        f"(p Holm {j.adjusted_p:.2g})"
    )


def of_tuning(found: Sequence[Tried]) -> list[str]:
    """All that a reader must know of the grids, the common recipes being those of today."""
    lines = (
        line
        for one in found
        for line in (
            *at_edges(one, one.task.recipe.as_dict()),
            *best_at_edges(one),
            *unequal_trials(one),
            *worst_for(one),
            *to_follow(one),
        )
    )
    return list(dict.fromkeys(lines))  # a task's grid is the same against a former common recipe


def of_conclusion(c: Conclusion, every: Iterable[Tried]) -> list[str]:
    """What of the grids must be known beside a comparison, wherever tried, a line for each task.

    `at_edges` of the recipes of its models, of another optimiser's none; and where these are the
    common one, of whatever patience and width, of that `best_at_edges` and, for its models,
    `worst_for` and `to_follow`. Trials of ablations are asked for comparisons with one of them.
    """
    said: dict[str, dict[str, list[str]]] = {}
    forms = {*map(form_of, (*c.models, c.baseline))}
    for one in every:
        if one.whose == ABLATED and not forms & {*one.mechanisms}:
            continue
        task, grid = one.task.name, one.base.optimiser
        some = [pair for pair in c.comparisons if pair.task == task]
        by_line = said.setdefault(task, {})
        for pair in some:
            for model, recipe in zip(pair.design["models"], pair.design["recipes"], strict=True):
                if recipe.get("optimiser", grid) == grid:
                    for line in (*at_edges(one, recipe), *replaced(one, recipe)):
                        by_line.setdefault(line.removeprefix(f"{one.title}: "), []).append(model)
        usual = [run for pair in some for run in pair.runs if _is_usual(run, one.task)]
        if usual:
            models = {str(run["model"]) for run in usual}
            names = {*map(mechanism_of, models), *map(form_of, models)}
            known = *best_at_edges(one), *worst_for(one, names), *to_follow(one, names)
            for line in known:
                by_line.setdefault(line.removeprefix(f"{one.title}: "), [])
    everyone = {*c.models, c.baseline}
    return [
        f"{task}: {'; '.join(_by_whom(line, set(who), everyone) for line, who in lines.items())}"
        for task, lines in said.items()
        if lines
    ]


def _is_usual(run: Mapping[str, Any], of: Task) -> bool:
    """Whether a run is by the common recipe, but for what was never tuned, and the width."""
    recipe = {n: v for n, v in as_tuned(run.get("recipe") or {}).items() if n != "width"}
    return not changes(recipe, of.recipe)


def _by_whom(line: str, some: Set[str], everyone: Set[str]) -> str:
    """Of the edge of a recipe that only some models have it is told which."""
    return line if some in (set(), everyone) else f"{', '.join(sorted(some))}: {line}"


def known_beside(source: Source) -> Callable[[Conclusion], list[str]]:
    """What other records know of a comparison: its question, baseline and patience, the grids."""
    every, (tried, _) = source.conclusions, tuned(source)
    machines = [tasks_by_recipe(device.records) for device in source.devices if device.has("run")]
    return lambda one: [
        *asked_again(one, every),
        *outdone(one, every),
        *short_patience(one, machines),
        *of_conclusion(one, tried),
    ]
