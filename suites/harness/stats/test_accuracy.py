"""Statistics over replicates, against enumeration, simulation, scipy and printed tables."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.meta_analysis import effectsize_smd
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower, TTestPower
from statsmodels.stats.weightstats import ttost_ind, ttost_paired

from harness.stats import (
    Summary,
    accuracy_verdict,
    compare_folds,
    compare_means,
    difference_found,
    equivalence,
    fold_means,
    friedman,
    holm,
    implied_interval,
    judged_p,
    over_tasks,
    paired_spread,
    power_of,
    replicates_needed,
    sd_of_differences,
    sharing,
    two_proportions,
    welch,
)
from harness.stats.basics import sign_test

A = [0.890, 0.902, 0.914, 0.896, 0.904, 0.884, 0.902]
B = [0.908, 0.914, 0.882, 0.920, 0.898, 0.914, 0.915]
TEN: dict[str, Any] = {"rel": 1e-10, "abs": 1e-12}
# Two sides, to ten digits


def drawn(case: int) -> tuple[list[float], list[float]]:
    random = np.random.default_rng(case)
    count = (3, 4, 5, 8, 10, 17)[case % 6]
    shared = random.normal(size=count)
    first = 0.9 + 0.01 * (shared + random.normal(0.4, 1, count))
    return list(first), list(0.9 + 0.01 * (shared + random.normal(0, 2, count)))


@pytest.mark.parametrize("case", range(6))
def test_ten_digits_of_the_paired_t(case: int) -> None:
    first, second = drawn(case)
    found, expected = compare_means(first, second, paired=True), stats.ttest_rel(first, second)
    assert found.p == pytest.approx(expected.pvalue, **TEN)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), **TEN)
    assert found.differences == pytest.approx(np.subtract(first, second), **TEN)
    for side, mean, sd in (
        (first, found.mean_first, found.sd_first),
        (second, found.mean_second, found.sd_second),
    ):
        assert (mean, sd) == pytest.approx((np.mean(side), np.std(side, ddof=1)), **TEN)
    margin = (0.002, 0.01, 0.05)[case % 3]
    p = ttost_paired(np.array(first), np.array(second), -margin, margin)[0]
    assert equivalence(found, margin) == pytest.approx(p, **TEN)
    # The difference over the root mean square of both deviations, corrected for n - 1.
    n = len(first)
    spread = math.sqrt((np.var(first, ddof=1) + np.var(second, ddof=1)) / 2)
    g = (np.mean(first) - np.mean(second)) / spread * (1 - 3 / (4 * (n - 1) - 1))
    assert found.hedges_g == pytest.approx(g, **TEN)
    assert (found.test, found.count_first, found.count_second) == ("paired t", n, n)


@pytest.mark.parametrize("case", range(6))
def test_ten_digits_of_welch_from_values_and_from_summaries(case: int) -> None:
    first, second = drawn(case)
    alike = compare_means(first, second, paired=False).hedges_g
    second = second[: max(3, len(second) - 2)]
    found = compare_means(first, second, paired=False)
    expected = stats.ttest_ind(first, second, equal_var=False)
    assert found.p == pytest.approx(expected.pvalue, **TEN)
    interval = expected.confidence_interval()
    ends = pytest.approx((interval.low, interval.high), **TEN)
    assert (found.low, found.high) == ends
    assert (found.test, found.differences) == ("Welch", ())
    margin = (0.002, 0.01, 0.05)[case % 3]
    p = ttost_ind(first, second, -margin, margin, usevar="unequal")[0]
    assert equivalence(found, margin) == pytest.approx(p, **TEN)
    printed = welch(
        *(Summary(float(np.mean(v)), float(np.std(v, ddof=1)), len(v)) for v in (first, second))
    )
    assert (printed.t, printed.freedom, printed.p) == pytest.approx(
        (expected.statistic, expected.df, expected.pvalue), **TEN
    )
    assert (printed.low, printed.high) == ends
    first, second = drawn(case)
    moments = [f(v) for v in (first, second) for f in (np.mean, lambda v: np.std(v, ddof=1), len)]
    assert alike == pytest.approx(effectsize_smd(*moments)[0], **TEN)


def test_no_spread_and_single_values() -> None:
    same = compare_means([0.5, 0.7], [0.5, 0.7], paired=True)
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
    assert (same.hedges_g, same.detectable, same.sign_flip_p) == (0, 0, 1)
    apart = compare_means([0.5, 0.75, 1.0], [0.25, 0.5, 0.75], paired=True)
    assert (apart.low, apart.high, apart.p) == (0.25, 0.25, 0.0)
    assert apart.sign_flip_p == 0.25
    two = compare_means([0.5, 0.7], [0.6, 0.9], paired=True)
    assert math.isnan(two.hedges_g), "its correction would make zero of any difference"
    single = compare_means([0.5], [0.25], paired=True)
    assert single.difference == 0.25
    assert all(math.isnan(v) for v in (single.low, single.p, single.hedges_g, single.detectable))
    assert math.isnan(single.detectable_among(3))
    both = compare_means([0.5] * 3, [0.25] * 3, paired=False)
    assert (both.low, both.high, both.p, both.detectable) == (0.25, 0.25, 0.0, 0.0)
    assert math.isnan(both.hedges_g)
    assert both.sign_flip_p == 2 / 20


def test_binary_fractions_are_no_difference() -> None:
    # 0.1 + 0.2 is 0.30000000000000004: the same accuracy, added up in another order.
    for paired in (True, False):
        same = compare_means([0.1 + 0.2] * 5, [0.3] * 5, paired=paired)
        assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
        assert same.sign_flip_p == 1
        assert accuracy_verdict(same, True, None) == "undecided"
    steady = compare_means(
        [0.92, 0.93, 0.94, 0.95, 0.97], [0.9, 0.91, 0.92, 0.93, 0.95], paired=True
    )
    assert steady.low == steady.high == pytest.approx(0.02)
    assert (steady.p, steady.detectable, steady.sign_flip_p) == (0, 0, 2 / 32)


def test_a_small_difference_is_still_one() -> None:
    # Far below what a metric prints, far above the rounding of its arithmetic.
    found = compare_means([0.9 + k * 1e-9 for k in (1, 2, 3)], [0.9] * 3, paired=True)
    assert found.difference == pytest.approx(2e-9, rel=1e-6)
    assert found.p == pytest.approx(stats.ttest_1samp([1, 2, 3], 0).pvalue, rel=1e-5)


# Exact tests


def brute_sign_flip(differences: list[float]) -> float:
    """Every sign pattern written out."""
    size = abs(sum(differences))
    patterns = list(itertools.product((1, -1), repeat=len(differences)))
    sums = [abs(sum(s * d for s, d in zip(p, differences, strict=True))) for p in patterns]
    return sum(v >= size - 1e-9 for v in sums) / len(patterns)


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_sign_flip_by_enumeration(count: int) -> None:
    found = compare_means(A[:count], B[:count], paired=True)
    expected = brute_sign_flip([a - b for a, b in zip(A[:count], B[:count], strict=True)])
    assert found.sign_flip_p == pytest.approx(expected)


def test_sign_flip_counts_the_pattern_observed() -> None:
    # All of one sign: only it and its opposite are as far out.
    assert compare_means([1, 2, 3, 4, 5], [0, 0, 0, 0, 0], paired=True).sign_flip_p == 2 / 32
    count = 20  # the most that is enumerated
    most = compare_means(list(np.arange(1.0, count + 1)), [0.0] * count, paired=True)
    assert most.sign_flip_p == 2 / 2**count
    many = compare_means(list(np.arange(21.0)), [0.0] * 21, paired=True)
    assert math.isnan(many.sign_flip_p)


def test_permutation_of_unpaired_values() -> None:
    first, second = A[:4], [0.89, 0.9, 0.93]
    together, observed = [*first, *second], abs(np.mean(first) - np.mean(second))
    hits = 0
    for labels in itertools.product((True, False), repeat=7):
        if sum(labels) == 4:
            one = [v for v, mine in zip(together, labels, strict=True) if mine]
            other = [v for v, mine in zip(together, labels, strict=True) if not mine]
            hits += abs(np.mean(one) - np.mean(other)) >= observed - 1e-12
    found = compare_means(first, second, paired=False).sign_flip_p
    assert found == pytest.approx(hits / 35)
    assert 2 / 35 < found < 1
    far = compare_means([1, 2, 3], [11, 12, 13], paired=False)
    assert far.sign_flip_p == pytest.approx(2 / 20)
    low, high = list(np.arange(10.0)), list(np.arange(20.0, 31.0))
    most = compare_means(low, high[:10], paired=False)
    assert most.sign_flip_p == pytest.approx(2 / 184_756)
    assert math.isnan(compare_means(low, high, paired=False).sign_flip_p)  # 352,716 splits


def test_sign_test_by_hand() -> None:
    assert sign_test([1, 2, 3, -1, 0]) == pytest.approx(2 * (1 + 4) / 16)
    assert sign_test([0.0, 0.0]) == 1.0
    assert sign_test([1.0] * 6) == pytest.approx(2 / 64)


# Power


@pytest.mark.parametrize("count", [5, 30])
def test_detectable_effect_agrees_with_statsmodels(count: int) -> None:
    random = np.random.default_rng(count)
    first, second = list(random.normal(size=count)), list(random.normal(size=count))
    found = compare_means(first, second, paired=True)
    d = TTestPower().solve_power(nobs=count, alpha=0.05, power=0.8)
    assert found.detectable == pytest.approx(d * np.std(found.differences, ddof=1), rel=1e-4)
    # Its search gives up at such levels, its power does not.
    d = found.detectable_among(35) / np.std(found.differences, ddof=1)
    assert TTestPower().power(d, count, 0.05 / 35) == pytest.approx(0.8, abs=1e-4)
    assert found.detectable_among(1) == found.detectable
    equal = [v + 3 for v in first]  # equal variances: Welch has 2 n - 2 degrees of freedom
    free = compare_means(first, equal, paired=False)
    d = TTestIndPower().solve_power(nobs1=count, alpha=0.05, power=0.8)
    assert free.detectable == pytest.approx(d * np.std(first, ddof=1), rel=1e-4)


def test_a_detectable_effect_is_found_four_times_in_five() -> None:
    random = np.random.default_rng(2)
    # Welch, unequal deviations and counts: samples whose own deviations are exactly 1 and 3.
    first, second = stats.zscore(range(6), ddof=1), 3 * stats.zscore(range(9), ddof=1)
    effect = compare_means(list(first), list(second), paired=False).detectable
    draws = random.normal(effect, 1, (100_000, 6)), random.normal(0, 3, (100_000, 9))
    p = stats.ttest_ind(*draws, axis=1, equal_var=False).pvalue
    assert np.mean(p < 0.05) == pytest.approx(0.8, abs=0.01)


def test_power_has_a_value_everywhere() -> None:
    for count in (2, 3, 1000, 100_000, 3_000_000):
        for shift in (0.0, 0.5, 2.8, 6.0, 40.0):
            found = power_of(shift / math.sqrt(count), 1.0, count)
            assert 0.0499 < found <= 1.0
            if count > 1000:  # as good as normal
                normal = stats.norm.sf(1.96 - shift) + stats.norm.cdf(-1.96 - shift)
                assert found == pytest.approx(normal, abs=2e-3)
    assert power_of(1.0, 1.0, 10) > power_of(1.0, 1.0, 9)
    assert power_of(1e20, 1.0, 2) == power_of(1e300, 1.0, 9) == 1
    # A small alpha is not rounded away.
    assert power_of(20.0, 1.0, 9, alpha=1e-18) > 0


def test_replicates_needed_are_the_fewest() -> None:
    for effect, sd in ((0.5, 0.8), (1.0, 0.8), (5.0, 0.8), (0.2, 1.0)):
        count = replicates_needed(effect, sd)
        assert power_of(effect, sd, count) >= 0.8
        assert count == 2 or power_of(effect, sd, count - 1) < 0.8
    counts = [replicates_needed(0.5, 0.8, alpha=0.05 / k) for k in (1, 2, 7, 50)]
    assert counts == sorted(set(counts)), "more comparisons need more pairs"
    for paired in (True, False):
        effect = difference_found(0.8, 10, 0.9, paired, 0.01)
        assert power_of(effect, 0.8, 10, paired, 0.01) == pytest.approx(0.9)


def test_spread_agrees_with_scipy() -> None:
    first, second = drawn(4)
    found = paired_spread(first, second)
    differences = np.subtract(first, second)
    assert found.sd.value == pytest.approx(np.std(differences, ddof=1), **TEN)
    n = len(first)
    ends = [math.sqrt((n - 1) / stats.chi2.ppf(q, n - 1)) for q in (0.975, 0.025)]
    sd = float(np.std(differences, ddof=1))
    assert (found.sd.low, found.sd.high) == pytest.approx((sd * ends[0], sd * ends[1]), **TEN)
    expected = stats.pearsonr(first, second)
    assert found.correlation.value == pytest.approx(expected.statistic, **TEN)
    interval = expected.confidence_interval()
    assert (found.correlation.low, found.correlation.high) == pytest.approx(
        (interval.low, interval.high), **TEN
    )
    few = paired_spread(first[:3], second[:3]).correlation
    assert math.isnan(few.low)
    assert not math.isnan(few.value)
    assert math.isnan(paired_spread([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]).correlation.value)


# Equivalence and verdict


def test_equivalence_without_spread_is_no_surer_than_an_exact_test() -> None:
    """Of five pairs the 32 flips of signs: two to the fifth outcomes, of which one is as equal."""

    def p(first: list[float], second: list[float], paired: bool = True) -> float:
        return equivalence(compare_means(first, second, paired=paired), 0.1)

    five = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert p(five, five) == 1 / 32
    assert p(five[:4], five[:4]) == 1 / 16, "not significant"
    assert p([1.0] * 5, [1.0] * 5, paired=False) == 1 / 252
    assert p([1.5, 2.5], [1.0, 2.0]) == 1.0


@pytest.mark.parametrize(
    ("low", "high", "count", "higher", "equal", "expected"),
    [
        (0.1, 0.3, 5, True, None, "better"),
        (0.1, 0.3, 5, False, None, "worse"),
        (-0.3, -0.1, 5, True, None, "worse"),
        (-0.3, -0.1, 5, False, None, "better"),
        (-0.1, 0.3, 5, True, None, "undecided"),
        (-0.1, 0.3, 5, True, 0.051, "undecided"),
        (-0.1, 0.3, 5, True, 0.049, "practically equal"),
        (0.1, 0.3, 5, True, 0.049, "practically equal"),
        (0.1, 0.3, 4, True, None, "descriptive only"),
        (0.1, 0.3, 4, True, 0.001, "descriptive only"),
        (0.0, 0.3, 5, True, None, "undecided"),
    ],
)
def test_verdicts(
    low: float, high: float, count: int, higher: bool, equal: float | None, expected: str
) -> None:
    some = compare_means(A[:5], B[:5], paired=True)
    made = replace(
        some,
        low=low,
        high=high,
        difference=(low + high) / 2,
        count_first=count,
        p=0.9,
        count_second=count,
    )
    assert accuracy_verdict(made, higher, equal) == expected


@pytest.mark.parametrize("counts", [(4, 9), (9, 4)])
def test_too_few_on_one_side_are_too_few(counts: tuple[int, int]) -> None:
    first, second = [float(v) for v in range(counts[0])], [v + 50.0 for v in range(counts[1])]
    found = compare_means(first, second, paired=False)
    assert found.high < 0
    assert accuracy_verdict(found, True, None) == "descriptive only"


@pytest.mark.parametrize(("count", "expected"), [(5, "undecided"), (6, "better")])
def test_without_spread_the_sign_flip_decides(count: int, expected: str) -> None:
    # Two of 2^5 patterns are .0625, two of 2^6 are .031.
    found = compare_means([0.75] * count, [0.5] * count, paired=True)
    assert accuracy_verdict(found, True, None) == expected


def test_an_adjusted_p_decides_among_several() -> None:
    some = compare_means([1.0, 2.0, 3.0, 4.0, 5.5], [0.0, 1.5, 1.0, 3.5, 4.0], paired=True)
    assert some.low > 0
    assert judged_p(some) == some.p < 0.05
    assert accuracy_verdict(some, True, None, 0.04) == "better"
    assert accuracy_verdict(some, False, None, 0.04) == "worse"
    assert accuracy_verdict(some, True, None, 0.06) == "undecided"
    assert accuracy_verdict(some, True, 0.04, 0.06) == "practically equal"
    few = compare_means([1.0, 2.0, 3.0], [0.0, 0.9, 2.0], paired=True)
    assert judged_p(few) == 1.0
    assert accuracy_verdict(few, True, None, 0.0) == "descriptive only"
    steady = compare_means([0.75] * 6, [0.5] * 6, paired=True)
    assert (steady.p, judged_p(steady)) == (0.0, 2 / 64)


def test_holm_by_hand_and_by_statsmodels() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []
    p_values = np.random.default_rng(0).random(11) ** 3
    p_values[::3] = p_values[0]  # some alike
    expected = multipletests(p_values, method="holm")[1]
    assert holm(list(p_values)) == pytest.approx(expected, **TEN)


# Printed tables


@pytest.mark.parametrize("paired", [True, False])
def test_an_implied_interval_is_that_of_the_data(paired: bool) -> None:
    found = compare_means(A, [b + 0.01 for b in A[:3]] + B[3:], paired=paired)
    if paired:
        implied = implied_interval(found.difference, found.p, len(A), paired=True)
        assert implied == pytest.approx((found.low, found.high))
    else:
        test = stats.ttest_ind(A, B)
        implied = implied_interval(
            float(np.mean(A) - np.mean(B)), test.pvalue, len(A), paired=False
        )
        interval = test.confidence_interval()
        assert implied == pytest.approx((interval.low, interval.high))


def test_two_proportions_by_hand() -> None:
    # 60/100 v 45/100: pooled .525, z = .15 / sqrt(.525 * .475 * .02) = 2.1240.
    z = 0.15 / math.sqrt(0.525 * 0.475 * 0.02)
    assert two_proportions(0.6, 100, 0.45, 100) == pytest.approx(math.erfc(z / math.sqrt(2)))
    assert two_proportions(0.0, 10, 0.0, 20) == two_proportions(1.0, 10, 1.0, 20) == 1.0
    assert two_proportions(0.0, 100, 1.0, 100) < 1e-40


# Folds


def test_corrected_resampled_t_by_hand() -> None:
    first, second = [0.8, 0.9, 0.7, 0.8, 0.9], [0.7, 0.8, 0.7, 0.6, 0.8]
    found = compare_folds(first, second, [0, 1, 2, 3, 4], 5)
    # Differences .1, .1, 0, .2, .1: mean .1, variance .005; 1/5 + 1/4 = .45.
    error = math.sqrt(0.45 * 0.005)
    assert (found.test, found.difference) == ("corrected resampled t", pytest.approx(0.1))
    assert found.p == pytest.approx(2 * stats.t.sf(0.1 / error, 4), **TEN)
    assert found.high - found.difference == pytest.approx(stats.t.ppf(0.975, 4) * error, **TEN)
    assert equivalence(found, 0.3) == pytest.approx(stats.t.sf(0.2 / error, 4), **TEN)
    naive = compare_means(first, second, paired=True)
    assert (found.high - found.low) / (naive.high - naive.low) == pytest.approx(1.5)  # .45 / .2
    assert found.detectable > naive.detectable
    assert math.isnan(found.sign_flip_p)
    assert not math.isnan(naive.sign_flip_p)


def test_repetitions_are_averaged_inside_their_fold() -> None:
    folds = [0, 1, 2, 0, 1, 2]
    assert fold_means([2, 0, 2], [1.0, 5.0, 3.0]) == {0: 5.0, 2: 2.0}
    twice = compare_folds([1, 2, 3, 3, 2, 1], [0, 0, 1, 0, 0, 1], folds, 3)
    once = compare_folds([2, 2, 2], [0, 0, 1], [0, 1, 2], 3)
    assert twice == once
    assert twice.count_first == 3


# Several tasks


def test_friedman_agrees_with_scipy() -> None:
    random = np.random.default_rng(3)
    scores = {str(m): list(random.normal(m / 2, 1, 12)) for m in range(5)}
    found, expected = friedman(scores), stats.friedmanchisquare(*scores.values())
    assert found.statistic == pytest.approx(expected.statistic, **TEN)
    assert found.chi_squared_p == pytest.approx(expected.pvalue, **TEN)
    assert found.p == pytest.approx(expected.pvalue, abs=0.02)
    assert found.ranks["4"] == min(found.ranks.values()), "the best has the smallest rank"
    assert sum(found.ranks.values()) == pytest.approx(15)
    scaled = {m: [(t + 1) * v + 7 * t for t, v in enumerate(row)] for m, row in scores.items()}
    assert friedman(scaled).statistic == pytest.approx(found.statistic), "tasks have units"


def test_friedman_is_the_same_in_any_order_of_models_and_tasks() -> None:
    random = np.random.default_rng(5)
    # One decimal, so that some tie: tasks then have unlike sets of ranks.
    scores = {str(m): random.normal(m / 4, 1, 5).round(1).tolist() for m in range(4)}
    found = friedman(scores)
    backwards = {m: row[::-1] for m, row in reversed(scores.items())}
    assert friedman(backwards).p == found.p
    assert friedman(backwards).ranks == found.ranks


def test_friedman_by_enumeration() -> None:
    scores = {"a": [3.0, 2.0, 3.0], "b": [2.0, 3.0, 2.0], "c": [1.0, 1.0, 1.0]}
    orders = list(itertools.permutations((1, 2, 3)))
    observed = sum((s - 6) ** 2 for s in (4, 5, 9))
    spreads = [
        sum((sum(ranks) - 6) ** 2 for ranks in zip(*chosen, strict=True))
        for chosen in itertools.product(orders, repeat=3)
    ]
    exact = sum(s >= observed for s in spreads) / len(spreads)
    assert friedman(scores).p == pytest.approx(exact, abs=0.01)
    # The mean of .1 and .2 is .15, as that of .15 and .15, but for its last bit.
    mean = (0.1 + 0.2) / 2
    assert mean != 0.15
    near = friedman({"a": [mean, mean], "b": [0.15, 0.15], "c": [0.1, 0.1]})
    assert near.ranks == {"a": 1.5, "b": 1.5, "c": 3.0}
    tied = over_tasks({"x": mean}, {"x": 0.15}, {"x": "accuracy"}, {"x": True})
    assert (tied.wins, tied.losses) == (0, 0)
    assert math.isnan(tied.sign_p) or tied.sign_p == 1.0
    ties = friedman({"a": [1.0, 1.0], "b": [1.0, 1.0], "c": [1.0, 1.0]})
    assert (ties.statistic, ties.chi_squared_p, ties.p) == (0.0, 1.0, 1.0)


METRICS = {"a": "accuracy", "b": "accuracy", "c": "mse"}
HIGHER = {"a": True, "b": True, "c": False}


def test_over_tasks_only_what_has_one_unit_is_averaged() -> None:
    model, base = {"a": 0.9, "b": 0.8, "c": 1.0}, {"a": 0.8, "b": 0.6, "c": 2.0}
    found = over_tasks(model, base, METRICS, HIGHER)
    assert found.difference == compare_means([0.9, 0.8], [0.8, 0.6], paired=True)
    assert (found.wins, found.losses, found.sign_p) == (3, 0, pytest.approx(0.25))
    worse = over_tasks(base, model, METRICS, HIGHER)
    assert (worse.wins, worse.losses) == (0, 3)
    unlike = over_tasks(model, base, {"a": "x", "b": "y", "c": "z"}, HIGHER)
    assert unlike.difference is None
    assert sharing(["c", "a", "b"], METRICS) == ["a", "b"]
    assert sharing([], METRICS) == []
    unlike_order = {"a": "mse", "b": "accuracy", "c": "mse", "d": "accuracy"}
    for order in itertools.permutations("abcd"):
        assert sorted(sharing(order, unlike_order)) == ["b", "d"]


# Mistakes


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: compare_means([], [], paired=True), "expected some of each"),
        (lambda: compare_means([1], [1, 2], paired=True), "expected as many"),
        (lambda: compare_means([math.nan, 1], [1, 2], paired=True), "not finite"),
        (lambda: equivalence(compare_means(A, B, paired=True), 0), "given margin 0"),
        (lambda: equivalence(compare_means([1], [1], paired=True), 0.1), "expected two or more"),
        (lambda: holm([0.1, math.nan]), "from 0 to 1"),
        (lambda: welch(Summary(1, 1, 1), Summary(1, 1, 5)), "two or more"),
        (lambda: welch(Summary(1, 0, 5), Summary(1, 0, 5)), "expected a positive one"),
        (lambda: welch(Summary(1, -1, 5), Summary(1, 1, 5)), "none below 0"),
        (lambda: two_proportions(86.3, 9824, 85.6, 9824), "not percentages"),
        (lambda: two_proportions(0.5, 0, 0.5, 9), "positive counts"),
        (lambda: implied_interval(1, 0, 5, paired=True), "0 < p < 1"),
        (lambda: implied_interval(0, 0.5, 5, paired=True), "other than 0"),
        (lambda: power_of(1, 0, 5), "positive sd"),
        (lambda: power_of(math.nan, 1, 5), "finite effect"),
        (lambda: replicates_needed(0, 1), "expected positive numbers"),
        (lambda: compare_means(A, B, paired=False, overlap=0.1), "only for paired values"),
        (lambda: compare_means(A, B, paired=True, overlap=-1), "expected 0 or more"),
        (lambda: compare_folds([1.0], [1.0], [0], 1), "given 1 folds"),
        (lambda: friedman({"a": [1.0], "b": [2.0]}), "three models or more"),
        (lambda: friedman({"a": [1.0], "b": [2.0], "c": [3.0]}), "two or more"),
        (lambda: friedman({"a": [1, 2], "b": [1, 2], "c": [1]}), "as many blocks"),
        (lambda: over_tasks({"a": 1.0}, {"b": 1.0}, METRICS, HIGHER), "expected the same"),
        (lambda: paired_spread([1.0], [2.0]), "expected two or more"),
        (lambda: paired_spread([1.0], [2.0, 3.0]), "expected as many"),
        (lambda: sd_of_differences(1.0, 1.0), "less than 1"),
        (lambda: replicates_needed(1e-9, 1.0), "more than 10,000,000 are needed"),
        (lambda: replicates_needed(1.0, 1.0, power=0.01), "between alpha and 1"),
        (lambda: power_of(1.0, 1.0, 5, alpha=0.0), "between 0 and 1"),
    ],
)
def test_mistakes_are_told_in_one_line(call: object, says: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=says) as told:
        call()
    assert len(str(told.value).splitlines()) == 1
