"""What one difference to a paper's setting is worth: runs that differ in it alone, paired."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from harness.experiments.conclusion import Conclusion
from harness.experiments.costs import at_ceiling
from harness.experiments.replicates import counted_each, is_ok
from harness.stats import compare_means, too_few
from harness.train.recipe import CEILINGS, identity
from harness.train.task import gathered
from reports.core.against import Against, against, better_forms
from reports.core.page import Output, Shown, remark, says, together
from reports.core.tables import Saved
from reports.core.trained import ModelRuns, TaskRuns
from reports.pages.corpora.printed import CALLED, COMPONENTS, LESS, Beside
from reports.pages.corpora.tables import NUMBERS, head

CAUSES = {
    "vectors": "vectors {}",
    "width": "width {:,}",
    "patience": "all steps",
    "examples": "{:,} training examples",
}
"""What a gap to a printed value is known to come from, by what its fuller setting is called.

Of patience the fuller one trains the paper's steps whatever the dev curve does: as many epochs of
patience as there are epochs.
"""
FORM = "another form of it ended better"
FAR = 0.02
"""Two points: further below print a gap is to have a cause."""
ALL = "all"
"""In the place of a patience that trains all steps."""
SHORT = (
    "What a patience would have lost of runs that were given all steps, where it ended others: by "
    "the metric that chose their epoch, means of the runs that it would have ended before their "
    "best epoch."
)
NONE = (
    "No model was trained twice with but one of these changed: word vectors, width, training "
    "examples, all steps or patience."
)


def _setting(model: ModelRuns) -> dict[str, Any]:
    """Everything that decides a run but model, task, seed and fold."""
    run = model.runs[0]
    recipe = identity(run.get("recipe") or {})
    if recipe.get("patience") == recipe.get("epochs"):
        recipe["patience"] = ALL
    kept = {name: value for name, value in recipe.items() if name not in CEILINGS}
    found = {**kept, "vectors": str(run.get("vectors"))}
    if model.task in {*LESS, *LESS.values()}:
        found["examples"] = (run.get("examples") or {}).get("train") or 0
    return found


def _called(name: str, setting: Mapping[str, Any]) -> str:
    value = setting[name]
    if name == "patience" and value != ALL:
        return f"patience {value}"
    return CAUSES[name].format(value)


def _of_one_cause(first: ModelRuns, second: ModelRuns) -> str | None:
    """The name of what the two were trained with unlike, if it is one of the causes and alone."""
    one, other = _setting(first), _setting(second)
    unlike = [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
    texts = {str(r["data"]) for m in (first, second) for r in m.runs if r.get("data")}
    if len(unlike) != 1 or unlike[0] not in CAUSES:
        return None
    (cause,) = unlike
    # The digest of data counts the vectors among them.
    return None if cause not in ("vectors", "examples") and len(texts) > 1 else cause


def _fullness(model: ModelRuns) -> tuple[float, int, int, int, str]:
    """It is largest for what comes nearest to a paper's setting."""
    setting = _setting(model)
    patience, vectors = setting["patience"], setting["vectors"]
    components = COMPONENTS.search(vectors)
    steps = math.inf if patience == ALL else patience
    size = int(components[1]) if components else 0
    return steps, setting.get("examples", 0), setting["width"], size, vectors


def causes(tasks: Iterable[Sequence[TaskRuns]]) -> list[tuple[str, TaskRuns, Against]]:
    """Every two settings of one model that differ in one cause, over the replicates of both.

    Returns
    -------
    list of (str, TaskRuns, Against)
        The cause, and the pair with what was trained by the fuller setting first: all steps, more
        examples, the wider, vectors of more components.
    """
    found, corpora = [], dict[str, list[TaskRuns]]()
    for recipes in tasks:
        corpora.setdefault(LESS.get(recipes[0].name, recipes[0].name), []).extend(recipes)
    for every in corpora.values():
        settings = [(of, one) for of in every for one in of.models]
        settings.sort(key=lambda both: _fullness(both[1]), reverse=True)
        for (of, fuller), (_, other) in combinations(settings, 2):
            cause = _of_one_cause(fuller, other) if fuller.model == other.model else None
            if cause is not None and (pair := against(fuller, other)):
                found.append((cause, of, pair))
    return found


