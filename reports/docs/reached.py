"""What trained models are to reach on their test sets, and whether published records do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.stats import LEAST_REPLICATES
from reports.core.page import remark, together
from reports.core.page import table as shown
from reports.core.source import Source
from reports.core.trained import ModelRuns, mean_text, tasks_by_recipe
from reports.docs.plain import text_of
from reports.pages.corpora.tables import unseen


@dataclass(frozen=True)
class Goal:
    """The least that the best arm, or the one that is named, is to reach on a task."""

    said: str
    task: str
    metric: str
    least: float
    arm: str = ""


GOALS = (
    Goal("UD EWT: accuracy of parts of speech at least 93 %", "ud_ewt", "tag_accuracy", 0.93),
    Goal("WNUT-17: span F1 at least 30 %", "wnut17", "span_f1", 0.30),
    Goal("MTL-16: average accuracy at least 80 %", "mtl16", "accuracy", 0.80),
    Goal(
        "Multi30k: BLEU of multi_head on test2016 no more than 2 points below 41.02 "
        "(Transformer-Tiny, Wu et al., ACL 2021: 4 layers, 10 averaged checkpoints; here 2 and 5)",
        "multi30k",
        "bleu",
        39.02,
        "multi_head",
    ),
)


def table(source: Source) -> str:
    """A row per goal: the best arm's mean and interval, and whether it is reached."""
    rows = [_row(goal, list(_arms(goal, source)), source) for goal in GOALS]
    return text_of(
        together(
            shown(rows, (0, 1, 2)),
            remark(
                f"Of arms with {LEAST_REPLICATES} seeds and more, whose epoch a dev split chose, "
                "the highest mean on the test set, by whatever recipe, on whatever device. "
                "Reached: the mean is; beside it its own 95 % t-interval, which does not allow for "
                "the choice of the best."
            ),
        )
    )


def _arms(goal: Goal, source: Source) -> Iterator[ModelRuns]:
    for device in source.devices:
        runs = (r for r in device.records if str(r.get("task")).partition("[")[0] == goal.task)
        for one in (m for recipes in tasks_by_recipe(runs) for t in recipes for m in t.models):
            asked = one.metric == goal.metric and goal.arm in ("", one.mechanism)
            if asked and not one.best_on_test and len(one.values) >= LEAST_REPLICATES:
                yield one


def _row(goal: Goal, arms: Sequence[ModelRuns], source: Source) -> dict[str, str]:
    best = max(arms, key=lambda one: one.mean, default=None)
    if best is None:
        return {"goal": goal.said, "best arm": "", "result": "not run yet"}
    mean = f"{mean_text(best.unit, best.interval)}{best.unit.of_values}"
    chosen = f", best of {len(arms)} arms" if len(arms) > 1 else ""
    left = unseen(best, source.conclusions)
    mean += "" if left is None else f", {best.unit.value(left)} without seen test examples"
    return {
        "goal": goal.said,
        "best arm": f"{best.model} {mean} ({best.counted}, {best.recipe}{chosen})",
        "result": "reached" if best.mean >= goal.least else "missed",
    }
