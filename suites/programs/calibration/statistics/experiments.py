"""Simulated experiments: each draws so many, and counts how often something is said.

Values are drawn here; what is said of them comes from `harness.stats`, call by call, as `compare`
does it. Each function takes a generator, the number of draws, and its sizes, and returns a count.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from harness.stats import (
    ALPHA,
    accuracy_verdict,
    compare_folds,
    compare_means,
    equivalence,
    friedman,
    holm,
    judged_p,
    paired_spread,
)

Generator = np.random.Generator
Values = list[float]
CLAIMS = ("better", "worse")


def _pairs(rng: Generator, count: int, correlation: float) -> tuple[Values, Values]:
    """Values of two models over seeds: normal, deviation 1, correlated, the same mean."""
    second, own = rng.normal(size=(2, count))
    first = correlation * second + math.sqrt(1 - correlation**2) * own
    return first.tolist(), second.tolist()


def _sd(correlation: float) -> float:
    return math.sqrt(2 * (1 - correlation))


def paired_statistic(rng: Generator, draws: int, count: int, correlation: float) -> int:
    """Two equal models: p below alpha."""
    return sum(
        compare_means(*_pairs(rng, count, correlation), paired=True, exact=False).p < ALPHA
        for _ in range(draws)
    )


def paired_verdict(rng: Generator, draws: int, count: int, correlation: float) -> int:
    """Two equal models: called better or worse."""
    found = 0
    for _ in range(draws):
        difference = compare_means(*_pairs(rng, count, correlation), paired=True, exact=False)
        found += accuracy_verdict(difference, True, None) in CLAIMS
    return found


def paired_coverage(
    rng: Generator, draws: int, count: int, correlation: float, effect: float
) -> int:
    """The 95 % interval holds the true difference."""
    found = 0
    for _ in range(draws):
        first, second = _pairs(rng, count, correlation)
        d = compare_means([v + effect for v in first], second, paired=True, exact=False)
        found += d.low <= effect <= d.high
    return found


def paired_power(
    rng: Generator, draws: int, count: int, correlation: float, effect: float, alpha: float
) -> int:
    """A difference is found, at a level."""
    found = 0
    for _ in range(draws):
        first, second = _pairs(rng, count, correlation)
        d = compare_means([v + effect for v in first], second, paired=True, exact=False)
        found += d.p < alpha
    return found


def unpaired(
    rng: Generator, draws: int, count: int, ratio: float, effect: float, other: int
) -> int:
    """Welch's p below alpha; the second side has `other` values, of `ratio` times the deviation."""
    return sum(
        compare_means(
            rng.normal(effect, 1, count).tolist(),
            rng.normal(0, ratio, other).tolist(),
            paired=False,
            exact=False,
        ).p
        < ALPHA
        for _ in range(draws)
    )


def unpaired_coverage(rng: Generator, draws: int, count: int, ratio: float, other: int) -> int:
    """Welch's 95 % interval holds the true difference."""
    found = 0
    for _ in range(draws):
        first, second = rng.normal(1, 1, count).tolist(), rng.normal(0, ratio, other).tolist()
        d = compare_means(first, second, paired=False, exact=False)
        found += d.low <= 1 <= d.high
    return found


def sign_flips(rng: Generator, draws: int, count: int, correlation: float) -> int:
    """Two equal models: the exact sign-flip p below alpha."""
    return sum(
        compare_means(*_pairs(rng, count, correlation), paired=True).sign_flip_p < ALPHA
        for _ in range(draws)
    )


def accuracies(rng: Generator, draws: int, count: int, examples: int, accuracy: float) -> int:
    """Two models of equal accuracy, each a share of so many test examples: better or worse."""
    found = 0
    for _ in range(draws):
        first, second = rng.binomial(examples, accuracy, (2, count)) / examples
        difference = compare_means(first.tolist(), second.tolist(), paired=True)
        found += accuracy_verdict(difference, True, None) in CLAIMS
    return found


def equal_within(rng: Generator, draws: int, count: int, correlation: float, margin: float) -> int:
    """Models that differ by exactly the margin (in deviations of differences): called equal."""
    shift = margin * _sd(correlation)
    found = 0
    for _ in range(draws):
        first, second = _pairs(rng, count, correlation)
        shifted = [v + shift for v in first]
        difference = compare_means(shifted, second, paired=True, exact=False)
        found += equivalence(difference, shift) < ALPHA
    return found


