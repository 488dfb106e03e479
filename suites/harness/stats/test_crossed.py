"""Differences over seeds and test examples, against statsmodels, scipy, resampling and algebra."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.contingency_tables import mcnemar as contingency

from harness.stats import compare_means, correlation_p, correlation_parts, crossed, mcnemar


def drawn(seeds: int, items: int, by_seed: float, by_item: float, case: int = 0) -> np.ndarray:
    rng = np.random.default_rng(case)
    seed, item = by_seed * rng.normal(size=(seeds, 1)), by_item * rng.normal(size=items)
    return np.asarray(0.3 + seed + item + rng.normal(size=(seeds, items)))


def test_where_only_seeds_differ_it_is_the_paired_t_test() -> None:
    by_seed = np.array([0.1, 0.3, -0.2, 0.4, 0.25])
    found = crossed(np.tile(by_seed[:, None], (1, 40)))
    plain = compare_means(by_seed.tolist(), [0.0] * 5, paired=True)
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high), rel=1e-9)
    assert found.p == pytest.approx(plain.p, rel=1e-9)
    assert found.of_seeds == 1.0


def test_where_only_examples_differ_it_is_their_t_test() -> None:
    by_item = np.random.default_rng(0).normal(0.2, 1, 50)
    found = crossed(np.tile(by_item, (5, 1)))
    assert found.p == pytest.approx(stats.ttest_1samp(by_item, 0).pvalue, rel=1e-9)
    assert found.error == pytest.approx(stats.sem(by_item), rel=1e-9)
    assert found.of_seeds == 0.0


def test_the_error_is_that_of_means_of_both() -> None:
    """Mean of many draws, by the known variances of a two-way layout."""
    squares = [crossed(drawn(8, 60, 0.5, 0.8, case)).error ** 2 for case in range(400)]
    assert np.mean(squares) == pytest.approx(0.25 / 8 + 0.64 / 60 + 1 / 480, rel=0.06)


def test_the_mean_squares_are_those_of_a_two_way_layout() -> None:
    values = drawn(8, 12, 0.9, 0.8)
    seed, item = np.indices(values.shape)
    frame = pd.DataFrame({"y": values.ravel(), "seed": seed.ravel(), "item": item.ravel()})
    table = anova_lm(ols("y ~ C(seed) + C(item)", frame).fit())
    s, i, e = table["sum_sq"] / table["df"]
    found = crossed(values)
    assert found.error**2 == pytest.approx((s + i - e) / values.size)
    assert found.of_seeds == pytest.approx(s / (s + i - e))


def test_it_is_wider_than_over_seeds_alone_where_examples_matter() -> None:
    values = drawn(10, 100, 0.1, 1.0)
    found = crossed(values)
    seeds = compare_means(values.mean(axis=1).tolist(), [0.0] * 10, paired=True)
    assert found.difference == pytest.approx(seeds.difference)
    assert found.high - found.low > 1.5 * (seeds.high - seeds.low)
    assert found.of_seeds < 0.3


def test_interval_and_p_agree() -> None:
    values = drawn(6, 80, 0.3, 0.5)
    found = crossed(values)
    at_end = crossed(values - found.low)
    assert at_end.p == pytest.approx(0.05, rel=1e-6)
    assert found.equivalence(found.high + 1e-9) < 0.025 < found.equivalence(found.high - 1e-3)
    assert found.equivalence(abs(found.difference) / 2) > 0.5


def test_without_any_spread_it_is_certain() -> None:
    alike, apart = crossed(np.zeros((5, 20))), crossed(np.full((5, 20), 0.1))
    assert (alike.p, alike.low, alike.high, alike.equivalence(0.01)) == (1.0, 0.0, 0.0, 0.0)
    assert (apart.p, apart.equivalence(0.05)) == (0.0, 1.0)


@pytest.mark.parametrize("shape", [(1, 9), (9, 1)])
def test_one_of_either_is_too_few(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="expected two or more of each"):
        crossed(np.zeros(shape))


def test_a_tiny_p_is_no_error() -> None:
    assert crossed(1000 + drawn(10, 60, 0.1, 0.1)).p == 0.0


@pytest.mark.parametrize("case", range(5))
def test_mcnemar_is_that_of_statsmodels(case: int) -> None:
    first, second = np.random.default_rng(case).random((2, 60)) < [[0.8], [0.7]]
    table = [[int((a & b).sum()) for b in (second, ~second)] for a in (first, ~first)]
    assert mcnemar(first, second) == pytest.approx(contingency(table, exact=True).pvalue)
    assert mcnemar(first, first) == 1.0


def degrees(case: int, count: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(case)
    truth = rng.normal(size=count)
    return truth, truth + rng.normal(size=count), truth + 1.1 * rng.normal(size=count)


def test_the_parts_of_a_correlation_have_its_mean_and_its_jackknife_error() -> None:
    truth, said, _ = degrees(0)
    parts = correlation_parts(said, truth)
    assert parts.mean() == pytest.approx(stats.pearsonr(said, truth).statistic)
    without = [
        stats.pearsonr(np.delete(said, i), np.delete(truth, i)).statistic for i in range(len(said))
    ]
    jackknife = math.sqrt((len(said) - 1) * np.var(without))
    assert stats.sem(parts) == pytest.approx(jackknife, rel=0.02)
    assert not correlation_parts(np.ones(400), truth).any()


def test_the_bootstrap_of_correlations_is_that_of_scipy() -> None:
    for case in range(3):
        truth, first, second = degrees(case)
        (p,) = correlation_p([(first, second)], truth)

        def apart(a: np.ndarray, b: np.ndarray, t: np.ndarray) -> float:
            return float(np.corrcoef(a, t)[0, 1] - np.corrcoef(b, t)[0, 1])

        found = stats.bootstrap(
            (first, second, truth),
            apart,
            paired=True,
            vectorized=False,
            n_resamples=1000,
            rng=np.random.default_rng(1),
        )
        drawn_apart = found.bootstrap_distribution
        seen = apart(first, second, truth)
        assert p == pytest.approx(np.mean(np.abs(drawn_apart - seen) >= abs(seen)), abs=0.05)


def test_every_pair_is_judged_on_the_same_resamples() -> None:
    truth, first, second = degrees(0)
    both = correlation_p([(first, second), (first, first), (second, np.ones(400))], truth)
    assert both[0] == correlation_p([(first, second)], truth)[0]
    assert both[1] == 1.0
    assert both[2] < 0.001
