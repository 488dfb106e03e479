"""Probabilities of better, practically equal and worse, after what was measured."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from harness.stats import Chances, MeanDifference, chances, compare_folds, compare_means

FIRST = [0.843, 0.851, 0.838, 0.862, 0.849, 0.855]
SECOND = [0.838, 0.840, 0.841, 0.850, 0.842, 0.843]


def paired() -> MeanDifference:
    return compare_means(FIRST, SECOND, paired=True)


def known(found: MeanDifference, margin: float | None, higher_is_better: bool = True) -> Chances:
    """The probabilities, where there are some."""
    some = chances(found, higher_is_better, margin)
    assert some is not None
    return some


def posterior(differences: np.ndarray, edge: float, overlap: float) -> float:
    """P(mean > edge), of the joint posterior of mean and precision by brute force.

    Likelihood of normal differences, equally correlated so that the variance of their mean is
    (1/n + overlap) s^2; prior 1 / precision. Both integrals are done on a grid.
    """
    count = len(differences)
    rho = overlap / (1 + overlap)
    cov = np.full((count, count), rho) + (1 - rho) * np.eye(count)
    inverse, ones = np.linalg.inv(cov), np.ones(count)
    spread = differences.std(ddof=1)
    logs = np.linspace(-6, 4.5, 801) - 2 * math.log(spread)
    means = differences.mean() + spread * np.linspace(-40, 40, 16_001)
    away = differences[:, None] - means[None]
    squares = np.einsum("im,ij,jm->m", away, inverse, away)
    assert ones @ inverse @ ones > 0
    precision = np.exp(logs)[:, None]
    density = precision ** (count / 2) * np.exp(-precision * squares / 2)  # d log: prior is flat
    marginal = integrate.trapezoid(density, logs, axis=0)
    above = integrate.trapezoid(np.where(means > edge, marginal, 0), means)
    return float(above / integrate.trapezoid(marginal, means))


@pytest.mark.parametrize("overlap", [0.0, 1 / 9])
@pytest.mark.parametrize("margin", [0.002, 0.01])
def test_they_are_the_integral_of_the_posterior(overlap: float, margin: float) -> None:
    rng = np.random.default_rng(1)
    count = 10 if overlap else 6
    first, second = (rng.normal(0.8, 0.01, count) + x for x in (0.004, 0.0))
    d = compare_means(first.tolist(), second.tolist(), paired=True, overlap=overlap)
    found = known(d, margin)
    differences = first - second
    assert found.better == pytest.approx(posterior(differences, margin, overlap), abs=2e-3)
    assert found.worse == pytest.approx(1 - posterior(differences, -margin, overlap), abs=2e-3)
    assert found.equal is not None
    assert found.better + found.equal + found.worse == pytest.approx(1)


def test_without_a_margin_there_are_two_and_they_are_the_one_sided_p() -> None:
    d = paired()
    found = known(d, None)
    assert found.equal is None
    assert found.worse == pytest.approx(
        stats.ttest_rel(FIRST, SECOND, alternative="greater").pvalue
    )
    assert found.better == pytest.approx(1 - found.worse)
    assert found.better == pytest.approx(1 - d.p / 2), "the same t, read the other way round"


def test_less_is_better_of_an_error() -> None:
    higher, lower = (known(paired(), 0.003, better) for better in (True, False))
    assert (lower.better, lower.worse) == (higher.worse, higher.better)
    assert lower.equal == higher.equal
    assert higher.better > 0.9


def test_folds_are_less_sure_than_as_many_seeds() -> None:
    rng = np.random.default_rng(2)
    first, second = (rng.normal(0.8 + x, 0.02, 10).tolist() for x in (0.02, 0.0))
    folds = compare_folds(first, second, list(range(10)), 10)
    seeds = compare_means(first, second, paired=True)
    by = [known(d, 0.001) for d in (folds, seeds)]
    assert 0.5 < by[0].better < by[1].better
    # Corani and Benavoli's closed form: St(n - 1, mean, (1/n + rho / (1 - rho)) s^2), rho = 1/10.
    differences = np.subtract(first, second)
    scale = math.sqrt((1 / 10 + 0.1 / 0.9) * differences.var(ddof=1))
    exact = stats.t.sf(0.001, 9, differences.mean(), scale)
    assert by[0].better == pytest.approx(float(exact), rel=1e-12)


def test_unpaired_they_are_of_two_independent_posteriors() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.normal(0.81, 0.01, 5).tolist(), rng.normal(0.8, 0.03, 9).tolist()
    found = known(compare_means(first, second, paired=False), 0.005)
    sides = [
        np.mean(v) + np.std(v, ddof=1) / math.sqrt(len(v)) * rng.standard_t(len(v) - 1, 2_000_000)
        for v in (first, second)
    ]
    apart = sides[0] - sides[1]
    assert found.better == pytest.approx(np.mean(apart > 0.005), abs=2e-3)
    assert found.worse == pytest.approx(np.mean(apart < -0.005), abs=2e-3)
    other = known(compare_means(second, first, paired=False), 0.005)
    assert other.better == pytest.approx(found.worse, abs=1e-8)


def test_a_side_without_spread_is_known() -> None:
    d = compare_means([0.9, 0.91, 0.92, 0.9, 0.91], [0.9] * 5, paired=False)
    found = known(d, None)
    expected = stats.t.sf(0, 4, d.difference, d.sd_first / math.sqrt(5))
    assert found.better == pytest.approx(float(expected), abs=1e-8)


def test_without_spread_there_is_no_posterior() -> None:
    assert chances(compare_means([0.9], [0.8], paired=True), True, None) is None
    assert chances(compare_means([0.9] * 6, [0.8] * 6, paired=True), True, 0.01) is None


def test_a_margin_is_positive() -> None:
    with pytest.raises(ValueError, match=r"given margin 0\.0; expected a positive difference"):
        chances(paired(), True, 0.0)
