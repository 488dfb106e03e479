"""Statistics: pure functions, scipy and statsmodels underneath."""

from __future__ import annotations

from harness.stats.accuracy import (
    MeanDifference,
    accuracy_verdict,
    compare_means,
    equivalence,
    holm,
)
from harness.stats.crossover import Crossover, crossover
from harness.stats.drift import Trend, block_trend, session_trend, shown
from harness.stats.power import pairs_needed, power_of
from harness.stats.published import (
    Summary,
    WelchResult,
    implied_interval,
    two_proportions,
    welch,
)
from harness.stats.timing import (
    CONFIDENCE,
    SAME_WITHIN,
    Interval,
    Verdict,
    block_time,
    noise_floor,
    ratio_interval,
    verdict,
)

__all__ = [
    "CONFIDENCE",
    "SAME_WITHIN",
    "Crossover",
    "Interval",
    "MeanDifference",
    "Summary",
    "Trend",
    "Verdict",
    "WelchResult",
    "accuracy_verdict",
    "block_time",
    "block_trend",
    "compare_means",
    "crossover",
    "equivalence",
    "holm",
    "implied_interval",
    "noise_floor",
    "pairs_needed",
    "power_of",
    "ratio_interval",
    "session_trend",
    "shown",
    "two_proportions",
    "verdict",
    "welch",
]