def family(
    rng: Generator, draws: int, count: int, models: int, different: int, effect: float
) -> int:
    """Models against one baseline, some truly different: any equal one called better or worse."""
    found = 0
    for _ in range(draws):
        baseline = rng.normal(size=count)
        values = rng.normal(size=(models, count))
        values[:different] += effect
        some = [
            compare_means(side.tolist(), baseline.tolist(), paired=True, exact=False)
            for side in values
        ]
        adjusted = holm([judged_p(d) for d in some])
        verdicts = [accuracy_verdict(d, True, None, p) for d, p in zip(some, adjusted, strict=True)]
        found += any(said in CLAIMS for said in verdicts[different:])
    return found


def any_model(rng: Generator, draws: int, models: int, tasks: int) -> int:
    """Equal models on tasks of unlike difficulty: Friedman's p below alpha."""
    found = 0
    for _ in range(draws):
        values = rng.normal(size=(models, tasks)) + 5 * rng.normal(size=tasks)
        scores = {str(i): row.tolist() for i, row in enumerate(values)}
        found += friedman(scores).p <= ALPHA
    return found


def _correlated_folds(rng: Generator, folds: int, correlation: float) -> np.ndarray:
    """Differences of folds, any two of them equally correlated, deviation 1."""
    common, own = rng.normal(), rng.normal(size=folds)
    return np.asarray(math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own)


def normal_folds(
    rng: Generator, draws: int, folds: int, seeds: int, noise: float, as_seeds: bool
) -> int:
    """Two equal models over folds that overlap as Nadeau and Bengio suppose: p below alpha.

    Parameters
    ----------
    seeds, noise : int, float
        Every fold once per seed, with noise of its own.
    as_seeds : bool
        Judged as if every value were an independent replicate: the mistake.
    """
    numbers = np.tile(np.arange(folds), seeds).tolist()
    zeros = [0.0] * (folds * seeds)
    found = 0
    for _ in range(draws):
        common = np.tile(_correlated_folds(rng, folds, 1 / folds), seeds)
        values = (common + noise * rng.normal(size=folds * seeds)).tolist()
        if as_seeds:
            p = compare_means(values, zeros, paired=True, exact=False).p
        else:
            p = compare_folds(values, zeros, numbers, folds).p
        found += p < ALPHA
    return found


def learner_folds(
    rng: Generator, draws: int, folds: int, seeds: int, examples: int, as_seeds: bool
) -> int:
    """Two learners that are equally good, cross-validated on a drawn corpus: p below alpha.

    Both are linear discriminants (the difference of the class means), each sees features of its own
    that tell the classes equally well; a seed adds noise to the weights. So neither is better in
    the mean over corpora, while folds of one corpus share training examples, and seeds share folds.
    """
    found = 0
    for _ in range(draws):
        first, second, numbers = _cross_validated(rng, folds, seeds, examples)
        if as_seeds:
            p = compare_means(first, second, paired=True, exact=False).p
        else:
            p = compare_folds(first, second, numbers, folds).p
        found += p < ALPHA
    return found


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


def sd_coverage(rng: Generator, draws: int, count: int, correlation: float) -> int:
    """The interval of a plan's estimated deviation holds the true one."""
    found = 0
    for _ in range(draws):
        sd = paired_spread(*_pairs(rng, count, correlation)).sd
        found += sd.low <= _sd(correlation) <= sd.high
    return found


def correlation_coverage(rng: Generator, draws: int, count: int, correlation: float) -> int:
    """The interval of a plan's estimated correlation holds the true one."""
    found = 0
    for _ in range(draws):
        r = paired_spread(*_pairs(rng, count, correlation)).correlation
        found += r.low <= correlation <= r.high
    return found


EXPERIMENTS: dict[str, Callable[..., int]] = {
    f.__name__: f
    for f in (
        paired_statistic,
        paired_verdict,
        paired_coverage,
        paired_power,
        unpaired,
        unpaired_coverage,
        sign_flips,
        accuracies,
        equal_within,
        family,
        any_model,
        normal_folds,
        learner_folds,
        sd_coverage,
        correlation_coverage,
    )
}
