"""Over several tasks: which test answers, and why that one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.experiments.conclusion import Comparison
from harness.stats import (
    LEAST_REPLICATES,
    Friedman,
    OverTasks,
    friedman,
    holm,
    judged_p,
    over_tasks,
    sharing,
)
from harness.stats import accuracy_verdict as judge
from harness.stats.overall import DRAWS, LEAST_MODELS, LEAST_TASKS


@dataclass(frozen=True)
class OverallRow:
    """One model against the baseline, over tasks.

    Attributes
    ----------
    model : str
    tasks : OverTasks
    shared : tuple of str
        The tasks of its paired t-test: those that share a metric.
    metric : str
        That metric; empty where there is no such test.
    verdict : str
        Of that test, its p adjusted for the number of models: ``better``, ``worse``, ``undecided``,
        ``descriptive only`` (fewer than five tasks); ``signs only`` where no two share a metric.
    adjusted_p : float
        By Holm over the models: of the t-test, or of the sign test where there is no t-test.
    """

    model: str
    tasks: OverTasks
    shared: tuple[str, ...]
    metric: str
    verdict: str
    adjusted_p: float


@dataclass(frozen=True)
class Overall:
    """What the tasks together say.

    Attributes
    ----------
    omnibus : Friedman or None
        Whether any model differs; None for two models.
    rows : tuple of OverallRow
    tasks, left_out : tuple of str
        Tasks that count, and those that don't, because runs of a model are missing there.
    why : tuple of str
        Which tests, and why these; one sentence each.
    """

    omnibus: Friedman | None
    rows: tuple[OverallRow, ...]
    tasks: tuple[str, ...]
    left_out: tuple[str, ...]
    why: tuple[str, ...]


def overall(judged: Sequence[Comparison], baseline: str) -> Overall | None:
    """Test models over tasks; None where fewer than two tasks have pairs of every model."""
    by = {(c.first, c.task): None if c.verdict == "unfinished" else c.difference for c in judged}
    models = list(dict.fromkeys(c.first for c in judged))
    named = list(dict.fromkeys(c.task for c in judged))
    tasks = [t for t in named if all(by.get((m, t)) is not None for m in models)]
    if len(tasks) < LEAST_TASKS:
        return None
    metrics = {c.task: c.metric for c in judged}
    higher = {c.task: c.higher_is_better for c in judged}
    mine, base = _means(judged, tasks)
    found = {m: over_tasks(mine[m], base[m], metrics, higher) for m in models}
    adjusted = holm([
        row.sign_p if row.difference is None else judged_p(row.difference)
        for row in found.values()
    ])  # fmt: skip
    alike = tuple(sharing(tasks, metrics))
    rows = []
    for (model, row), p in zip(found.items(), adjusted, strict=True):
        d = row.difference
        verdict = "signs only" if d is None else judge(d, higher[alike[0]], None, p)
        shared = alike if d is not None else ()
        rows.append(OverallRow(model, row, shared, metrics[alike[0]] if shared else "", verdict, p))
    omnibus = None
    if len(models) + 1 >= LEAST_MODELS:
        sign = {t: 1 if higher[t] else -1 for t in tasks}
        scores = {**mine, baseline: base[models[0]]}
        omnibus = friedman({m: [sign[t] * v[t] for t in tasks] for m, v in scores.items()})
    return Overall(
        omnibus, tuple(rows), tuple(tasks), tuple(t for t in named if t not in tasks),
        tuple(_why(omnibus, rows, len(tasks))),
    )  # fmt: skip


def _means(
    judged: Sequence[Comparison], tasks: Sequence[str]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Mean test metric by model and task, and the baseline's beside it, over the same pairs."""
    mine: dict[str, dict[str, float]] = {}
    base: dict[str, dict[str, float]] = {}
    for c in judged:
        if c.task in tasks and c.difference is not None:
            mine.setdefault(c.first, {})[c.task] = c.difference.mean_first
            base.setdefault(c.first, {})[c.task] = c.difference.mean_second
    return mine, base


def _why(omnibus: Friedman | None, rows: Sequence[OverallRow], tasks: int) -> list[str]:
    out = [
        f"here the {tasks} tasks are the replicates: seeds only make their means more exact, and "
        f"with fewer than {LEAST_REPLICATES} tasks nothing is concluded"
    ]
    if omnibus is not None:
        out.append(
            "Friedman's test asks whether any model differs: it ranks inside each task, because "
            f"metrics of different tasks have no common unit; its p is from {DRAWS:,} random "
            "orders, because chi-squared is only good for more than ten tasks"
        )
    if rows[0].tasks.difference is None:
        out.append("no two tasks share a metric, so a model and the baseline are compared by the "
                   "exact sign test of wins and losses alone")  # fmt: skip
    else:
        out.append(
            f"a model and the baseline are compared by a paired t-test over the means of the "
            f"{len(rows[0].shared)} tasks with {rows[0].metric}, because differences of one metric "
            "can be averaged; the exact sign-flip test beside it assumes no normal distribution"
        )
    return out
