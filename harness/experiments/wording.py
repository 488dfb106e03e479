"""How metrics and tests are written: accuracies in per cent and points, others as they are."""

from __future__ import annotations

from dataclasses import dataclass

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


def exact_test(difference: MeanDifference) -> str:
    """The test by enumeration beside the t-test."""
    return "exact sign-flip" if difference.paired else "exact permutation"


def replicates_of(difference: MeanDifference) -> str:
    """``5 pairs``; unpaired ``5 and 4 seeds``."""
    if difference.paired:
        return f"{difference.count_first} pairs"
    return f"{difference.count_first} and {difference.count_second} seeds"


def no_interval(difference: MeanDifference) -> str:
    """Why there is none."""
    return "one pair has no interval" if difference.paired else "one seed has no interval"
