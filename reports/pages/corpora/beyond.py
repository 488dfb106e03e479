"""What models gain beyond one that attends to nothing, where that is ahead of the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from harness.experiments.replicates import EXPLORATORY
from reports.core.against import Against, against


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
