"""Claims about averages over the tasks of a family: the tasks are the replicates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from statistics import fmean

from harness.experiments.conclusion import Comparison, Conclusion
from harness.experiments.examples import STANDING
from harness.experiments.over_tasks import (
    missing_over_tasks,
    overall_without,
    verdict_over_tasks,
)
from harness.experiments.overall import Overall, OverallRow
from harness.experiments.replicates import EXPLORATORY, unit_of
from harness.experiments.training import training_flaws
from harness.stats import OverTasks, judged_p, over_tasks
from harness.train.task import gathered
from reports.claims.declared import (
    beside_printed,
    decided,
    judged_in,
    keys_of,
    recipes_told,
    sides_of,
)
from reports.claims.device import DeviceFrames, fitting_pairs
from reports.claims.models import LEAST_SEEDS, none_paired
from reports.claims.record import Claim
from reports.claims.verdict import Answer, Evidence, of_difference


def difference_over_tasks(claim: Claim, device: DeviceFrames) -> Evidence:
    """Test metric of the first minus the second, of their means over all tasks of a family.

    The interval is over the tasks, and so is the verdict: that of the declared family, by Holm over
    its models. Of several families one declared before its runs rather than exploratory, by a
    design file rather than by a command, of the preferred names, the newest. All tasks have to be
    trained; those where the training was not alike have no part in it, and are named. Two models of
    a family of which neither is the baseline are compared alike, which was declared nowhere.

    Parameters: ``first``, ``second`` (names, the preferred first), ``task`` (the family's name).
    """
    p = claim.parameters
    families = [
        (family, family.overall)
        for family in device.conclusions
        if family.overall is not None and gathered(family.overall.tasks) == (p["task"],)
    ]
    found: list[tuple[tuple[bool, bool, int, str], tuple[Conclusion, Overall, OverallRow, int]]]
    found = []
    for family, over in families:
        planned, at = family.record.get("plan") is not None, str(family.record.get("at"))
        for row in over.rows:
            if row.tasks.difference is None:
                continue
            for sign, names in sides_of(claim, row.model, family.baseline):
                early = not _late(family, row.model)
                found.append(((early, planned, -sum(names), at), (family, over, row, sign)))
    if found:
        return _declared(claim, *max(found, key=lambda one: one[0])[1])
    for family, _ in reversed(families):
        for first, second in fitting_pairs(claim, family.models):
            return _of_two(first, second, family, p["task"])
    return none_paired(claim)


def _declared(
    claim: Claim, family: Conclusion, over: Overall, row: OverallRow, sign: int
) -> Evidence:
    d, unit = row.tasks.difference, unit_of(row.metric)
    assert d is not None
    unlike = [task for task in over.tasks if task not in row.shared]
    runs = [r for c in family.comparisons if c.first == row.model for r in c.runs]
    said = [
        f"{row.model} against {family.baseline}, means over "
        f"{_counted(over.tasks, unlike, claim.parameters['task'])}: {unit.interval(d)}"
        f"{unit.of_differences}, p Holm {row.adjusted_p:.2g}, {verdict_over_tasks(row, over)}; "
        f"{row.tasks.wins} better, {row.tasks.losses} worse (sign test p = {row.tasks.sign_p:.2g})",
        *(text for text in overall_without(family) if text.startswith(f"{row.model} ")),
        *_beside_printed(family, [row.model, family.baseline], claim.parameters["task"]),
        recipes_told(
            {m: [r for r in runs if r["model"] == m] for m in (row.model, family.baseline)}
        ),
        judged_in(family),
    ]
    late = _late(family, row.model)
    others = [f"{c.first} on {c.task}" for c in family.comparisons if c.exploratory]
    if others and not late:
        said.append(f"of its family exploratory: {', '.join(others)}")
    answer: Answer | None = None if decided(claim, row.verdict) else "undecided"
    told = f"{f'{EXPLORATORY}: ' * late}{'; '.join(said)}."
    return of_difference(d, sign * unit.scale, told, keys_of(runs), answer)


def _late(family: Conclusion, model: str) -> bool:
    """Whether one of a model's comparisons is exploratory."""
    return any(c.exploratory for c in family.comparisons if c.first == model)


def _of_two(first: str, second: str, family: Conclusion, task: str) -> Evidence:
    """Two models that were compared with one baseline."""
    of = {(c.first, c.task): c for c in family.comparisons}
    both = {t: (of[first, t], of[second, t]) for t in family.tasks}
    unlike = [t for t, pair in both.items() if _unlike(*pair)]
    alike = [t for t in family.tasks if t not in unlike]
    one = both[family.tasks[0]][0]
    metrics, higher = dict.fromkeys(alike, one.metric), dict.fromkeys(alike, one.higher_is_better)

    def over_all(mean: Callable[[Comparison], float]) -> OverTasks:
        means = [{t: mean(both[t][side]) for t in alike} for side in (0, 1)]
        return over_tasks(means[0], means[1], metrics, higher)

    over = over_all(_mean)
    d, unit = over.difference, one.unit
    sides = zip((first, second), (0, 1), strict=True)
    runs = {name: [r for t in alike for r in both[t][side].sides[0]] for name, side in sides}
    keys = keys_of(itertools.chain(*runs.values()))
    counted = _counted(family.tasks, unlike, task)
    if d is None:
        reason = f"{first} and {second}: too few of {counted} count."
        return Evidence(reason=reason, keys=keys, answer="undecided")
    open_ = missing_over_tasks(d, unit, 1) if d.low <= 0 <= d.high else ""
    said = (
        f"{first} against {second}, means over {counted}: {unit.interval(d)}"
        f"{unit.of_differences}{open_}; {over.wins} better, {over.losses} worse (sign test p = "
        f"{over.sign_p:.2g}); p = {judged_p(d):.2g}"
    )
    if any(c.examples is not None and c.examples.seen for t in alike for c in both[t]):
        left = over_all(_mean_unseen)
        if left.difference is not None:
            said += (
                f"; without {STANDING} {unit.told(left.difference)}, "
                f"{left.wins} better, {left.losses} worse, p = {judged_p(left.difference):.2g}"
            )
    said = "; ".join([said, *_beside_printed(family, [first, second], task)])
    said += f"; {recipes_told(runs)}; both trained for {family.title}; declared in no family."
    said = f"{EXPLORATORY}: {said}"
    scale = unit.scale if one.higher_is_better else -unit.scale
    if d.count_first < LEAST_SEEDS:
        return of_difference(d, scale, said, keys, "undecided")
    return of_difference(d, scale, said, keys, p=judged_p(d))


def _beside_printed(family: Conclusion, models: Sequence[str], task: str) -> list[str]:
    """How far the means over all tasks, alike trained or not, are from the printed averages."""
    means: dict[str, list[float]] = {}
    for c in family.comparisons:
        for model, mean in ((c.first, _mean(c)), (c.second, _mean(c, of_first=False))):
            means.setdefault(model, []).append(mean)
    averages = {model: fmean(means[model]) for model in models}
    return beside_printed(task, family.comparisons[0].metric, averages)


def _unlike(first: Comparison, second: Comparison) -> bool:
    """Whether one of two models, each compared with the same baseline, was trained more."""
    sides, higher = (first.sides[0], second.sides[0]), first.higher_is_better
    return bool(training_flaws((first.first, second.first), sides, first.metric, higher))


def _mean(c: Comparison, of_first: bool = True) -> float:
    if c.difference is None:
        return math.nan
    return c.difference.mean_first if of_first else c.difference.mean_second


def _mean_unseen(c: Comparison) -> float:
    """Of the first, without the test examples that stand in its training set."""
    return c.examples.mean(0) if c.examples is not None and c.examples.values else _mean(c)


def _counted(tasks: Sequence[str], unlike: Sequence[str], family: str) -> str:
    """``the 16 tasks of mtl16``, or how many of them count, and why the others don't."""
    whole = f"the {len(tasks)} tasks of {family}"
    if not unlike:
        return whole
    count = len(tasks) - len(unlike)
    return f"{count} of {whole} (the training was not alike on {', '.join(unlike)})"
