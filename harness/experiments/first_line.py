"""What a comparison's first line says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.experiments.replicates import Record, Values, counted, counted_each, unit_of
from harness.stats import MeanDifference

EXPLORATORY = "exploratory"
"""What is concluded from runs that are older than the question."""


def by_test(design: Record) -> bool:
    """Whether a run's epoch was chosen by the test set, as the papers do."""
    return any(recipe["choose"] == "best-on-test" for recipe in design["recipes"])


def first_line(
    design: Record,
    values: Values,
    d: MeanDifference | None,
    verdict: str,
    together: int,
    p: float,
    flaws: Sequence[str] = (),
    exploratory: bool = False,
) -> str:
    """Verdict in words, the interval before the p-value; p is that by Holm, if of several."""
    first, second = design["models"]
    where = f"on {design['task']}"
    if d is None:
        none = "no pair of runs is finished"
        if not values.paired:
            none = "unpaired, and not a run of each is finished"
        return f"{first} and {second} {where}: {none}"
    unit = unit_of(design["metric"])
    how = "best over time on the test set" if by_test(design) else "test"
    size = (
        f"{how} {design['metric']} {unit.value(d.mean_first)} and {unit.value(d.mean_second)}, "
        f"difference {unit.difference(d.difference)}{unit.of_differences}"
    )
    if not math.isnan(d.low):
        size += f" {unit.bounds(d)}"
    seeds = len(design["seeds"])
    over = f"over {counted(values.units, d.count_first, seeds)}"
    if not d.paired:
        over = f"over {counted_each(d.count_first, d.count_second)}"
    few = "too few seeds to conclude" if values.units == "seeds" else "too few folds to conclude"
    says = {
        "better": f"{first} is better than {second} {where}",
        "worse": f"{first} is worse than {second} {where}",
        "practically equal": f"{first} and {second} are practically equal {where}",
        "undecided": f"{first} or {second} {where}: undecided",
        "descriptive only": f"{first} and {second} {where}: {few}",
        "unfinished": f"{first} and {second} {where}: unfinished",
    }[verdict]
    if flaws:
        says += f" (not counted: {'; '.join(flaws)})"
    text = f"{says}: {size} {over}"
    if verdict in ("better", "worse", "undecided"):
        text += f" ({'' if d.paired else 'Welch, '}p = {d.p:.2g}"
        if together > 1:
            text += f"; {p:.2g} by Holm over {together} comparisons"
        text += ")"
    if verdict == "unfinished":
        text += f" of {design.get('folds') or seeds}"
    return f"{EXPLORATORY}: {text}" if exploratory else text
