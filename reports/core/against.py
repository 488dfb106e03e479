"""Trained models against each other: differences by replicate, judged together or as declared."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations

from harness.experiments.conclusion import Comparison, Conclusion
from harness.experiments.model import form_of
from harness.experiments.preregistration import design_file
from harness.experiments.replicates import EXPLORATORY, Replicate, Values, counted, units_of
from harness.experiments.training import training_flaws
from harness.experiments.warnings import DECIDED, NOT_COUNTED
from harness.records.schema import digest
from harness.stats import (
    MeanDifference,
    Ties,
    accuracy_verdict,
    compare_means,
    holm,
    judged_p,
    ties,
    too_few,
)
from harness.stats.overall import LEAST_MODELS, LEAST_TASKS
from harness.train.recipe import without_ceilings
from reports.core.recipes import trained_with, unlike_common
from reports.core.style import mechanism_of
from reports.core.trained import ModelRuns, TaskRuns, folds_of

TURNED = {"better": "worse", "worse": "better"}
"""What a verdict becomes where its sides change places; others stay."""


@dataclass(frozen=True)
class Against:
    """One model against another on one task, over the replicates that both have.

    `adjusted_p` is Holm's over the `together` that are judged with it; the verdict has
    `NOT_COUNTED` behind it where the models were not trained alike. `declared` is the comparison of
    the same runs that has it: `as_declared`.
    """

    model: ModelRuns
    other: ModelRuns
    values: Values
    difference: MeanDifference
    adjusted_p: float = math.nan
    verdict: str = ""
    together: int = 1
    declared: Comparison | None = None

    @property
    def early(self) -> bool:
        """Whether it was declared before its runs; all else is exploratory."""
        return self.declared is not None and not self.declared.exploratory

    @property
    def text(self) -> str:
        """``−0.64 [−1.33, +0.05]``."""
        return self.model.unit.interval(self.difference)

    @cached_property
    def flaws(self) -> tuple[str, ...]:
        """Why a verdict on them is not counted: one was trained more, or not to its end.

        Of a family that is asked task by task: what one task has more of another may have less.
        """
        if self.declared is not None:
            return self.declared.flaws
        models = (self.model, self.other)
        names, tasks = [m.model for m in models], [r.get("task") for m in models for r in m.runs]
        found = {}
        for task in dict.fromkeys(tasks):
            runs = [[r for r in m.runs if r.get("task") == task] for m in models]
            found[task] = training_flaws(
                names, runs, self.model.metric, self.model.higher_is_better
            )
        unlike = sum(map(bool, found.values()))
        if len(found) > 1:
            told = f"the training was not alike on {unlike} of {len(found)} tasks"
            return (told,) if unlike else ()
        return tuple(dict.fromkeys(flaw.short for flaws in found.values() for flaw in flaws))

    @property
    def trained(self) -> list[str]:
        """What of how both were trained is not the common."""
        return unlike_common([*self.model.runs, *self.other.runs])

    @property
    def counted(self) -> str:
        """``10 paired seeds``."""
        seeds = len({r.seed for r in self.values.of_each})
        return counted(self.values.units, len(self.values.rows), seeds)


def against(model: ModelRuns, other: ModelRuns) -> Against | None:
    """Compare two models on the replicates that both have; None if they share none."""
    mine, theirs = model.replicates, other.replicates
    common = sorted(set(mine) & set(theirs), key=lambda r: (r.seed, r.fold or 0))
    found = len({r.fold for r in common} - {None})
    # How far training sets overlap is the design's number of folds, however many are finished.
    folds = max(found, folds_of(model.task)) if found else 0
    if not common or found == 1:
        return None
    units = units_of(len({r.seed for r in common}), folds)
    values = Values(units, folds, {r: (mine[r], theirs[r]) for r in common})
    difference = values.difference()
    return None if difference is None else Against(model, other, values, difference)


def judged(found: Sequence[Against]) -> list[Against]:
    """The same with verdicts that allow for their number (Holm)."""
    together = len(found)
    adjusted = holm([judged_p(one.difference) for one in found])
    out = []
    for one, p in zip(found, adjusted, strict=True):
        says: str = accuracy_verdict(one.difference, one.model.higher_is_better, None, p)
        lost = says in DECIDED and bool(one.flaws)
        verdict = f"{says}{NOT_COUNTED * lost}"
        out.append(replace(one, adjusted_p=p, verdict=verdict, together=together))
    return out


def _same(
    some: Sequence[tuple[int, float, float]], others: Sequence[tuple[int, float, float]]
) -> bool:
    """Whether the results of all seeds or folds are the same, but for what machines differ in."""
    one, other = ([*chain(*sorted(rows))] for rows in (some, others))
    if len(one) != len(other):
        return False
    return all(math.isclose(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def as_declared(found: Sequence[Against], conclusions: Iterable[Conclusion]) -> list[Against]:
    """Judged as declared, where a comparison of just these results was; what is left by `judged`.

    A run that was repeated gives the same. Of several declared ones that counts which stands
    wherever one is told (`Comparison.standing`).
    """
    every = [c for family in conclusions for c in family.comparisons if c.complete and c.difference]
    every.sort(key=lambda c: c.standing)
    out = []
    for one in found:
        of, own = (one.model.model, one.other.model, one.model.task, one.model.metric), None
        for c in every:
            if (c.first, c.second, c.task, c.metric) == of:
                own = c if _same(c.values, one.values.rows) else own
        if own is not None and own.difference is not None:
            p = own.difference.p if own.adjusted_p is None else own.adjusted_p
            told = Against(one.model, one.other, one.values, own.difference, p, own.said)
            one = replace(told, together=own.together, declared=own)
        out.append(one)
    left = iter(judged([one for one in out if one.declared is None]))
    return [next(left) if one.declared is None else one for one in out]


def tied(tasks: Sequence[TaskRuns], baseline: str) -> tuple[list[str], Ties | None]:
    """Which models can't be told apart over tasks, by their means; and the tasks it goes by.

    Of all models in their own configuration that were trained like the baseline, as many on as many
    tasks as have runs of all; each mean is over the replicates that all of them have.
    """
    on: dict[str, dict[str, ModelRuns]] = {}
    for one_task in tasks:
        if base := one_task.find(baseline):
            every = [against(m, base) for m in one_task.models if not m.variant]
            found = [one.model for one in every if one and not one.flaws]
            on[one_task.name] = {model.model: model for model in found}

    def having(models: frozenset[str]) -> list[str]:
        return [name for name, found in on.items() if models <= found.keys()]

    shared = [frozenset(a.keys() & b.keys()) for a, b in combinations(on.values(), 2)]
    models = max(shared, key=lambda some: len(some) * len(having(some)), default=frozenset())
    means: dict[str, dict[str, float]] = {}
    for name in having(models) if len(models) >= LEAST_MODELS else ():
        common = frozenset[Replicate].intersection(
            *(frozenset(on[name][m].replicates) for m in models)
        )
        for one in (on[name][m] for m in models if common):
            mean = statistics.fmean(one.replicates[r] for r in common)
            means.setdefault(name, {})[one.model] = mean if one.higher_is_better else -mean
    if len(means) < LEAST_TASKS:
        return [], None
    return list(means), ties({m: [means[t][m] for t in means] for m in sorted(models)})


def is_form(model: str, of: str) -> bool:
    """Whether it is a variant of it, ``multi_head.sdpa[positions=none]``, or a released one."""
    name, base = mechanism_of(model), mechanism_of(of)
    return name == base or name.startswith(f"{base}_")


def better_forms(
    model: str, tasks: Collection[str], every: Iterable[Conclusion]
) -> Iterator[tuple[Conclusion, Comparison]]:
    """Where another form of a model is shown to have ended better than that on one of the tasks.

    That form stands first, also where the model was judged against it.
    """
    return (one for one in better_than(model, tasks, every) if is_form(one[1].first, model))


def better_than(
    model: str, tasks: Collection[str], every: Iterable[Conclusion]
) -> Iterator[tuple[Conclusion, Comparison]]:
    """Where any model is shown to have ended better than one on one of the tasks, and is first."""
    for family in every:
        for asked in family.comparisons:
            if asked.task in tasks and model in (asked.first, asked.second):
                c = asked if asked.second == model else _turned(asked)
                if _ended_better(c):
                    yield family, c


def _turned(c: Comparison) -> Comparison:
    """The second model against the first; words, chances and examples stay those of the other."""
    d = c.difference
    return replace(
        c,
        design={**c.design, "runs": [(second, first) for first, second in c.design["runs"]]},
        first=c.second,
        second=c.first,
        values=tuple((number, second, first) for number, first, second in c.values),
        difference=d and replace(d, difference=-d.difference, low=-d.high, high=-d.low),
        verdict=TURNED.get(c.verdict, c.verdict),
    )


def outdone(one: Conclusion, every: Iterable[Conclusion]) -> list[str]:
    """Which other forms of its baseline ended better than that on its tasks: a line each.

    By its own recipe and vectors, or by others, which are told; of one in its own family also what
    the models are to that.
    """
    models = [c.first for c in one.comparisons if not is_form(c.first, one.baseline)]
    mine = {c.task: _trained_by(c) for c in one.comparisons if c.runs}
    found: dict[str, dict[bool, dict[str, None]]] = {}
    for family, c in better_forms(one.baseline, mine, every):
        own, alike = family.key == one.key, mine[c.task] == _trained_by(c)
        if own and not models:
            continue  # it is what shows it
        by = [*filter(None, [design_file(c.design)]), *([] if alike else trained_with(c.runs))]
        told = f"{c.first} {c.unit.told(c.difference)}, {f'{EXPLORATORY}: ' * c.exploratory}"
        told += c.said + f" ({', '.join(by)})" * bool(by)
        told += "".join(_less(m, c) for m in family.of_task(c.task) if own and m.first in models)
        found.setdefault(c.task, {}).setdefault(alike, {})[told] = None
    head = f"a weak baseline? Other forms of {one.baseline}"
    how = {True: "by the same recipe", False: "by another recipe or other vectors than here"}
    return [
        f"{task}: {head} ended better {how[alike]}: {'; '.join(forms[alike])}"
        for task, forms in found.items()
        for alike in sorted(forms, reverse=True)
    ]


def _trained_by(c: Comparison) -> set[str]:
    """Digests of what the runs of its baseline were trained by, ceilings left out."""
    return {
        digest([without_ceilings(run.get("recipe") or {}), run.get("vectors")])
        for run in c.sides[1]
    }


def pair_of(c: Comparison) -> tuple[str, str, str]:
    """Its two models, whatever computes them, and its task."""
    return form_of(c.first), form_of(c.second), c.task


def asking(every: Iterable[Conclusion]) -> dict[tuple[str, str, str], list[str]]:
    """In which design files two models stand against each other on a task; each has a family."""
    files: dict[tuple[str, str, str], dict[str, None]] = {}
    for family in every:
        if file := design_file(family.record):
            for c in family.comparisons:
                files.setdefault(pair_of(c), {})[file] = None
    return {pair: list(some) for pair, some in files.items()}


def asked_again(one: Conclusion, every: Iterable[Conclusion]) -> list[str]:
    """In which other design files its pairs stand too: a line for each."""
    plan, files = design_file(one.record), asking(every)
    by_files: dict[str, list[str]] = {}
    for c in one.comparisons:
        if also := [file for file in files.get(pair_of(c), ()) if file != plan]:
            by_files.setdefault(", ".join(also), []).append(f"{c.first} on {c.task}")
    return [
        f"{', '.join(models)}: asked in {also} too, each judged by itself: no p allows for others"
        for also, models in by_files.items()
    ]


def _ended_better(c: Comparison) -> bool:
    """Whether it is shown: better, or practically equal by less than there is."""
    d = c.difference
    if d is None or c.verdict not in ("better", "practically equal"):
        return False
    return d.low > 0 if c.higher_is_better else d.high < 0


def _less(c: Comparison, form: Comparison) -> str:
    """What a model is to another form of its baseline, of the seeds that both have in pairs."""
    other = {number: value for number, value, _ in form.values}
    both = [(value, other[number]) for number, value, _ in c.values if number in other]
    if not (both and c.paired and form.paired and c.units == "seeds"):
        return ""
    d = compare_means(*zip(*both, strict=True), paired=True)
    p = "" if too_few(d) else f", p = {d.p:.2g}"
    return f"; {c.first} less that {c.unit.told(d)}{p}, {EXPLORATORY}"


def beyond_none(found: Sequence[Against]) -> list[str]:
    """Where a model that attends to nothing is ahead of the baseline, what others have over it.

    A line for each task; ahead is what has an interval beyond zero.
    """
    said = []
    for none in found:
        model, d = none.model, none.difference
        ahead = d.low > 0 if model.higher_is_better else d.high < 0
        if model.mechanism != "none" or not ahead:
            continue
        others = [one.model for one in found if one.model.task == model.task and one is not none]
        over = [pair for other in others if (pair := against(other, model))]
        sign = 1 if model.higher_is_better else -1
        over.sort(key=lambda pair: sign * pair.difference.difference, reverse=True)
        unit = model.unit.of_differences.strip() or model.metric
        judged = f" (judged {none.verdict})" if none.verdict else ""
        gains = ", ".join(
            f"{pair.model.model} {pair.text}{' (not trained alike)' * bool(pair.flaws)}"
            for pair in over
        )
        said.append(
            f"On {model.task}, {model.model}, which attends to nothing, is itself ahead of "
            f"{none.other.model}, by {none.text} {unit}{judged}: what a model has over "
            f"{none.other.model} there is not yet due to attention"
            + (f". Over {model.model}, {EXPLORATORY}, each by itself: {gains}." if gains else ".")
        )
    return said
