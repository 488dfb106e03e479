"""Several models together, on a task and over tasks: which test answers, and why that one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from harness.experiments.replicates import Measured
from harness.experiments.warnings import DECIDED, flaws_of
from harness.stats import (
    LEAST_REPLICATES,
    OverTasks,
    Ties,
    holm,
    judged_p,
    over_tasks,
    sharing,
    ties,
)
from harness.stats import accuracy_verdict as judge
from harness.stats.overall import DRAWS, LEAST_MODELS, LEAST_TASKS, friedman
from harness.train.task import gathered

NOT_COUNTED = "not counted"


@dataclass(frozen=True)
class OverallRow:
    """One model against the baseline, over tasks."""

    model: str
    tasks: OverTasks
    shared: tuple[str, ...]  # the tasks of its paired t-test: those that share a metric
    metric: str  # that metric; empty where there is no such test
    # Of that test, its p adjusted for the number of models: ``better``, ``worse``, ``undecided``,
    # ``descriptive only`` (fewer than five tasks); ``signs only`` where no two share a metric;
    # `NOT_COUNTED` where it was trained like the baseline on none.
    verdict: str
    # By Holm over the models: of the t-test, or of the sign test where there is no t-test.
    adjusted_p: float


@dataclass(frozen=True)
class Overall:
    """What the tasks together say."""

    # Whether any model differs, and which can't be told apart, by the tasks on which all were
    # trained alike; None for two models, or fewer than two such tasks.
    ties: Ties | None
    rows: tuple[OverallRow, ...]
    # tasks, left_out: tasks that count, and those that don't, because runs of a model are missing
    # there, or no replicate was finished by every model.
    tasks: tuple[str, ...]
    left_out: tuple[str, ...]
    why: tuple[str, ...]  # which tests, and why these; one sentence each
    # Of tasks on which the ranks rest on fewer replicates than were declared.
    warnings: tuple[str, ...]

    @property
    def said(self) -> str:
        """How many models are what over tasks, behind a family's verdicts; empty where none is."""
        judged = [row for row in self.rows if row.verdict in (*DECIDED, "undecided")]
        if not judged:
            return ""
        counts = Counter(row.verdict for row in judged)
        least, most = (end(len(row.shared) for row in judged) for end in (min, max))
        over = f"{least} to {most}" if least < most else str(most)
        of = "" if least == len(self.tasks) else f" of {len(self.tasks)}"
        return f"; over {over}{of} tasks {', '.join(f'{n} {v}' for v, n in counts.items())}"


@dataclass(frozen=True)
class _Shared:
    """Values of a task on the replicates that every model and the baseline finished.

    A model whose run diverged would otherwise be ranked by easier or harder seeds than the others.
    """

    # By model, of every seed or fold; what is lower better has its sign changed.
    values: dict[str, list[float]]
    count: int
    declared: int
    units: str


def overall(found: Sequence[Measured]) -> Overall | None:
    """Test models over tasks; None where fewer than two tasks have replicates of every model.

    A model and the baseline are compared by the means over their pairs, as on each task, where they
    were trained alike; all models are ranked by the means over the replicates that every one of
    them finished.

    Parameters
    ----------
    found : sequence of Measured
        Of each model and task, each against the same baseline.
    """
    by = {(m.design["models"][0], m.design["task"]): m for m in found}
    models = list(dict.fromkeys(model for model, _ in by))
    named = list(dict.fromkeys(task for _, task in by))
    of_task = {t: [by[m, t] for m in models if (m, t) in by] for t in named}
    whole = [t for t, some in of_task.items() if all(m.ended and m.difference for m in some)]
    shared = {t: _shared(of_task[t]) for t in whole if len(of_task[t]) == len(models)}
    tasks = [t for t in shared if shared[t].count]
    if len(tasks) < LEAST_TASKS:
        return None
    metrics = {t: str(some[0].design["metric"]) for t, some in of_task.items()}
    higher = {t: bool(some[0].design["higher_is_better"]) for t, some in of_task.items()}
    unlike = [key for key in by if key[1] in tasks and flaws_of(by[key])]
    compared, alike = {}, {}
    for model in models:
        known = {
            t: d
            for t in tasks
            if (d := by[model, t].difference) is not None and (model, t) not in unlike
        }
        alike[model] = tuple(sharing(list(known), metrics))
        mine = {t: d.mean_first for t, d in known.items()}
        base = {t: d.mean_second for t, d in known.items()}
        compared[model] = over_tasks(mine, base, metrics, higher)
    adjusted = holm(
        [r.sign_p if r.difference is None else judged_p(r.difference) for r in compared.values()]
    )
    rows = []
    for (model, row), p in zip(compared.items(), adjusted, strict=True):
        d = row.difference
        used = alike[model] if d is not None else ()
        verdict = "signs only" if alike[model] else NOT_COUNTED
        if d is not None:
            verdict = judge(d, higher[used[0]], None, p)
        rows.append(OverallRow(model, row, used, metrics[used[0]] if used else "", verdict, p))
    tied, warnings, ranks = None, [], ""
    ranked = [t for t in tasks if t not in {task for _, task in unlike}]
    if len(models) + 1 >= LEAST_MODELS:
        everyone = [*models, found[0].design["models"][1]]

        def means(of: Sequence[str]) -> dict[str, list[float]]:
            return {m: [fmean(shared[t].values[m]) for t in of] for m in everyone}

        if len(ranked) >= LEAST_TASKS:
            tied = ties(means(ranked))
        warnings = _fewer(shared)
        ranks = _of_all(means(tasks)) if unlike else ""
    if unlike:
        on = {model: gathered([t for m, t in unlike if m == model]) for model, _ in unlike}
        names = ", ".join(f"{model} on {task}" for model, some in on.items() for task in some)
        warnings.append(f"not counted over tasks, as the training was not alike: {names}{ranks}")
    left_out = tuple(t for t in named if t not in tasks)
    why = tuple(_why(tied, rows, len(tasks), len(sharing(tasks, metrics))))
    return Overall(tied, tuple(rows), tuple(tasks), left_out, why, tuple(warnings))


