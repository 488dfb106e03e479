"""Accuracies over replicates (seeds, folds): differences of means, and what they allow to say.

Folds of one corpus share training examples, so they are no independent replicates: the variance
over them says too little of how uncertain their mean is. Nadeau and Bengio (Inference for the
generalization error, 2003) correct it: (1/n + n_test / n_train) s^2 instead of s^2 / n. Bouckaert
and Frank (2004) recommend that for cross-validation; no unbiased estimate exists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.stats.basics import (
    ALPHA,
    MeanInterval,
    deviation,
    half_width,
    mean,
    permutation,
    sign_flip,
    t_interval,
    two_sided,
    welch_error,
)
from harness.stats.power import detectable_difference

ROUNDING = 1e-12
"""Differences and deviations below this share of the largest value are those of binary fractions
(0.1 + 0.2 is not 0.3), not of replicates: they count as zero."""
LEAST_REPLICATES = 5
"""With fewer per side nothing is concluded, only described."""

PRIOR = "noninformative Normal-Gamma prior"
"""All means and all logarithms of the spread are as probable before."""

AccuracyVerdict = Literal["better", "worse", "practically equal", "undecided", "descriptive only"]


@dataclass(frozen=True)
class MeanDifference:
    """Mean of the first side minus mean of the second."""

    # {"paired t", "Welch", "corrected resampled t"}: the last one for folds of one corpus (Nadeau
    # and Bengio 2003).
    test: str
    paired: bool
    count_first: int  # count_first, count_second: replicates
    count_second: int
    # mean_first, sd_first, mean_second, sd_second: sample deviations (n - 1); nan for one value.
    mean_first: float
    sd_first: float
    mean_second: float
    sd_second: float
    difference: float  # difference, low, high: with its 95 % t-interval; nan where there is none
    low: float
    high: float
    # error, freedom: standard error of the difference (nan for one value), and its degrees of
    # freedom.
    error: float
    freedom: float
    p: float  # two-sided
    # Difference over the root mean square of both deviations, times Hedges' correction 1 - 3 / (4
    # df - 1) (Cumming 2012: d_av for pairs; the usual g for groups of one size). nan for a
    # difference between two sides that have no spread.
    hedges_g: float
    # The true difference that this test finds with 80 % power at this spread and these counts;
    # unpaired, with Welch's standard error and degrees of freedom. 0 without spread.
    detectable: float
    # Exact two-sided p over all sign flips of the differences (paired) or all ways to split the
    # values (unpaired): no assumption of normality. nan where there are too many, or it was not
    # asked for, and for folds: they share training examples, and flips want independence.
    sign_flip_p: float
    differences: tuple[float, ...]  # by pair; empty if unpaired

    def detectable_among(self, count: int) -> float:
        """`detectable` as one of ``count`` judged together, at the level of Holm's first step."""
        if math.isnan(self.error):
            return math.nan
        return detectable_difference(self.error, self.freedom, alpha=ALPHA / count)


def compare_means(
    first: Sequence[float],
    second: Sequence[float],
    *,
    paired: bool,
    overlap: float = 0.0,
    exact: bool = True,
) -> MeanDifference:
    """Compare two sets of replicates: paired t, or Welch's t.

    Without any spread (all differences equal, but for `ROUNDING`) the interval is the value itself;
    p is 1 for a difference of zero and 0 otherwise, and the sign-flip p beside it shows how little
    that is.

    Parameters
    ----------
    overlap : float
        0 for independent pairs; for pairs that are folds of one corpus the number of tested over
        the number of trained-on examples, by which the variance of their mean is corrected
        (Nadeau and Bengio 2003, section 5.2): 1/n + overlap instead of 1/n.
    exact : bool
        Whether the exact test is done too, which takes up to a second; without it its p is nan.

    Raises
    ------
    ValueError
        Without values, with unequal numbers of paired ones, with one that is not finite, or with an
        overlap of values that are not paired.
    """
    _check(first, second, paired, overlap)
    floor = ROUNDING * max(map(abs, (*first, *second)))

    def spread(values: Sequence[float]) -> float:
        found = deviation(values)
        return 0.0 if found <= floor else found

    sd_first, sd_second = spread(first), spread(second)
    counts = len(first), len(second)
    differences: tuple[float, ...] = ()
    if paired:
        apart = (a - b for a, b in zip(first, second, strict=True))
        differences = tuple(d if abs(d) > floor else 0.0 for d in apart)
        difference, freedom = mean(differences), len(differences) - 1.0
        error = spread(differences) * math.sqrt(1 / len(differences) + overlap)
    else:
        difference = mean(first) - mean(second)
        difference = difference if abs(difference) > floor else 0.0
        error, freedom = welch_error((sd_first, sd_second), counts)
    low = high = p = g = detectable = math.nan
    if not math.isnan(error):
        half = half_width(error, freedom)
        low, high, p = difference - half, difference + half, two_sided(difference, error, freedom)
        both = math.sqrt((sd_first**2 + sd_second**2) / 2)
        plain = len(first) - 1 if paired else sum(counts) - 2
        if both > 0 and plain > 1:  # for two pairs its correction is zero
            g = difference / both * (1 - 3 / (4 * plain - 1))
        elif not difference:
            g = 0.0
        detectable = detectable_difference(error, freedom)
    enumerated = math.nan
    if exact and not overlap:
        enumerated = sign_flip(differences) if paired else permutation(first, second)
    return MeanDifference(
        test="corrected resampled t" if overlap else "paired t" if paired else "Welch",
        paired=paired,
        count_first=counts[0],
        count_second=counts[1],
        mean_first=mean(first),
        sd_first=sd_first,
        mean_second=mean(second),
        sd_second=sd_second,
        difference=difference,
        low=low,
        high=high,
        error=error,
        freedom=freedom,
        p=p,
        hedges_g=g,
        detectable=detectable,
        sign_flip_p=enumerated,
        differences=differences,
    )


