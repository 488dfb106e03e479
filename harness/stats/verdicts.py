"""What a difference of accuracies allows to say, alone or as one of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from harness.stats.accuracy import MeanDifference
from harness.stats.power import ALPHA

LEAST_REPLICATES = 5
"""With fewer per side nothing is concluded, only described."""

AccuracyVerdict = Literal["better", "worse", "practically equal", "undecided", "descriptive only"]


def too_few(difference: MeanDifference) -> bool:
    """Whether a difference is only described: no test of it is shown either."""
    return min(difference.count_first, difference.count_second) < LEAST_REPLICATES


def judged_p(difference: MeanDifference) -> float:
    """The p-value that a verdict among several goes by.

    That of the t-test; without spread, where that has none to go by, that of the sign flips; 1
    where nothing may be concluded, so that it counts among the comparisons and finds nothing.
    """
    if too_few(difference):
        return 1.0
    p = difference.sign_flip_p if difference.low == difference.high else difference.p
    return 1.0 if math.isnan(p) else p


def accuracy_verdict(
    difference: MeanDifference,
    higher_is_better: bool,
    equivalence_p: float | None,
    adjusted_p: float | None = None,
) -> AccuracyVerdict:
    """What may be said of the first side.

    Fewer than five replicates are described only. *Practically equal* needs a declared margin and
    its test; it holds even where the interval excludes zero, the difference being real but smaller
    than what was declared to matter. A large p is *undecided*, never equal. Replicates that all
    differ by the same have no spread for a t-test: then the sign-flip test decides.

    Parameters
    ----------
    equivalence_p, adjusted_p : float or None
        Of one among several: adjusted for their number, from `equivalence` and `judged_p`; the
        adjusted p then decides, where otherwise the interval does.
    """
    if too_few(difference):
        return "descriptive only"
    if equivalence_p is not None and equivalence_p < ALPHA:
        return "practically equal"
    without_spread = difference.low == difference.high
    if without_spread and not difference.sign_flip_p < ALPHA:
        return "undecided"
    apart = difference.low > 0 or difference.high < 0
    if apart if adjusted_p is None else adjusted_p < ALPHA:
        return "better" if (difference.difference > 0) == higher_is_better else "worse"
    return "undecided"


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number by Holm's method, in the order given.

    Of m, the i-th smallest times m - i + 1, no smaller than the one before, and at most 1 (Holm
    1979). Done here because statsmodels collects Python's garbage at each call, 0.05 s and more.

    Raises
    ------
    ValueError
        If one is not between 0 and 1.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"given p-values {list(p_values)}; expected numbers from 0 to 1")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * float(p_values[place])))
        adjusted[place] = largest
    return adjusted
