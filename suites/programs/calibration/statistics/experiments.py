"""Simulated experiments: one draw each, and whether something is said of it.

Values are drawn here; what is said of them comes from `harness.stats`, call by call, as `compare`
does it. Each function takes a generator and its sizes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from harness.stats import (
    ALPHA,
    MeanDifference,
    accuracy_verdict,
    chances,
    compare_folds,
    compare_means,
    correlation_p,
    correlation_parts,
    crossed,
    equivalence,
    friedman,
    holm,
    judged_p,
    mcnemar,
    paired_spread,
    summed_p,
    ties,
)
from harness.stats.sums import ORDERS, SUMMED

Generator = np.random.Generator
Values = list[float]


def _pairs(rng: Generator, count: int, correlation: float) -> tuple[Values, Values]:
    """Values of two models over seeds: normal, deviation 1, correlated, the same mean."""
    second, own = rng.normal(size=(2, count))
    first = correlation * second + math.sqrt(1 - correlation**2) * own
    return first.tolist(), second.tolist()


def _sd(correlation: float) -> float:
    return math.sqrt(2 * (1 - correlation))


def _paired(rng: Generator, count: int, correlation: float, effect: float = 0.0) -> MeanDifference:
    """Two models, of which one is better by the effect."""
    first, second = _pairs(rng, count, correlation)
    return compare_means([v + effect for v in first], second, paired=True, exact=False)


def _claims(difference: MeanDifference, p: float | None = None) -> bool:
    """Whether the verdict is better or worse."""
    return accuracy_verdict(difference, True, None, p) in ("better", "worse")


def paired_statistic(rng: Generator, **sizes: Any) -> bool:
    """Two equal models: p below alpha."""
    return _paired(rng, **sizes).p < ALPHA


def paired_verdict(rng: Generator, **sizes: Any) -> bool:
    """Two equal models: called better or worse."""
    return _claims(_paired(rng, **sizes))


def paired_coverage(rng: Generator, effect: float, **sizes: Any) -> bool:
    """The 95 % interval holds the true difference."""
    d = _paired(rng, effect=effect, **sizes)
    return d.low <= effect <= d.high


def paired_power(rng: Generator, alpha: float, **sizes: Any) -> bool:
    """A difference is found, at a level."""
    return _paired(rng, **sizes).p < alpha


def _unpaired(
    rng: Generator, count: int, other: int, ratio: float, effect: float
) -> MeanDifference:
    """Independent sides; the second has `other` values, of `ratio` times the deviation."""
    first, second = rng.normal(effect, 1, count).tolist(), rng.normal(0, ratio, other).tolist()
    return compare_means(first, second, paired=False, exact=False)


def unpaired(rng: Generator, **sizes: Any) -> bool:
    """Welch's p below alpha."""
    return _unpaired(rng, **sizes).p < ALPHA


def unpaired_coverage(rng: Generator, **sizes: Any) -> bool:
    """Welch's 95 % interval holds the true difference."""
    d = _unpaired(rng, effect=1, **sizes)
    return d.low <= 1 <= d.high


def sign_flips(rng: Generator, count: int, correlation: float) -> bool:
    """Two equal models: the exact sign-flip p below alpha."""
    return compare_means(*_pairs(rng, count, correlation), paired=True).sign_flip_p < ALPHA


def accuracies(rng: Generator, count: int, examples: int, accuracy: float) -> bool:
    """Two models of equal accuracy, each a share of so many test examples: better or worse."""
    first, second = rng.binomial(examples, accuracy, (2, count)) / examples
    return _claims(compare_means(first.tolist(), second.tolist(), paired=True))


def equal_within(rng: Generator, count: int, correlation: float, margin: float) -> bool:
    """Models that differ by exactly the margin (in deviations of differences): called equal."""
    shift = margin * _sd(correlation)
    first, second = _pairs(rng, count, correlation)
    shifted = [v + shift for v in first]
    difference = compare_means(shifted, second, paired=True, exact=False)
    return equivalence(difference, shift) < ALPHA


def family(rng: Generator, count: int, models: int, different: int, effect: float) -> bool:
    """Models against one baseline, some truly different: any equal one called better or worse."""
    baseline = rng.normal(size=count).tolist()
    values = rng.normal(size=(models, count))
    values[:different] += effect
    some = [compare_means(v.tolist(), baseline, paired=True, exact=False) for v in values]
    said = map(_claims, some, holm([judged_p(d) for d in some]))
    return any(list(said)[different:])