def over(machines: Sequence[Iterable[Sequence[TaskRuns]]]) -> list[tuple[str, TaskRuns, Against]]:
    """What each machine shows by itself, and only then what two of them do: `causes`."""

    def asked(one: tuple[str, TaskRuns, Against]) -> tuple[str, str, str]:
        cause, _, pair = one
        return cause, pair.model.task, pair.model.model

    found = [one for tasks in machines for one in causes(tasks)]
    told = {asked(one) for one in found}
    everywhere: dict[str, list[TaskRuns]] = {}
    for tasks in machines:
        for recipes in tasks:
            everywhere.setdefault(recipes[0].name, []).extend(recipes)
    return found + [one for one in causes(everywhere.values()) if asked(one) not in told]


def _apart(*both: ModelRuns) -> bool:
    """Whether no machine trained both."""
    one, other = ({r.get("fingerprint") for r in m.runs} for m in both)
    return not one & other


def table(found: Sequence[tuple[str, TaskRuns, Against]]) -> Saved:
    """Numbers, and texts."""
    rows, flat = [], []
    for cause, of, pair in found:
        both = (pair.model, pair.other)
        one, other = (_called(cause, _setting(m)) for m in both)
        apart = _apart(*both)
        steps = ["unknown" if m.steps is None else f"{m.steps:,.0f}" for m in both]
        rows.append(
            {
                "": f"{head(of)}: {pair.model.model}",
                "recipe": pair.model.recipe,
                "with": one,
                "in place of": other,
                "difference [95 %]": pair.text,
                "p": f"{pair.difference.p:.2g}",
                "over": ", ".join([pair.counted, *["on two machines"] * apart]),
                "steps": " / ".join(steps),
            }
        )
        flat.append(
            {
                "task": pair.model.task,
                "model": pair.model.model,
                "recipe": pair.model.recipe,
                "cause": cause,
                "with": one,
                "in_place_of": other,
                "machines": 1 + apart,
                "steps_with": pair.model.steps,
                "steps_in_place_of": pair.other.steps,
                **{name: getattr(pair.difference, name) for name in NUMBERS},
                "replicates": len(pair.values.rows),
            }
        )
    return flat, rows


