"""What is told of models over tasks: their table, the tests beside it, and what was left out."""

from __future__ import annotations

from harness.experiments.conclusion import Conclusion
from harness.experiments.examples import STANDING, STUCK
from harness.experiments.overall import NOT_COUNTED, Overall, OverallRow
from harness.experiments.replicates import Unit, unit_of
from harness.experiments.tables import BASELINE
from harness.stats import MeanDifference, over_tasks
from harness.train.task import gathered

OVER_TASKS = (
    "model",
    "mean rank",
    "tasks",
    "better / worse",
    "mean difference",
    "95 % interval",
    "p",
    "p Holm",
    "verdict",
)


def counted_tasks(overall: Overall) -> str:
    """The tasks that count, those that don't, and over how many models are ranked."""
    left_out = f"; left out: {', '.join(overall.left_out)}" if overall.left_out else ""
    said, count = f"{', '.join(gathered(overall.tasks))}{left_out}", len(overall.tasks)
    if overall.ties is not None and overall.ties.omnibus.blocks < count:
        said += (
            f"; ranks over {overall.ties.omnibus.blocks} of {count} tasks, on which the training "
            "of all models was alike"
        )
    return said


def overall_rows(baseline: str, overall: Overall) -> list[list[str]]:
    """The models over tasks as rows of `OVER_TASKS`, the baseline first."""
    ranks = {} if overall.ties is None else overall.ties.omnibus.ranks
    rank = {model: f"{value:.2f}" for model, value in ranks.items()}
    first = [baseline, rank.get(baseline, ""), *[""] * 6, BASELINE]
    cells = (_overall_cells(row, rank.get(row.model, ""), overall) for row in overall.rows)
    return [first, *cells]


def missing_over_tasks(d: MeanDifference, unit: Unit, together: int) -> str:
    """`` (detectable 1.30 points; the tasks are given)``: behind *undecided*, one of so many."""
    return f" (detectable {unit.size(d.detectable_among(together))}; the tasks are given)"


def verdict_over_tasks(row: OverallRow, overall: Overall) -> str:
    """A model's verdict; beside *undecided* what would have been found."""
    d = row.tasks.difference
    if row.verdict != "undecided" or d is None:
        return row.verdict
    return row.verdict + missing_over_tasks(d, unit_of(row.metric), len(overall.rows))


def _overall_cells(row: OverallRow, rank: str, overall: Overall) -> list[str]:
    d, unit = row.tasks.difference, unit_of(row.metric)
    if row.verdict == NOT_COUNTED:
        return [row.model, rank, *[""] * 6, row.verdict]
    signs = ["", "", f"{row.tasks.sign_p:.2g} (signs)"]
    shown = [unit.difference(d.difference), unit.bounds(d), f"{d.p:.2g}"] if d else signs
    adjusted = "" if row.verdict == "descriptive only" else f"{row.adjusted_p:.2g}"
    wins, tasks = f"{row.tasks.wins} / {row.tasks.losses}", str(len(row.shared) or "")
    return [row.model, rank, tasks, wins, *shown, adjusted, verdict_over_tasks(row, overall)]


def overall_without(conclusion: Conclusion) -> list[str]:
    """The tests over tasks on all of them, however trained, without test examples that were trained
    on, and without pairs of which a run learned nothing: a sentence a model each.
    """
    if conclusion.overall is None:
        return []
    others = ((STANDING, conclusion.overall_unseen), (STUCK, conclusion.overall_learned))
    verdicts = {row.model: row.verdict for row in conclusion.overall.rows}
    said = [text for row in conclusion.overall.rows if (text := _however_trained(conclusion, row))]
    rows = [(what, row) for what, other in others if other is not None for row in other.rows]
    for what, row in rows:
        if row.verdict == NOT_COUNTED:
            continue
        d, unit, tested = row.tasks.difference, unit_of(row.metric), ""
        if d is not None:
            tested = f"mean difference {unit.change(d)}, p = {d.p:.2g}, "
        same = "unchanged" if row.verdict == verdicts.get(row.model) else "changed"
        said.append(
            f"{row.model} without {what}: {tested}{row.tasks.wins} better / {row.tasks.losses} "
            f"worse (sign test p = {row.tasks.sign_p:.2g}), p Holm {row.adjusted_p:.2g}: verdict "
            f"{same} ({row.verdict})"
        )
    return said


def _however_trained(conclusion: Conclusion, row: OverallRow) -> str:
    """A model over all tasks with a metric, those too that don't count; empty if all do."""
    every = (c for c in conclusion.comparisons if c.first == row.model and c.metric == row.metric)
    found = [c for c in every if c.difference is not None]
    if not row.shared or len(found) == len(row.shared):
        return ""
    first, second = (
        {c.task: getattr(c.difference, side) for c in found}
        for side in ("mean_first", "mean_second")
    )
    metrics = {c.task: c.metric for c in found}
    over = over_tasks(first, second, metrics, {c.task: c.higher_is_better for c in found})
    unit, d = unit_of(row.metric), over.difference
    size = "" if d is None else f"mean difference {unit.interval(d)}, "
    return (
        f"{row.model} on all {len(found)} tasks, however trained: {size}{over.wins} better / "
        f"{over.losses} worse (sign test p = {over.sign_p:.2g})"
    )


def beside_tests(conclusion: Conclusion) -> list[str]:
    """What stands beside the t-tests over tasks: exact tests, and `overall_without`."""
    over = conclusion.overall
    return [] if over is None else [*_exact_tests(over), *overall_without(conclusion)]


def _exact_tests(overall: Overall) -> list[str]:
    """The exact tests beside the t-tests, where these conclude anything."""
    return [
        f"{row.model}: exact sign-flip over the means of {len(row.shared)} tasks p = "
        f"{row.tasks.difference.sign_flip_p:.2g}, sign test of all tasks p = {row.tasks.sign_p:.2g}"
        for row in overall.rows
        if row.tasks.difference is not None and row.verdict != "descriptive only"
    ]
