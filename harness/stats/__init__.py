"""Statistics: pure functions, scipy and statsmodels underneath."""

from __future__ import annotations

from harness.stats.accuracy import (
    LEAST_REPLICATES,
    PRIOR,
    Chances,
    MeanDifference,
    accuracy_verdict,
    chances,
    compare_folds,
    compare_means,
    equivalence,
    fold_interval,
    fold_means,
    judged_p,
    too_few,
)
from harness.stats.basics import (
    ALPHA,
    MeanInterval,
    PairedSpread,
    SpreadEstimate,
    holm,
    mean_interval,
    paired_spread,
    t_interval,
)
from harness.stats.crossed import Crossed, correlation_p, correlation_parts, crossed, mcnemar
from harness.stats.crossover import Crossover, crossover
from harness.stats.overall import Friedman, OverTasks, Ties, friedman, over_tasks, sharing, ties
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
from harness.stats.sums import SUMMED, summed_p
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
