"""Tables of ``corpora.ipynb``: the numbers that are saved, and the texts that are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from harness.experiments.estimate import sought
from harness.experiments.tables import DETECTABLE, NEEDED
from harness.experiments.warnings import NOT_COUNTED
from reports.core.trained import Against, TaskRuns

APART = ("better", "worse")


def head(task: TaskRuns) -> str:
    """``trec (%)``: a task with the unit of its metric."""
    own = task.models[0]
    better = "" if own.higher_is_better else ", lower is better"
    return f"{task.name} ({own.unit.of_values.strip() or own.metric}{better})"


def numbers(tasks: Iterable[TaskRuns]) -> pd.DataFrame:
    """Every model's test metric on every task."""
    return pd.DataFrame(
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
            "keys": " ".join(str(r["key"]) for r in m.runs),
        }
        for task in tasks
        for m in task.models
    )


def differences(found: Sequence[Against]) -> tuple[pd.DataFrame, list[str], list[list[str]]]:
    """Comparisons that are judged together: numbers, headings and texts."""
    missing = [
        sought(one.difference, None, len(found)) if one.verdict == "undecided" else None
        for one in found
    ]
    columns = ["", "difference [95 %]", "p", "p (Holm)", "over", DETECTABLE, NEEDED, "verdict"]
    rows = [
        [
            f"{one.model.task}: {one.model.model} − {one.other.model}",
            one.text,
            f"{one.difference.p:.2g}",
            f"{one.adjusted_p:.2g}",
            one.counted,
            one.model.unit.number(one.difference.detectable_among(len(found))),
            "" if open_ is None else open_.count,
            one.verdict,
        ]
        for one, open_ in zip(found, missing, strict=True)
    ]
    frame = pd.DataFrame(
        {
            "task": one.model.task,
            "metric": one.model.metric,
            "model": one.model.model,
            "other": one.other.model,
            "difference": one.difference.difference,
            "low": one.difference.low,
            "high": one.difference.high,
            "p": one.difference.p,
            "p_holm": one.adjusted_p,
            "hedges_g": one.difference.hedges_g,
            "minimum_detectable_effect": one.difference.detectable_among(len(found)),
            "seeds_needed": None if open_ is None else open_.needed,
            "replicates": one.difference.count_first,
            "verdict": one.verdict,
        }
        for one, open_ in zip(found, missing, strict=True)
    )
    return frame, columns, rows


def apart(found: Sequence[Against]) -> str:
    """What differs after Holm, counted or not; else how many intervals exclude zero."""
    shown = [one for one in found if one.verdict.removesuffix(NOT_COUNTED) in APART]
    if shown:
        return "; ".join(f"{one.model.model} {one.text}, {one.verdict}" for one in shown)
    excluded = sum(not d.low <= 0 <= d.high for d in (one.difference for one in found))
    return (
        f"no difference is shown after Holm; {excluded} of {len(found)} intervals, each by "
        "itself, exclude zero"
    )
