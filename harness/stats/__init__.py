"""Statistics: pure functions, scipy and statsmodels underneath."""

from __future__ import annotations

from harness.stats.accuracy import (
    LEAST_REPLICATES,
    MeanDifference,
    accuracy_verdict,
    compare_means,
    equivalence,
    judged_p,
    too_few,
)
from harness.stats.basics import ALPHA, holm
from harness.stats.chances import PRIOR, Chances, chances
from harness.stats.crossed import Crossed, correlation_p, correlation_parts, crossed, mcnemar
from harness.stats.crossover import Crossover, crossover
from harness.stats.folds import compare_folds, fold_interval, fold_means
from harness.stats.overall import Friedman, OverTasks, friedman, over_tasks, sharing
from harness.stats.power import (
    POWER,
    difference_found,
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
from harness.stats.sums import SUMMED, summed_p
from harness.stats.ties import Ties, ties
from harness.stats.timing import (
    Difference,
    Interval,
    Verdict,
    between_sessions,
    block_time,
    inside_blocks,
    joint_floor,
    judge,
    noise_floor,
    ratio_interval,
    ratio_text,
    verdict,
)

__all__ = [
    "ALPHA",
    "LEAST_REPLICATES",
    "POWER",
    "PRIOR",
    "SUMMED",
    "Chances",
    "Crossed",
    "Crossover",
    "Difference",
    "Friedman",
    "Interval",
    "MeanDifference",
    "MeanInterval",
    "OverTasks",
    "PairedSpread",
    "SpreadEstimate",
    "Summary",
    "Ties",
    "Verdict",
    "WelchResult",
    "accuracy_verdict",
    "between_sessions",
    "block_time",
    "chances",
    "compare_folds",
    "compare_means",
    "correlation_p",
    "correlation_parts",
    "crossed",
    "crossover",
    "difference_found",
    "equivalence",
    "fold_interval",
    "fold_means",
    "friedman",
    "holm",
    "implied_interval",
    "inside_blocks",
    "joint_floor",
    "judge",
    "judged_p",
    "mcnemar",
    "mean_interval",
    "noise_floor",
    "over_tasks",
    "paired_spread",
    "power_of",
    "ratio_interval",
    "ratio_text",
    "replicates_needed",
    "sd_of_differences",
    "sharing",
    "summed_p",
    "t_interval",
    "ties",
    "too_few",
    "two_proportions",
    "verdict",
    "welch",
]