def _of_all(scores: Mapping[str, Sequence[float]]) -> str:
    """What the ranks would be with the tasks that have no part in them."""
    every = friedman(scores)
    each = ", ".join(f"{model} {rank:.2f}" for model, rank in every.ranks.items())
    return (
        f"; such tasks have no part in the ranks (with them, on {every.blocks} tasks: Friedman's "
        f"{every.said}; mean ranks {each})"
    )


def tied_on(found: Sequence[Measured]) -> Ties | None:
    """Which models can't be told apart on one task, by their seeds.

    Models that were not trained like the baseline are left out. None where runs are to come, for
    fewer than three models or two seeds that all of them finished, and for folds: they share
    training examples, which no test of ranks allows for.

    Parameters
    ----------
    found : sequence of Measured
        Of each model on that task, each against the same baseline.
    """
    alike = [m for m in found if not flaws_of(m)]
    if len(alike) + 1 < LEAST_MODELS or any(m.values.folds or not m.ended for m in found):
        return None
    shared = _shared(alike)
    return ties(shared.values) if shared.count >= LEAST_TASKS else None


def _shared(found: Sequence[Measured]) -> _Shared:
    """Of one task's comparisons, which have the baseline's runs in common."""
    common = frozenset.intersection(*(m.values.both for m in found))
    values: dict[str, list[float]] = {}
    sign = 1 if found[0].design["higher_is_better"] else -1
    for m in found:
        first, second = m.design["models"]
        rows = m.values.only(common).rows
        values[first], values[second] = ([sign * row[side] for row in rows] for side in (1, 2))
    units = found[0].values.units
    called = "replicates" if units == "repeated folds" else units
    return _Shared(values, len(common), max(len(m.pairs) for m in found), called)


def _fewer(shared: Mapping[str, _Shared]) -> list[str]:
    out = []
    few = [
        f"{s.count} of {s.declared} {s.units} of {task}"
        for task, s in shared.items()
        if 0 < s.count < s.declared
    ]
    if few:
        out.append(
            f"mean ranks and Friedman's test rest on {', '.join(few)}: those that every model "
            "finished, which flatters models whose runs failed"
        )
    out += [
        f"{task} is left out of the tests over tasks: none of its {s.declared} {s.units} was "
        "finished by every model"
        for task, s in shared.items()
        if not s.count
    ]
    return out


def _why(tied: Ties | None, rows: Sequence[OverallRow], tasks: int, alike: int) -> list[str]:
    """The tests that there are; `alike` of the tasks share a metric."""
    out = [
        f"here the {tasks} tasks are the replicates: seeds only make their means more exact, and "
        f"with fewer than {LEAST_REPLICATES} tasks nothing is concluded"
    ]
    if tied is not None:
        out.append(
            "Friedman's test asks whether any model differs: it ranks inside each task, because "
            f"metrics of different tasks have no common unit; its p is from {DRAWS:,} random "
            "orders, because chi-squared is only good for more than ten tasks"
        )
    some: dict[tuple[int, str], list[str]] = {}
    for row in rows:
        if row.verdict != NOT_COUNTED:
            some.setdefault((len(row.shared), row.metric), []).append(row.model)
    for (count, metric), models in some.items():
        who = "a model" if len(some) == 1 else ", ".join(models)
        verb = "is" if len(some) == 1 or len(models) == 1 else "are"
        if count:
            out.append(
                f"{who} and the baseline are compared by a paired t-test over the means of the "
                f"{count} tasks with {metric}, because differences of one metric can be averaged; "
                "the exact sign-flip test beside it assumes no normal distribution"
            )
        elif alike < LEAST_TASKS:
            out.append(
                f"no two tasks share a metric, so {who} and the baseline are compared by the exact "
                "sign test of wins and losses alone"
            )
        else:
            out.append(
                f"{who} {verb} counted on fewer than two tasks that share a metric, and compared "
                "with the baseline by the exact sign test of wins and losses alone"
            )
    return out