def _check(first: Sequence[float], second: Sequence[float], paired: bool, overlap: float) -> None:
    if not first or not second:
        raise ValueError(f"given {len(first)} and {len(second)} values; expected some of each")
    if paired and len(first) != len(second):
        raise ValueError(f"given {len(first)} and {len(second)} paired values; expected as many")
    if not all(math.isfinite(v) for v in (*first, *second)):
        raise ValueError("given values that are not finite; leave such replicates out, and say so")
    if not 0 <= overlap < math.inf or (overlap and not paired):
        raise ValueError(f"given overlap {overlap}; expected 0 or more, and only for paired values")


def equivalence(found: MeanDifference, margin: float) -> float:
    """Two one-sided t-tests (TOST) against a margin: a small p means practically equal.

    Values without any spread leave a t-test nothing to go by: then the one-sided exact test with
    as many of them decides, signs flipped where they are paired and sides drawn where not, and no
    p-value is smaller than one over the number of its outcomes.

    Raises
    ------
    ValueError
        If the margin is not positive, or there is a single value on a side.
    """
    from scipy.special import stdtr

    first, second = found.count_first, found.count_second
    if not margin > 0:
        raise ValueError(f"given margin {margin}; expected a positive difference that is too small")
    if math.isnan(found.error):
        raise ValueError(f"given {first} and {second} values; expected two or more")
    if found.error == 0:
        outcomes = 2**first if found.paired else math.comb(first + second, first)
        return 1 / outcomes if abs(found.difference) < margin else 1.0
    return float(stdtr(found.freedom, (abs(found.difference) - margin) / found.error))


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


@dataclass(frozen=True)
class Chances:
    """Posterior probabilities of the first side's true difference; they sum to 1."""

    better: float  # that it is better by more than the margin; by anything without one
    equal: float | None  # that it lies within the margin; None without one
    worse: float


def chances(found: MeanDifference, higher_is_better: bool, margin: float | None) -> Chances | None:
    """The posterior of a difference, cut at the margin: better, practically equal or worse.

    The correlated Bayesian t-test (Corani and Benavoli 2015, A Bayesian approach for comparing
    cross-validated algorithms on multiple data sets, section 3): with the noninformative
    Normal-Gamma prior the posterior of the mean difference is Student's t, with n - 1 degrees of
    freedom around the mean that was seen, its scale the corrected standard error of
    `compare_means`: folds are correlated by the share of the corpus that is tested, independent
    seeds are not.

    Unpaired sides have that prior each, independently: the posterior of their difference is that
    of Behrens and Fisher.

    Returns
    -------
    Chances or None
        None where there is no spread that a posterior could come from: a single value on a side,
        or values that are all the same.

    Raises
    ------
    ValueError
        If a margin is given that is not positive.
    """
    if margin is not None and not margin > 0:
        raise ValueError(f"given margin {margin}; expected a positive difference, or none")
    if not found.error > 0:
        return None
    edge = margin or 0.0
    above, below = _above(found, edge), 1 - _above(found, -edge)
    better, worse = (above, below) if higher_is_better else (below, above)
    return Chances(better, None if margin is None else max(0.0, 1 - above - below), worse)


def _above(found: MeanDifference, edge: float) -> float:
    """Probability that the true difference lies above a number."""
    from scipy.integrate import quad
    from scipy.special import stdtr, stdtrit

    apart = found.difference - edge
    if found.paired:
        return float(stdtr(found.freedom, apart / found.error))
    sides = [(found.sd_first, found.count_first), (found.sd_second, found.count_second)]
    (error, count), (other, others) = sorted((sd / math.sqrt(n), n) for sd, n in sides)

    # The side with the larger error is integrated out in closed form: the smaller may be 0.
    def given(quantile: float) -> float:
        shift = error * stdtrit(count - 1, quantile)
        return float(stdtr(others - 1, (apart + shift) / other))

    return float(quad(given, 0, 1, epsabs=1e-10)[0])
