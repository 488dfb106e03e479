"""Statistics over replicates, against enumeration, simulation, scipy and printed tables."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestIndPower, TTestPower

from harness.stats import (
    MeanDifference,
    Summary,
    accuracy_verdict,
    compare_means,
    equivalence,
    holm,
    implied_interval,
    pairs_needed,
    power_of,
    two_proportions,
    welch,
)

A = [0.890, 0.902, 0.914, 0.896, 0.904, 0.884, 0.902]
B = [0.908, 0.914, 0.882, 0.920, 0.898, 0.914, 0.915]
values = st.lists(
    st.tuples(st.floats(-100, 100), st.floats(-100, 100)), min_size=3, max_size=8
).filter(lambda p: np.std([a - b for a, b in p]) > 1e-3)


# Paired and Welch


def test_paired_t_by_hand() -> None:
    first, second = [3.0, 5.0, 4.0], [1.0, 4.0, 1.0]
    found = compare_means(first, second, paired=True)
    # Differences 2, 1, 3: mean 2, sd 1, error 1/sqrt(3); t(2) at 97.5 % is 4.30265273.
    assert found.differences == (2.0, 1.0, 3.0)
    assert found.difference == pytest.approx(2.0)
    assert found.high - found.low == pytest.approx(2 * 4.302652730 / math.sqrt(3))
    assert (found.mean_first, found.sd_first) == (4.0, pytest.approx(1.0))
    assert found.sd_second == pytest.approx(math.sqrt(3))
    # Both deviations: 1 and sqrt(3), root mean square sqrt(2); J(2) = 1 - 3/7.
    assert found.hedges_g == pytest.approx(2 / math.sqrt(2) * (4 / 7))
    assert (found.test, found.count_first, found.count_second) == ("paired t", 3, 3)


def test_paired_and_welch_agree_with_scipy() -> None:
    paired, free = (compare_means(A, B, paired=p) for p in (True, False))
    expected = stats.ttest_rel(A, B)
    assert paired.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval()
    assert (paired.low, paired.high) == pytest.approx((interval.low, interval.high))
    expected = stats.ttest_ind(A, B[:5], equal_var=False)
    free = compare_means(A, B[:5], paired=False)
    assert free.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval()
    assert (free.low, free.high) == pytest.approx((interval.low, interval.high))
    assert free.differences == ()
    pooled = math.sqrt((np.var(A, ddof=1) + np.var(B[:5], ddof=1)) / 2)
    assert free.hedges_g == pytest.approx((np.mean(A) - np.mean(B[:5])) / pooled * (1 - 3 / 39))


@given(values, st.floats(-50, 50), st.floats(0.1, 10))
@settings(max_examples=60, deadline=None)
def test_swap_shift_and_scale(pairs: list, shift: float, scale: float) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    found = compare_means(first, second, paired=True)
    swapped = compare_means(second, first, paired=True)
    assert swapped.difference == pytest.approx(-found.difference, abs=1e-9)
    assert (swapped.low, swapped.high) == pytest.approx((-found.high, -found.low), abs=1e-9)
    assert swapped.p == pytest.approx(found.p)
    assert swapped.sign_flip_p == found.sign_flip_p
    moved = compare_means(
        [scale * a + shift for a in first], [scale * b + shift for b in second], paired=True
    )
    assert moved.difference == pytest.approx(scale * found.difference, abs=1e-6)
    assert moved.detectable == pytest.approx(scale * found.detectable, rel=1e-5)
    assert moved.p == pytest.approx(found.p, abs=1e-6)
    assert moved.hedges_g == pytest.approx(found.hedges_g, abs=1e-5)


def test_no_spread_and_single_values() -> None:
    same = compare_means([0.5, 0.7], [0.5, 0.7], paired=True)
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
    assert (same.hedges_g, same.detectable, same.sign_flip_p) == (0, 0, 1)
    apart = compare_means([0.5, 0.75, 1.0], [0.25, 0.5, 0.75], paired=True)
    assert (apart.low, apart.high, apart.p) == (0.25, 0.25, 0.0)
    assert apart.sign_flip_p == 0.25
    single = compare_means([0.5], [0.25], paired=True)
    assert single.difference == 0.25
    assert all(math.isnan(v) for v in (single.low, single.p, single.hedges_g, single.detectable))


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


def test_no_spread_on_both_unpaired_sides() -> None:
    apart = compare_means([0.5] * 3, [0.25] * 3, paired=False)
    assert (apart.low, apart.high, apart.p, apart.detectable) == (0.25, 0.25, 0.0, 0.0)
    assert math.isnan(apart.hedges_g)
    assert apart.sign_flip_p == 2 / 20


def test_intervals_cover_as_often_as_they_say() -> None:
    random = np.random.default_rng(4)
    for paired in (True, False):
        hits = 0
        for _ in range(2000):
            first, second = random.normal(1.0, 1, 5), random.normal(0.3, 2, 5)
            found = compare_means(list(first), list(second), paired=paired)
            hits += found.low <= 0.7 <= found.high
        assert 0.935 < hits / 2000 < 0.975


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


# Power


@pytest.mark.parametrize("count", [5, 10, 30])
def test_detectable_effect_agrees_with_statsmodels(count: int) -> None:
    random = np.random.default_rng(count)
    first, second = list(random.normal(size=count)), list(random.normal(size=count))
    found = compare_means(first, second, paired=True)
    d = TTestPower().solve_power(nobs=count, alpha=0.05, power=0.8)
    assert found.detectable == pytest.approx(d * np.std(found.differences, ddof=1), rel=1e-4)
    equal = [v + 3 for v in first]  # equal variances: Welch has 2 n - 2 degrees of freedom
    free = compare_means(first, equal, paired=False)
    d = TTestIndPower().solve_power(nobs1=count, alpha=0.05, power=0.8)
    assert free.detectable == pytest.approx(d * np.std(first, ddof=1), rel=1e-4)


@pytest.mark.parametrize(("effect", "count"), [(10.0, 2), (3.0, 3), (1.6, 5), (0.5, 30), (0.0, 6)])
def test_power_by_simulation(effect: float, count: int) -> None:
    draws = np.random.default_rng(0).normal(effect, 2.0, (100_000, count))
    found = np.mean(stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05)
    assert power_of(effect, 2.0, count) == pytest.approx(found, abs=0.005)


def test_unpaired_power_by_simulation() -> None:
    random = np.random.default_rng(1)
    first, second = random.normal(2.4, 2.0, (100_000, 8)), random.normal(0, 2.0, (100_000, 8))
    found = np.mean(stats.ttest_ind(first, second, axis=1).pvalue < 0.05)
    assert power_of(2.4, 2.0, 8, paired=False) == pytest.approx(found, abs=0.005)


def test_a_detectable_effect_is_found_four_times_in_five() -> None:
    random = np.random.default_rng(2)
    # Welch, unequal deviations and counts: samples whose own deviations are exactly 1 and 3.
    first, second = stats.zscore(range(6), ddof=1), 3 * stats.zscore(range(9), ddof=1)
    effect = compare_means(list(first), list(second), paired=False).detectable
    draws = random.normal(effect, 1, (100_000, 6)), random.normal(0, 3, (100_000, 9))
    p = stats.ttest_ind(*draws, axis=1, equal_var=False).pvalue
    assert np.mean(p < 0.05) == pytest.approx(0.8, abs=0.01)


def test_pairs_needed_is_the_fewest() -> None:
    for effect, sd in ((0.5, 0.8), (1.0, 0.8), (5.0, 0.8), (0.2, 1.0)):
        count = pairs_needed(effect, sd)
        assert power_of(effect, sd, count) >= 0.8
        assert count == 2 or power_of(effect, sd, count - 1) < 0.8
    exact = TTestPower().solve_power(effect_size=0.5 / 0.8, alpha=0.05, power=0.8)
    assert pairs_needed(0.5, 0.8) == math.ceil(exact) == 23


# Equivalence and verdict


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("margin", [0.001, 0.02, 0.05])
def test_equivalence_is_two_one_sided_tests(paired: bool, margin: float) -> None:
    first, second = np.array(A), np.array(B)
    if paired:
        low = stats.ttest_rel(first + margin, second, alternative="greater").pvalue
        high = stats.ttest_rel(first - margin, second, alternative="less").pvalue
    else:
        low = stats.ttest_ind(first + margin, second, equal_var=False, alternative="greater").pvalue
        high = stats.ttest_ind(first - margin, second, equal_var=False, alternative="less").pvalue
    assert equivalence(A, B, margin, paired=paired) == pytest.approx(max(low, high))


def test_equivalence_without_spread() -> None:
    assert equivalence([1.0, 2.0], [1.0, 2.0], 0.1, paired=True) == 0.0
    assert equivalence([1.5, 2.5], [1.0, 2.0], 0.1, paired=True) == 1.0


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
        some, low=low, high=high, difference=(low + high) / 2, count_first=count, p=0.9,
        count_second=count,
    )  # fmt: skip
    assert accuracy_verdict(made, higher, equal) == expected
    assert isinstance(made, MeanDifference)


@pytest.mark.parametrize("counts", [(4, 9), (9, 4)])
def test_too_few_on_one_side_are_too_few(counts: tuple[int, int]) -> None:
    first, second = [float(v) for v in range(counts[0])], [v + 50.0 for v in range(counts[1])]
    found = compare_means(first, second, paired=False)
    assert found.high < 0
    assert accuracy_verdict(found, True, None) == "descriptive only"


# Printed tables


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_welch_from_summaries_agrees_with_the_values() -> None:
    first = Summary(float(np.mean(A)), float(np.std(A, ddof=1)), len(A))
    second = Summary(float(np.mean(B[:5])), float(np.std(B[:5], ddof=1)), 5)
    found, expected = welch(first, second), stats.ttest_ind(A, B[:5], equal_var=False)
    assert (found.t, found.freedom, found.p) == pytest.approx(
        (expected.statistic, expected.df, expected.pvalue)
    )
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        pytest.param(Summary(84.9, 2.4, 10), Summary(84.8, 0.9, 10), 0.90, id="CR-BiBloSA"),
        pytest.param(Summary(90.5, 0.6, 10), Summary(90.4, 0.8, 10), 0.76, id="MPQA-BiBloSA"),
        pytest.param(Summary(95.3, 0.3, 5), Summary(94.8, 0.2, 5), 0.017, id="TREC-BiBloSA"),
        pytest.param(Summary(51.3, 0.7, 5), Summary(51.0, 0.7, 5), 0.52, id="SST5-DiSA"),
        pytest.param(Summary(84.9, 2.4, 10), Summary(82.6, 1.9, 10), 0.029, id="CR-multihead"),
        pytest.param(Summary(90.5, 0.6, 10), Summary(89.8, 1.2, 10), 0.12, id="MPQA-multihead"),
        pytest.param(Summary(94.5, 0.6, 10), Summary(94.0, 0.8, 10), 0.13, id="SUBJ-multihead"),
        pytest.param(Summary(51.3, 0.7, 5), Summary(48.2, 0.6, 5), 8e-5, id="SST5-multihead"),
    ],
)
def test_mtsas_table_5(first: Summary, second: Summary, p: float) -> None:
    assert welch(first, second).p == pytest.approx(p, rel=0.05)


@pytest.mark.parametrize(
    ("difference", "p", "count", "expected"),
    [
        (0.45, 0.001, 5, (0.305, 0.595)),
        (0.45, 0.001, 6, (0.282, 0.618)),
        (0.23, 0.080, 3, (-0.068, 0.528)),
    ],
)
def test_mtsas_table_6(difference: float, p: float, count: int, expected: tuple) -> None:
    assert implied_interval(difference, p, count, paired=True) == pytest.approx(expected, abs=5e-4)


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


# Mistakes


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: compare_means([], [], paired=True), "expected some of each"),
        (lambda: compare_means([1], [1, 2], paired=True), "expected as many"),
        (lambda: compare_means([math.nan, 1], [1, 2], paired=True), "not finite"),
        (lambda: equivalence(A, B, 0, paired=True), "given margin 0"),
        (lambda: equivalence([1], [1], 0.1, paired=True), "expected two or more"),
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
        (lambda: pairs_needed(0, 1), "expected positive numbers"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(call: object, says: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=says) as told:
        call()
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize(("count", "expected"), [(5, "undecided"), (6, "better")])
def test_without_spread_the_sign_flip_decides(count: int, expected: str) -> None:
    # Two of 2^5 patterns are .0625, two of 2^6 are .031.
    found = compare_means([0.75] * count, [0.5] * count, paired=True)
    assert accuracy_verdict(found, True, None) == expected