def any_model(rng: Generator, models: int, tasks: int) -> bool:
    """Equal models on tasks of unlike difficulty: Friedman's p below alpha."""
    values = rng.normal(size=(models, tasks)) + 5 * rng.normal(size=tasks)
    return friedman({str(i): row.tolist() for i, row in enumerate(values)}).p <= ALPHA


def told_apart(rng: Generator, count: int, models: int, spread: float, better: int) -> bool:
    """Models ranked over seeds or tasks: any two that are equal told apart.

    A seed is as hard for all. One model in two has `spread` times the deviation of the others, and
    some are far better than the rest.
    """
    block = 5 * rng.normal(size=count)
    sd = np.where(np.arange(models) % 2, spread, 1.0)
    level = np.where(np.arange(models) < better, 50.0, 0.0)
    values = block + level[:, None] + sd[:, None] * rng.normal(size=(models, count))
    found = ties({str(number): row.tolist() for number, row in enumerate(values)})
    sides = ({pair.first, pair.second} for pair in found.pairs if pair.adjusted_p < ALPHA)
    good = {str(number) for number in range(better)}
    return any(side <= good or not side & good for side in sides)


def told_from_all(rng: Generator, count: int, models: int, ahead: float) -> bool:
    """Models ranked over seeds, the first ahead of equal others: told apart from every one."""
    values = 5 * rng.normal(size=count) + rng.normal(size=(models, count))
    values[0] += ahead
    found = ties({str(number): row.tolist() for number, row in enumerate(values)})
    return all(p.adjusted_p < ALPHA for p in found.pairs if "0" in (p.first, p.second))


def _p_better(d: MeanDifference, margin: float) -> float:
    found = chances(d, True, margin)
    assert found is not None
    return found.better


def better_by(rng: Generator, count: int, correlation: float, margin: float) -> bool:
    """Seeds, the true difference is the margin (in deviations): P(better) below alpha.

    The posterior of its own edge: below it lies the truth as often as is said.
    """
    shift = margin * _sd(correlation)
    return _p_better(_paired(rng, count, correlation, shift), shift) < ALPHA


def better_beyond(rng: Generator, count: int, beyond: float, margin: float) -> bool:
    """The truth lies beyond the margin, both in deviations of differences: P(better) is 95 %."""
    d = _paired(rng, count, 0.5, margin + beyond)  # whose differences have a deviation of 1
    return _p_better(d, margin) > 1 - ALPHA


def better_by_folds(rng: Generator, folds: int, margin: float) -> bool:
    """The same of folds that overlap as Nadeau and Bengio suppose."""
    values = (_correlated_folds(rng, folds, 1 / folds) + margin).tolist()
    d = compare_folds(values, [0.0] * folds, list(range(folds)), folds)
    return _p_better(d, margin) < ALPHA


def better_by_unpaired(rng: Generator, margin: float, **sizes: Any) -> bool:
    """The same of independent sides."""
    return _p_better(_unpaired(rng, effect=margin, **sizes), margin) < ALPHA


def said_and_true(rng: Generator, count: int, says: str, at_least: float) -> bool:
    """Truth drawn from the prior; of what is said with such a P or more: true, `at_least` often.

    The prior is cut far out, where it has an end: means between -10 and 10 margins, deviations of
    0.05 to 20, each logarithm as probable. What is said with a larger P is thinned by chance to
    ``at_least``, so that all draws have one rate.
    """
    while True:
        truth, sd = rng.uniform(-10, 10), math.exp(rng.uniform(math.log(0.05), math.log(20)))
        values = (truth + sd * rng.normal(size=count)).tolist()
        found = chances(compare_means(values, [0.0] * count, paired=True, exact=False), True, 1.0)
        assert found is not None
        said = getattr(found, says)
        if said >= at_least:
            really = "better" if truth > 1 else "worse" if truth < -1 else "equal"
            return really == says and bool(rng.random() < at_least / said)


def _folds_p(
    first: Values, second: Values, numbers: list[int], folds: int, as_seeds: bool
) -> float:
    """P-value over folds, or, the mistake, as if every value were an independent replicate."""
    if as_seeds:
        return compare_means(first, second, paired=True, exact=False).p
    return compare_folds(first, second, numbers, folds).p


