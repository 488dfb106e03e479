"""How metrics, tests and verdicts are written: accuracies in per cent and points, others plain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.experiments.replicates import Units, counted, counted_each, is_paired
from harness.stats import MeanDifference


@dataclass(frozen=True)
class Unit:
    """Scale and form of a metric.

    Attributes
    ----------
    scale : float
        Values are multiplied by it.
    digits : int
    of_values, of_differences : str
        Behind a number.
    """

    scale: float
    digits: int
    of_values: str = ""
    of_differences: str = ""

    def value(self, value: float) -> str:
        """``90.20 %`` or ``0.8512``."""
        return f"{self.scale * value:.{self.digits}f}{self.of_values}"

    def number(self, value: float) -> str:
        """``90.20`` or ``0.8512``: where the unit stands beside it."""
        return f"{self.scale * value:.{self.digits}f}"

    def difference(self, value: float) -> str:
        """``+0.40`` or ``-0.0012``: in points for accuracies."""
        return f"{self.scale * value:+.{self.digits}f}"

    def interval(self, difference: MeanDifference) -> str:
        """``-0.64 [-1.33, +0.05]``: a difference with its interval, if it has one."""
        text = self.difference(difference.difference)
        if math.isnan(difference.low):
            return text
        return f"{text} [{self.difference(difference.low)}, {self.difference(difference.high)}]"

    def size(self, value: float) -> str:
        """A positive difference, such as a margin: ``0.40 points``."""
        return f"{self.scale * value:.{self.digits}f}{self.of_differences}"

    def named(self, metric: str) -> str:
        """``accuracy (%)`` or ``pearson``: for an axis."""
        return f"{metric} ({self.of_values.strip()})" if self.of_values else metric


_SHARE = Unit(100.0, 2, " %", " points")
_PLAIN = Unit(1.0, 4)


def unit_of(metric: str) -> Unit:
    """The unit of a metric."""
    return _SHARE if metric == "accuracy" else _PLAIN


def by_test(design: Mapping[str, Any]) -> bool:
    """Whether a run's epoch was chosen by the test set, as the papers do."""
    return any(recipe["choose"] == "best-on-test" for recipe in design["recipes"])


def sentence(
    design: Mapping[str, Any],
    difference: MeanDifference | None,
    verdict: str,
    units: Units = "seeds",
    adjusted_p: float | None = None,
    together: int = 1,
) -> str:
    """Verdict in words, the interval before the p-value; see `Comparison` for the parameters."""
    first, second = design["models"]
    where = f"on {design['task']}"
    if difference is None:
        none = "no pair of runs is finished"
        if units == "seeds" and not is_paired(design):
            none = "unpaired, and not a run of each is finished"
        return f"{first} and {second} {where}: {none}"
    unit = unit_of(design["metric"])
    how = "best over time on the test set" if by_test(design) else "test"
    apart = unit.difference(difference.difference) + unit.of_differences
    size = (
        f"{how} {design['metric']} {unit.value(difference.mean_first)} and "
        f"{unit.value(difference.mean_second)}, difference {apart}"
    )
    if not math.isnan(difference.low):
        size += f" [{unit.difference(difference.low)}, {unit.difference(difference.high)}]"
    seeds = len(design["seeds"])
    over = f"over {counted(units, difference.count_first, seeds)}"
    if not difference.paired:
        over = f"over {counted_each(difference.count_first, difference.count_second)}"
    few = "too few seeds to conclude" if units == "seeds" else "too few folds to conclude"
    says = {
        "better": f"{first} is better than {second} {where}",
        "worse": f"{first} is worse than {second} {where}",
        "practically equal": f"{first} and {second} are practically equal {where}",
        "undecided": f"{first} or {second} {where}: undecided",
        "descriptive only": f"{first} and {second} {where}: {few}",
        "unfinished": f"{first} and {second} {where}: unfinished",
    }[verdict]
    text = f"{says}: {size} {over}"
    if verdict in ("better", "worse", "undecided"):
        text += f" ({'' if difference.paired else 'Welch, '}p = {difference.p:.2g}"
        if adjusted_p is not None and together > 1:
            text += f"; {adjusted_p:.2g} by Holm over {together} comparisons"
        text += ")"
    if verdict == "unfinished":
        text += f" of {design.get('folds') or seeds}"
    return text
