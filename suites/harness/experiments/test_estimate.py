"""What is missing to decide a comparison: by simulation, as one of several, and in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.cli.compare import as_json
from harness.experiments.conclusion import conclude
from harness.experiments.estimate import Sought
from harness.experiments.tables import columns, reading, task_rows
from suites.support.comparisons import A, B, compared, design, family, judged, run, runs

DRAWS = 40_000
BASE = np.array([0.80, 0.81, 0.79, 0.80, 0.82])


def undecided(mean: float = 0.003, sd: float = 0.01, count: int = 5) -> np.ndarray:
    """Differences with exactly this mean and deviation."""
    return mean + sd * stats.zscore(np.arange(count) ** 2, ddof=1)


def missing(gains: np.ndarray, **more: Any) -> Sought:
    found = compared(list(0.8 + gains), [0.8] * len(gains), **more)
    assert found.verdict == "undecided"
    return found.sought


def power(effect: float, sd: float, count: int, alpha: float) -> float:
    """How often a paired t-test finds it, by simulation."""
    draws = np.random.default_rng(count).normal(effect, sd, (DRAWS, count))
    return float(np.mean(stats.ttest_1samp(draws, 0, axis=1).pvalue < alpha))


@pytest.mark.parametrize("together", [1, 9])
@pytest.mark.parametrize("margin", [None, 0.012, 0.02])
def test_what_is_detectable_and_needed_is_found_four_times_in_five(
    margin: float | None, together: int
) -> None:
    """At five pairs the quantile of t is far from the normal one, at Holm's first step farther."""
    models = [A, *(f"other{i}.x" for i in range(together - 1))]
    records = [one for model in models for one in runs(model, BASE + undecided(0.007, 0.015))]
    declared = family(models, ["trec"], 5, margin=margin)
    found = conclude(declared, [*records, *runs(B, BASE)]).comparisons[0].sought
    assert (found.effect, found.is_margin) == (
        pytest.approx(0.007 if margin is None else margin),
        margin is not None,
    )
    level = 0.05 / together
    assert power(found.detectable, 0.015, 5, level) == pytest.approx(0.8, abs=0.01)
    assert power(found.effect, 0.015, found.needed, level) > 0.79
    if found.needed > 5:  # with fewer nothing is concluded
        assert power(found.effect, 0.015, found.needed - 1, level) < 0.81


def test_unpaired_seeds_are_of_each_model() -> None:
    first, second = 0.80 + undecided(0.009), 0.80 + undecided(0.0)[::-1]
    found = compared(list(first), list(second), paired=False).sought
    random = np.random.default_rng(1)
    for count, most in ((found.needed, 1.0), (found.needed - 1, 0.81)):
        draws = [random.normal(mean, 0.01, (DRAWS, count)) for mean in (0.009, 0.0)]
        share = np.mean(stats.ttest_ind(*draws, axis=1).pvalue < 0.05)
        assert (0.79 if most == 1 else 0) < share < most


def test_folds_have_the_corrected_error_and_no_number_of_seeds() -> None:
    """Folds share what they are trained on: simulated as a common part of their differences."""
    gains, of_fold = undecided(0.003, 0.01, 10), list(range(10))
    keys = [[f"{m} {fold}" for m in (A, B)] for fold in of_fold]
    declared = design(1, folds=10, units="folds", runs=keys)
    records = [
        run(model, 0, value, fold=fold, key=f"{model} {fold}")
        for model, values in ((A, 0.8 + gains), (B, [0.8] * 10))
        for fold, value in zip(of_fold, values, strict=True)
    ]
    found = judged(declared, records).sought
    assert (found.needed, found.by_folds, found.count) == (None, True, "folds are given")
    random = np.random.default_rng(3)
    common = random.normal(found.detectable, 0.01 / 3, (DRAWS, 1))  # test over training is 1 : 9
    draws = common + random.normal(0, 0.01, (DRAWS, 10))
    error = draws.std(axis=1, ddof=1) * np.sqrt(1 / 10 + 1 / 9)
    share = np.mean(np.abs(draws.mean(axis=1) / error) > stats.t.ppf(0.975, 9))
    assert share == pytest.approx(0.8, abs=0.01)


def test_what_no_number_of_seeds_would_find_says_so() -> None:
    zero = missing(undecided(0.0))
    assert (zero.needed, zero.count) == (None, "no number")
    assert compared([0.9] * 5, [0.9] * 5).sought == Sought(0.0, 0.0, False, None, False)
    far = missing(undecided(1e-9))
    assert far.needed is None


def test_it_stands_beside_every_undecided_verdict_and_nowhere_else() -> None:
    alone = conclude(design(), [*runs(A, BASE + undecided()), *runs(B, BASE)])
    (found,) = alone.comparisons
    sentence, said = alone.sentences
    assert ": undecided: " in sentence
    assert said == (
        f"undecided: with 80 % power a true difference of {100 * found.sought.detectable:.2f} "
        "points is found here; a true difference as large as the one seen, 0.30 points, takes "
        f"{found.sought.needed} seeds"
    )
    by_margin = conclude(design(margin=0.005), [*runs(A, BASE + undecided()), *runs(B, BASE)])
    assert "; the margin, 0.50 points, takes " in by_margin.sentences[1]
    better = conclude(design(), [*runs(A, BASE + 0.1 + undecided()), *runs(B, BASE)])
    assert (better.comparisons[0].sought, len(better.sentences)) == (None, 1)
    several = family([A, "disa.x"], ["trec"], 5)
    records = [*runs(A, BASE + undecided()), *runs("disa.x", BASE + 0.1 + undecided())]
    many = conclude(several, [*records, *runs(B, BASE)])
    one, _ = many.comparisons
    assert f"1 undecided ({one.sought.needed:,} seeds needed), 1 better" in many.sentences[0]
    place = columns(many.comparisons).index("seeds needed")
    assert [row[place] for row in task_rows(many.comparisons)] == ["", one.sought.count, ""]
    assert any(line.startswith("seeds needed: ") for line in reading(many))
    for told in (as_json(alone), as_json(many)["comparisons"][0]):
        assert told["sought"].keys() >= {"detectable", "effect", "is_margin", "needed"}
