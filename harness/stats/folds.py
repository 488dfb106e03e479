"""Cross-validation: folds share training examples, so they are no independent replicates.

The variance over folds says too little of how uncertain their mean is, because any two training
parts have most of their examples in common. Nadeau and Bengio (Inference for the generalization
error, 2003) correct it: (1/n + n_test / n_train) s^2 instead of s^2 / n. Bouckaert and Frank (2004)
recommend that for cross-validation; no unbiased estimate exists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.stats.accuracy import MeanDifference, compare_means
from harness.stats.basics import deviation, mean
from harness.stats.spread import MeanInterval, t_interval


def fold_means(folds: Sequence[int], values: Sequence[float]) -> dict[int, float]:
    """Mean value of each fold, in the order of the folds.

    All repetitions (seeds) go through the same folds here. They make the value of a fold more
    exact and bring no new test examples, so they are averaged first and the folds are what counts.
    Taken as so many more replicates, as for folds that are drawn anew each time, they would find
    differences far too often.
    """
    by_fold: dict[int, list[float]] = {}
    for fold, value in zip(folds, values, strict=True):
        by_fold.setdefault(fold, []).append(value)
    return {fold: mean(by_fold[fold]) for fold in sorted(by_fold)}


def fold_interval(values: Sequence[float], total: int) -> MeanInterval:
    """The mean over folds with its 95 % t-interval, the variance corrected as in `compare_folds`.

    Parameters
    ----------
    values : sequence of float
        One per fold.
    total : int
        How many folds the corpus was cut into, two or more.
    """
    inflated = deviation(values) * math.sqrt(1 + len(values) / (total - 1))
    return t_interval(mean(values), inflated, len(values))


def compare_folds(
    first: Sequence[float], second: Sequence[float], folds: Sequence[int], total: int
) -> MeanDifference:
    """Corrected resampled t-test of two models, paired by fold.

    Of k folds n_test / n_train is 1 / (k - 1): the examples on which the epoch is chosen count as
    training, because the model depends on them.

    Parameters
    ----------
    first, second : sequence of float
        One value per repetition and fold.
    folds : sequence of int
        The fold of each.
    total : int
        How many folds the corpus was cut into.

    Raises
    ------
    ValueError
        As `harness.stats.compare_means`, or for fewer than two folds.
    """
    if total < 2:
        raise ValueError(f"given {total} folds; expected two or more")
    sides = [list(fold_means(folds, side).values()) for side in (first, second)]
    return compare_means(*sides, paired=True, overlap=1 / (total - 1))