def _correlated_folds(rng: Generator, folds: int, correlation: float) -> np.ndarray:
    """Differences of folds, any two of them equally correlated, deviation 1."""
    common, own = rng.normal(), rng.normal(size=folds)
    return np.asarray(math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own)


def normal_folds(rng: Generator, folds: int, seeds: int, noise: float, as_seeds: bool) -> bool:
    """Two equal models over folds that overlap as Nadeau and Bengio suppose: p below alpha.

    Every fold comes once per seed, with noise of its own.
    """
    numbers = np.tile(np.arange(folds), seeds).tolist()
    common = np.tile(_correlated_folds(rng, folds, 1 / folds), seeds)
    values = (common + noise * rng.normal(size=folds * seeds)).tolist()
    return _folds_p(values, [0.0] * (folds * seeds), numbers, folds, as_seeds) < ALPHA


def learner_folds(rng: Generator, folds: int, seeds: int, examples: int, as_seeds: bool) -> bool:
    """Two learners that are equally good, cross-validated on a drawn corpus: p below alpha.

    Both are linear discriminants (the difference of the class means), each sees features of its own
    that tell the classes equally well; a seed adds noise to the weights. So neither is better in
    the mean over corpora, while folds of one corpus share training examples, and seeds share folds.
    """
    first, second, numbers = _cross_validated(rng, folds, seeds, examples)
    return _folds_p(first, second, numbers, folds, as_seeds) < ALPHA


def _cross_validated(
    rng: Generator, folds: int, seeds: int, examples: int, width: int = 5, apart: float = 0.35
) -> tuple[Values, Values, list[int]]:
    """Accuracies of both learners by seed and fold."""
    fold_of = np.arange(examples) % folds
    labels = rng.choice([-1.0, 1.0], size=examples)
    inside = np.eye(folds)[fold_of]  # [examples, folds]
    accuracy = []
    for _ in range(2):
        x = rng.normal(size=(examples, width)) + apart * labels[:, None]
        sums = (labels[:, None] * x).T @ inside  # [width, folds]
        weights = sums.sum(axis=1, keepdims=True) - sums  # trained on all other folds
        scale = np.linalg.norm(weights, axis=0)
        noise = rng.normal(size=(seeds, width, folds)) * 0.3 * scale / math.sqrt(width)
        scores = np.einsum("ew,swf->sef", x, weights + noise)
        right = (np.sign(scores) == labels[None, :, None]) * inside[None]
        accuracy.append((right.sum(axis=1) / inside.sum(axis=0)).ravel().tolist())
    return accuracy[0], accuracy[1], np.tile(np.arange(folds), seeds).tolist()


def sd_coverage(rng: Generator, count: int, correlation: float) -> bool:
    """The interval of a plan's estimated deviation holds the true one."""
    sd = paired_spread(*_pairs(rng, count, correlation)).sd
    return sd.low <= _sd(correlation) <= sd.high


def correlation_coverage(rng: Generator, count: int, correlation: float) -> bool:
    """The interval of a plan's estimated correlation holds the true one."""
    r = paired_spread(*_pairs(rng, count, correlation)).correlation
    return r.low <= correlation <= r.high


