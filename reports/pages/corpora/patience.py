"""What patience may have lost: longer runs of the same models, and runs that it did not end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from harness.experiments.conclusion import Conclusion
from harness.experiments.costs import at_ceiling
from harness.experiments.replicates import counted_each, is_ok
from harness.stats import compare_means, too_few
from harness.train.task import gathered, known_tasks
from reports.core.against import against
from reports.core.page import Output, Shown, remark, together
from reports.core.tables import Saved
from reports.core.trained import ModelRuns, TaskRuns
from reports.pages.corpora.causes import ALL, apart_of, called, setting_of

SHORT = (
    "What a patience would have lost of runs that were given all steps, where it ended others: by "
    "the metric that chose their epoch, means of the runs that it would have ended before their "
    "best epoch."
)


def cut_short(machines: Sequence[Iterable[Sequence[TaskRuns]]]) -> Saved:
    """What a patience would have made of the runs that none ended, where it ended others.

    A row for each model, task and such a patience: when the last better epoch came, how long the
    longest wait for one was, and what the runs would have ended with that it would have ended.
    """
    every = [one for one in _models(machines) if _kept(one)]
    flat: list[dict[str, Any]] = []
    rows: list[dict[str, str]] = []
    for whole in every:
        setting = setting_of(whole)
        if setting.get("patience") != ALL:
            continue
        of = (whole.model, whole.task)
        alike = (setting_of(one) for one in every if (one.model, one.task) == of)
        shorter = {one["patience"] for one in alike if {**one, "patience": ALL} == setting} - {ALL}
        for patience in sorted(shorter):
            numbers, row = _row(whole, patience)
            if row not in rows:
                flat.append(numbers)
                rows.append(row)
    return flat, rows


def short_patience(one: Conclusion, machines: Sequence[Iterable[Sequence[TaskRuns]]]) -> list[str]:
    """Which of its models ended better by a longer patience, otherwise alike, on any machine.

    On the same task, with whatever options (``mirrored_summation[k=3]``); of several that which was
    longest, a line for each model; and one where a run by all steps would have ended worse. Of a
    task that is another one at another size, also what other models lost by this patience there.
    """
    every = _models(machines)
    said: dict[str, dict[str, None]] = {}
    for c in one.comparisons:
        for model, side in zip((c.first, c.second), c.sides, strict=True):
            runs = tuple(run for run in side if is_ok(run) and not at_ceiling(run))
            if not runs:
                continue
            own = ModelRuns(model, c.task, c.metric, runs)
            alike = [told for by in _alike(own, every) for told in _lost(own, by)]
            for told in alike or _at_another_size(own, every):
                said.setdefault(told, {})[c.task] = None
    may = "patience may have ended its runs here, not the model"
    return [f"{', '.join(gathered([*tasks]))}: {told}; {may}" for told, tasks in said.items()]


def _models(machines: Iterable[Iterable[Sequence[TaskRuns]]]) -> list[ModelRuns]:
    return [m for tasks in machines for recipes in tasks for of in recipes for m in of.models]


def _alike(own: ModelRuns, every: Iterable[ModelRuns]) -> Iterable[dict[Any, ModelRuns]]:
    """What was trained like it but for patience, by that, for each task of its name.

    Of several that of most replicates.
    """
    setting, of = setting_of(own), (own.model, _base(own.task))
    named = [m for m in every if (m.model, _base(m.task)) == of]
    found: dict[str, dict[Any, ModelRuns]] = {}
    for m in sorted(named, key=lambda one: len(one.values)):
        other = setting_of(m)
        if {**other, "patience": setting.get("patience")} == setting:
            found.setdefault(m.task, {})[other["patience"]] = m
    return found.values()


@cache
def _loads(task: str) -> frozenset[str]:
    """Which functions make its data; none of a task that this version does not know."""
    return frozenset(one.load for one in known_tasks(task))


def _at_another_size(own: ModelRuns, every: Sequence[ModelRuns]) -> list[str]:
    """What a longer patience than its own was worth where its task has other options: in one line.

    Of the models that were trained by both there.
    """
    patience, name = setting_of(own)["patience"], _base(own.task)
    sizes = [m for m in every if _base(m.task) != name and _loads(m.task) & _loads(name)]
    others = [m for m in sizes if setting_of(m)["patience"] == patience]
    found = dict.fromkeys(
        told for m in others for by in _alike(m, every) if m in by.values() for told in _lost(m, by)
    )
    return [f"at another size {' and '.join(found)}"] if found else []


def _lost(own: ModelRuns, by: Mapping[Any, ModelRuns]) -> list[str]:
    """What the longest patience gained over its own, and what its own would have lost."""
    patience = setting_of(own)["patience"]
    most = max(by, key=lambda one: (one == ALL, one))
    longer, short = by[most], by.get(patience)
    if short is None or longer is short:
        return []
    names, said = [called("patience", setting_of(m)) for m in (longer, short)], []
    if told := _gained(longer, short):
        said.append(f"{names[0]} in place of {names[1]} changed {own.model} by {told}")
    if most == ALL and _kept(longer):
        numbers, row = _row(longer, patience)
        if numbers["ended"]:
            said.append(f"with {names[1]} {row['is lost']}: {own.model} by all steps")
    return said


def _gained(longer: ModelRuns, other: ModelRuns) -> str:
    """``-0.0255 [-0.0414, -0.0095] on mirrored_summation (unpaired seeds)``, if that is shown.

    Paired where they share seeds or folds.
    """
    pair = against(longer, other)
    d = pair.difference if pair else compare_means(longer.values, other.values, paired=False)
    better = d.low > 0 if longer.higher_is_better else d.high < 0
    folds = any(r.fold is not None for r in longer.replicates) and not pair
    if not better or too_few(d) or folds:
        return ""
    how = pair.counted if pair else counted_each(len(longer.values), len(other.values))
    where = ", on two machines" * apart_of(longer, other)
    return f"{longer.unit.told(d)} on {longer.task} ({how}{where})"


def _base(task: str) -> str:
    return task.partition("[")[0]


def _kept(model: ModelRuns) -> bool:
    """Whether its runs kept the metric that chose their epoch, of every epoch."""
    every = [epoch for run in model.runs for epoch in run.get("epochs") or [{}]]
    split = _split(model)
    return all(model.metric in epoch.get(split, {}) for epoch in every)


def _split(model: ModelRuns) -> str:
    """By whose metric the epoch was chosen, and patience counted."""
    return "test" if model.best_on_test else "dev"


def _row(whole: ModelRuns, patience: int) -> tuple[dict[str, Any], dict[str, str]]:
    split, unit = _split(whole), whole.unit
    found = [_cut(whole, run, patience) for run in whole.runs]
    ended = [one.values for one in found if one.ended < one.best]
    end, best = map(statistics.fmean, zip(*ended, strict=True)) if ended else (math.nan, math.nan)
    runs = f"{len(ended)} of {len(found)} runs end with {unit.value(end)}, not {unit.value(best)}"
    wait = max(one.wait for one in found)
    numbers = {
        "task": whole.task,
        "model": whole.model,
        "recipe": whole.recipe,
        "runs": len(found),
        "longest_wait": wait,
        "patience": patience,
        "ended": len(ended),
        "mean_ended": end,
        "mean_best": best,
    }
    return numbers, {
        "": f"{whole.task}: {whole.model}",
        "all steps of": whole.recipe,
        "over": whole.counted,
        "best by": "test set" if split == "test" else split,
        "best epoch": _range([one.best for one in found]),
        "of": _range([one.epochs for one in found]),
        "longest wait": str(wait),
        "with patience": str(patience),
        "is lost": runs if ended else "nothing",
    }


def _range(numbers: Sequence[int]) -> str:
    """``6``, ``6 to 13``."""
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


@dataclass(frozen=True)
class _Cut:
    """A run by all steps, and its best epoch had a patience ended it; epochs count from one.

    `wait`: the longest for a better epoch; `values`: by patience, and by all steps.
    """

    best: int
    epochs: int
    wait: int
    ended: int
    values: tuple[float, float]


def _cut(whole: ModelRuns, run: Mapping[str, Any], patience: int) -> _Cut:
    split = _split(whole)
    sign = 1 if whole.higher_is_better else -1
    values = [sign * epoch[split][whole.metric] for epoch in run["epochs"]]
    better = [i for i, value in enumerate(values) if value > max(values[:i], default=-math.inf)]
    waits = [after - before for before, after in pairwise(better)]
    ends = (
        before for before, after in pairwise([*better, len(values)]) if after > before + patience
    )
    last = better[-1]
    at = next(ends, last)
    both = (sign * values[at], sign * values[last])
    return _Cut(last + 1, len(values), max(waits, default=0), at + 1, both)


def section(machines: Sequence[Iterable[Sequence[TaskRuns]]], place: Output) -> Shown:
    """The table of runs that no patience ended; empty without any."""
    numbers, rows = cut_short(machines)
    return together(
        place.table("patience", numbers, rows, (0, 1, 2, 3, 8)), remark(SHORT if rows else "")
    )