def cut_short(machines: Sequence[Iterable[Sequence[TaskRuns]]]) -> Saved:
    """What a patience would have made of the runs that none ended, where it ended others.

    A row for each model, task and such a patience: when the last better epoch came, how long the
    longest wait for one was, and what the runs would have ended with that it would have ended.
    """
    every = [
        one
        for tasks in machines
        for recipes in tasks
        for of in recipes
        for one in of.models
        if all(_told(one, run) for run in one.runs)
    ]
    flat: list[dict[str, Any]] = []
    rows: list[dict[str, str]] = []
    for whole in every:
        setting = _setting(whole)
        if setting.get("patience") != ALL:
            continue
        of = (whole.model, whole.task)
        alike = (_setting(one) for one in every if (one.model, one.task) == of)
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
    longest, a line for each model; and one where a run by all steps would have ended worse.
    """
    every = [m for tasks in machines for recipes in tasks for of in recipes for m in of.models]
    said: dict[str, dict[str, None]] = {}
    for c in one.comparisons:
        for model, side in zip((c.first, c.second), c.sides, strict=True):
            runs = tuple(run for run in side if is_ok(run) and not at_ceiling(run))
            setting = _setting(ModelRuns(model, c.task, c.metric, runs)) if runs else {}
            alike: dict[str, dict[Any, ModelRuns]] = {}
            for m in every:
                other = _setting(m)
                asked = (m.model, _base(m.task)) == (model, _base(c.task))
                if asked and {**other, "patience": setting.get("patience")} == setting:
                    of = alike.setdefault(m.task, {})
                    of[other["patience"]] = max(
                        m, of.get(other["patience"], m), key=lambda one: len(one.values)
                    )
            for by in alike.values():
                most = max(by, key=lambda patience: (patience == ALL, patience))
                short = by.get(setting["patience"])
                if short is None or by[most] is short:
                    continue
                names = [_called("patience", _setting(m)) for m in (by[most], short)]
                if told := _gained(by[most], short):
                    head = f"{names[0]} in place of {names[1]} changed {model} by {told}"
                    said.setdefault(head, {})[c.task] = None
                if most == ALL and all(_told(by[ALL], run) for run in by[ALL].runs):
                    numbers, row = _row(by[ALL], setting["patience"])
                    if numbers["ended"]:
                        lost = f"with {names[1]} {row['is lost']}: {model} by all steps"
                        said.setdefault(lost, {})[c.task] = None
    may = "patience may have ended its runs here, not the model"
    return [f"{', '.join(gathered([*tasks]))}: {told}; {may}" for told, tasks in said.items()]


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
    where = ", on two machines" * _apart(longer, other)
    return f"{longer.unit.told(d)} on {longer.task} ({how}{where})"


def _base(task: str) -> str:
    return task.partition("[")[0]


def unmeasured(
    printed: Sequence[Beside],
    found: Iterable[tuple[str, TaskRuns, Against]],
    every: Sequence[Conclusion] = (),
) -> str:
    """Which models are far below print by a paper's recipe, without one known difference measured.

    Empty if none is; a task at a time, with what is known to differ, and whether `every` conclusion
    knows another form of the model that ended higher, by whatever recipe.
    """
    told = {
        (pair.model.task, pair.model.model, "steps" if cause == "patience" else cause)
        for cause, _, pair in found
    }
    said = []
    for one in printed:
        m, names = one.model, [CALLED.get(name, name) for name in one.known]
        asked = m.recipe.partition(",")[0] in ("paper", "released") and one.keyless is None
        measured = any((m.task, m.model, name) in told for name in one.known)
        if asked and one.gap < -FAR * m.unit.scale and not measured:
            names += [FORM] * any(True for _ in better_forms(m.model, [m.task], every))
            gap = f"{one.gap:+.{one.printed.digits}f}"
            said.append(f"{m.task}, {m.recipe}, {m.model} {gap} ({', '.join(names) or 'nothing'})")
    what = (
        "Far below print by a paper's recipe, or nearly, while nothing that is known to differ (in"
    )
    told_once = "; ".join(dict.fromkeys(said))
    return f"{what} parentheses) was measured for that model: {told_once}." if said else ""


def _told(model: ModelRuns, run: Mapping[str, Any]) -> bool:
    """Whether a run kept the metric that chose its epoch, of every epoch."""
    every = run.get("epochs") or [{}]
    return all(model.metric in epoch.get(_split(model), {}) for epoch in every)


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


def section(
    machines: Sequence[Sequence[Sequence[TaskRuns]]],
    printed: Sequence[Beside],
    every: Sequence[Conclusion],
    place: Output,
) -> Shown:
    """The table with what it says, what patience would have lost, and what has no cause yet."""
    found = over(machines)
    left = says(filter(None, [unmeasured(printed, found, every)]))
    short, rows = cut_short(machines)
    if not found:
        return together(left, remark(NONE))
    return together(
        place.table("causes", *table(found), (0, 1, 2, 3, 6)),
        remark(
            "What one of the known differences is worth: the same model, trained with it and "
            "without, all else alike but the steps that patience left (medians), paired by seed. "
            "Every interval is by itself."
        ),
        left,
        place.table("patience", short, rows, (0, 1, 2, 3, 8)),
        remark(SHORT if rows else ""),
    )