def _said(
    rng: Generator,
    seeds: int,
    examples: int,
    by_seed: float,
    by_example: float,
    by_slope: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """What runs of two equal models say of each example, [2, seeds, examples]; and the truth.

    A model leans to one side with some seeds, and at some examples, and follows the truth more or
    less with some seeds: by normal deviations beside one of 1 that nothing explains.
    """
    truth = 1.5 * rng.normal(size=examples)
    lean, slope = rng.normal(size=(2, 2, seeds, 1))
    example = by_example * rng.normal(size=(2, 1, examples))
    noise = rng.normal(size=(2, seeds, examples))
    return truth * (1 + by_slope * slope) + by_seed * lean + example + noise, truth


def _right(rng: Generator, effect: float = 0.0, **sizes: Any) -> np.ndarray:
    """Whether runs are right, [2, seeds, examples]: nine times in ten; the first by an effect."""
    said, _ = _said(rng, **sizes)
    said[0] += effect
    return np.asarray(said > -2.3)


def _apart(right: np.ndarray) -> np.ndarray:
    return np.asarray(right[0].astype(float) - right[1])


def over_examples(rng: Generator, **sizes: Any) -> bool:
    """Classes, over seeds and test examples: p below alpha."""
    return crossed(_apart(_right(rng, **sizes))).p < ALPHA


def examples_taken_as_given(rng: Generator, **sizes: Any) -> bool:
    """The mistake: a t-test over seeds is said to hold for other test examples too."""
    first, second = _right(rng, **sizes).mean(axis=2).tolist()
    return compare_means(first, second, paired=True, exact=False).p < ALPHA


def pigeonhole(rng: Generator, **sizes: Any) -> bool:
    """The alternative, a bootstrap of seeds and examples: its 95 % percentiles exclude zero."""
    values = _apart(_right(rng, **sizes))
    some, others = (rng.multinomial(n, [1 / n] * n, 400) / n for n in values.shape)
    low, high = np.quantile(np.einsum("bs,bs->b", some, others @ values.T), [0.025, 0.975])
    return bool(low > 0 or high < 0)


def _degrees(rng: Generator, worse: float = 0.0, **sizes: Any) -> tuple[np.ndarray, np.ndarray]:
    """`_said`; the second model errs more, by a deviation at every example."""
    said, truth = _said(rng, **sizes)
    if worse:
        said[1] += worse * rng.normal(size=said[1].shape)
    return said, truth


def correlation_over_examples(rng: Generator, **sizes: Any) -> bool:
    """Degrees, Pearson's correlation over seeds and test examples: p below alpha."""
    said, truth = _degrees(rng, **sizes)
    parts = [np.array([correlation_parts(run, truth) for run in side]) for side in said]
    return crossed(parts[0] - parts[1]).p < ALPHA


def one_pair(rng: Generator, **sizes: Any) -> bool:
    """One run of each model, classes: McNemar's p below alpha."""
    return mcnemar(*_right(rng, seeds=1, by_seed=0, **sizes)[:, 0]) < ALPHA


def one_pair_of_degrees(rng: Generator, **sizes: Any) -> bool:
    """One run of each model, degrees: the bootstrapped p of both correlations below alpha."""
    said, truth = _degrees(rng, seeds=1, by_seed=0, **sizes)
    return correlation_p([(said[0, 0], said[1, 0])], truth)[0] < ALPHA


def _counted(
    rng: Generator, metric: str, examples: int, effect: float = 0.0, **sizes: Any
) -> np.ndarray:
    """What a metric counts in sentences of four words and more, [2, seeds, examples, counts].

    A word is right by a chance that leans as `_said`, and so is an n-gram, if all of it is; of the
    true spans, one a sentence on average, those are right that are, and some others are said.
    """
    said, _ = _said(rng, examples=examples, **sizes)
    said[0] += effect
    chance = 1 / (1 + np.exp(-1 - said))
    words = 4 + rng.poisson(12, examples)
    if metric == "tag_accuracy":
        own = [rng.binomial(words, chance), words]
    elif metric == "span_f1":
        true = rng.poisson(1.0, examples)
        right = rng.binomial(true, chance)
        own = [right, right + rng.poisson(0.5 * (1 - chance)), true]
    else:
        grams = [words - order for order in range(ORDERS)]
        matches = [rng.binomial(n, chance**order) for order, n in enumerate(grams, 1)]
        own = [words, words, *matches, *grams]
    before = [np.zeros(examples)] * SUMMED[metric].first
    columns = (np.broadcast_to(column, chance.shape) for column in (*before, *own))
    return np.stack(list(columns), axis=-1)


def summed_over_examples(rng: Generator, metric: str, **sizes: Any) -> bool:
    """A metric of sums, over seeds and test examples: p below alpha."""
    parts = [[SUMMED[metric].parts(run) for run in side] for side in _counted(rng, metric, **sizes)]
    return crossed(np.subtract(*np.array(parts))).p < ALPHA


def one_pair_of_counts(rng: Generator, metric: str, **sizes: Any) -> bool:
    """One run of each model, a metric of sums: its bootstrapped p below alpha."""
    first, second = _counted(rng, metric, seeds=1, by_seed=0, **sizes)[:, 0]
    return summed_p(metric, [(first, second)])[0] < ALPHA
