"""Tables of ``corpora.ipynb``: the numbers that are saved, and the texts that are shown."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.experiments.conclusion import Conclusion
from harness.experiments.estimate import sought
from harness.experiments.examples import hanging
from harness.experiments.replicates import EXPLORATORY
from harness.experiments.tables import DETECTABLE, NEEDED
from harness.experiments.warnings import NOT_COUNTED
from reports.core.against import Against
from reports.core.tables import Cell, Saved
from reports.core.trained import ModelRuns, TaskRuns, per_unit
from reports.core.words import known, number_text

APART = ("better", "worse")
NUMBERS = ("difference", "low", "high", "p")
"""Of a difference, in a file."""


def head(task: TaskRuns, trained: Sequence[str] = ()) -> str:
    """``trec (%)``: a task, how it was trained where that is told, and its metric's unit."""
    own = task.models[0]
    better = "" if own.higher_is_better else ", lower is better"
    name = ", ".join([task.name, *trained])
    return f"{name} ({own.unit.of_values.strip() or own.metric}{better})"


def unseen(model: ModelRuns, conclusions: Iterable[Conclusion]) -> float | None:
    """Mean of its test metric without test examples that stand in the training set.

    None where there are none, or where of a run neither predictions were kept nor numbers without
    them: as comparisons of its runs tell, each of some, and the records that have numbers.
    """
    keys = {run["key"] for run in model.runs}
    of = {run["key"]: run["unseen"] for run in model.runs if run.get("unseen")}
    told = {key: float(one["test"].get(model.metric, math.nan)) for key, one in of.items()}
    seen = any(one["seen"] for one in of.values())
    every = [c.examples for family in conclusions for c in family.comparisons if c.examples]
    for examples in every:
        found = {key: examples.by_run[key] for key in keys & examples.by_run.keys()}
        told |= found
        seen = seen or (bool(found) and examples.seen > 0)
    if not seen or told.keys() != keys or not all(map(math.isfinite, told.values())):
        return None
    return statistics.fmean(per_unit(model.runs, lambda run: told[run["key"]]))


def mean_cell(model: ModelRuns, conclusions: Iterable[Conclusion]) -> str:
    """``92.16 (0.84)``, and where it is known what is left without seen test examples."""
    left = unseen(model, conclusions)
    return model.text if left is None else f"{model.text}, {model.unit.number(left)} unseen"


def numbers(
    tasks: Iterable[TaskRuns], conclusions: Sequence[Conclusion] = ()
) -> list[dict[str, Any]]:
    """Every model's test metric on every task."""
    return [
        {
            "task": m.task,
            "model": m.model,
            "metric": m.metric,
            "mean": m.mean,
            "sd": m.sd,
            "low": m.interval.low,
            "high": m.interval.high,
            "replicates": len(m.values),
            "over": m.counted,
            "failed": len(m.failed),
            "unseen": unseen(m, conclusions),
            "keys": " ".join(str(r["key"]) for r in m.runs),
        }
        for task in tasks
        for m in task.models
    ]


def differences(found: Sequence[Against], margins: Mapping[str, float]) -> Saved:
    """Comparisons that are judged together, or as they were declared: numbers, and texts.

    Parameters
    ----------
    margins : mapping
        By task the margin that was declared, which seeds are to find.
    """
    flat, rows = [], []
    for one in found:
        d, open_, own, verdict = one.difference, None, one.declared, one.verdict
        flaws = one.flaws if verdict.endswith(NOT_COUNTED) else ()
        reasons = "; ".join([*flaws, *hanging(own.examples if own else None)])
        adjusted = math.nan if math.isnan(d.p) else one.adjusted_p  # one pair has no p
        if own is not None:
            open_ = own.sought
        elif verdict == "undecided":
            open_ = sought(d, margins.get(one.model.task), one.together, bool(one.flaws))
        rows.append(
            {
                "": f"{', '.join([one.model.task, *one.trained])}: {one.model.model} − "
                f"{one.other.model}",
                "difference [95 %]": one.text,
                "p": number_text(d.p, ".2g"),
                "p (Holm)": number_text(adjusted, ".2g"),
                "over": one.counted,
                DETECTABLE: known(d.detectable_among(one.together), one.model.unit.number),
                NEEDED: "" if open_ is None else open_.count,
                "verdict": Cell.of(
                    f"{_declared(one)}{verdict}", notes=(reasons,) if reasons else ()
                ),
            }
        )
        flat.append(
            {
                "task": one.model.task,
                "metric": one.model.metric,
                "model": one.model.model,
                "other": one.other.model,
                **{name: getattr(d, name) for name in NUMBERS},
                "p_holm": one.adjusted_p,
                "hedges_g": d.hedges_g,
                "minimum_detectable_effect": d.detectable_among(one.together),
                "seeds_needed": None if open_ is None else open_.needed,
                "replicates": d.count_first,
                "verdict": verdict,
                "declared": own is not None,
                "not_counted": "; ".join(one.flaws),
                "trained": ", ".join(one.trained),
            }
        )
    return flat, rows


def _declared(one: Against) -> str:
    late = "" if one.early else EXPLORATORY
    said = ", ".join(filter(None, ["as declared" if one.declared else "", late]))
    return f"{said}: "


def counted(found: Sequence[Against], baseline: str) -> str:
    """How many of the verdicts against a baseline are what, what is exploratory apart."""
    said = []
    for early, head in ((True, "declared before their runs"), (False, EXPLORATORY)):
        counts = Counter(one.verdict for one in found if one.early == early)
        if counts:
            said.append(f"{head}: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}")
    how = "of each task by the recipe that most models have"
    return f"Models and corpora against {baseline}, {how}; {'; '.join(said)}."


def apart(found: Sequence[Against]) -> str:
    """What differs after Holm, counted or not; else how many intervals exclude zero."""
    shown = [one for one in found if one.verdict.removesuffix(NOT_COUNTED) in APART]
    if shown:
        return "; ".join(f"{one.model.model} {one.text}, {one.verdict}" for one in shown)
    intervals = [one.difference for one in found if not math.isnan(one.difference.low)]
    excluded = sum(not d.low <= 0 <= d.high for d in intervals)
    return (
        f"no difference is shown after Holm; {excluded} of {len(intervals)} intervals, each by "
        "itself, exclude zero"
        if intervals
        else "no difference is shown: one seed or fold has no interval"
    )
