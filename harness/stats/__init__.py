"""Statistics: pure functions, scipy and statsmodels underneath."""

from __future__ import annotations

from harness.stats.accuracy import MeanDifference, compare_means, equivalence
from harness.stats.crossover import Crossover, crossover
from harness.stats.drift import Trend, block_trend, session_trend, shown
from harness.stats.exact import sign_flip, sign_test
from harness.stats.folds import compare_folds, equivalent_folds, fold_means
from harness.stats.overall import Friedman, OverTasks, friedman, over_tasks, sharing
from harness.stats.power import (
    ALPHA,
    POWER,
    difference_found,
    pairs_needed,
    power_of,
    replicates_needed,
    sd_of_differences,
)
from harness.stats.published import (
    Summary,
    WelchResult,
    implied_interval,
    two_proportions,
    welch,
)
from harness.stats.spread import (
    MeanInterval,
    PairedSpread,
    SpreadEstimate,
    mean_interval,
    paired_spread,
    t_interval,
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
from harness.stats.verdicts import (
    LEAST_REPLICATES,
    accuracy_verdict,
    holm,
    judged_p,
    too_few,
)

__all__ = [
    "ALPHA",
    "CONFIDENCE",
    "LEAST_REPLICATES",
    "POWER",
    "SAME_WITHIN",
    "Crossover",
    "Friedman",
    "Interval",
    "MeanDifference",
    "MeanInterval",
    "OverTasks",
    "PairedSpread",
    "SpreadEstimate",
    "Summary",
    "Trend",
    "Verdict",
    "WelchResult",
    "accuracy_verdict",
    "block_time",
    "block_trend",
    "compare_folds",
    "compare_means",
    "crossover",
    "difference_found",
    "equivalence",
    "equivalent_folds",
    "fold_means",
    "friedman",
    "holm",
    "implied_interval",
    "judged_p",
    "mean_interval",
    "noise_floor",
    "over_tasks",
    "paired_spread",
    "pairs_needed",
    "power_of",
    "ratio_interval",
    "replicates_needed",
    "sd_of_differences",
    "session_trend",
    "sharing",
    "shown",
    "sign_flip",
    "sign_test",
    "t_interval",
    "too_few",
    "two_proportions",
    "verdict",
    "welch",
]
