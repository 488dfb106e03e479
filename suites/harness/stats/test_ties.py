"""More than two models: groups of those that can't be told apart."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from harness.stats import Ties, friedman, ties
from harness.stats.basics import signed_ranks

DEMSAR = {
    "C4.5": "7630 5990 9540 6280 8820 9360 6610 5830 7750 10000 9400 6190 9720 9570",
    "C4.5+m": "7680 5910 9710 6610 8880 9310 6680 5830 8380 10000 9620 6660 9810 9780",
    "C4.5+cf": "7710 5900 9680 6540 8860 9160 6090 5630 8660 10000 9650 6140 9751 9460",
    "C4.5+m+cf": "7980 5690 9670 6570 8980 9310 6850 6250 8750 10000 9620 6690 9750 9700",
}
"""AUC of four learners on 14 data sets (Demsar 2006, JMLR 7, Table 6), in ten-thousandths.

Of two that are printed as .975 the first is a little larger: so say the ranks beside them.
"""


def enumerated(differences: list[float]) -> float:
    """Wilcoxon's two-sided p from all signs of the ranks, one by one; zeros are left out."""
    there = np.array([v for v in differences if v], dtype=float)
    ranks = stats.rankdata(abs(there))
    sums = np.array(list(itertools.product((-1, 1), repeat=len(ranks)))) @ ranks
    return float(np.mean(abs(sums) >= abs(np.sign(there) @ ranks) - 1e-9))


def demsar() -> dict[str, list[float]]:
    return {name: [int(v) / 10_000 for v in row.split()] for name, row in DEMSAR.items()}


def test_friedman_is_that_of_demsar() -> None:
    found = friedman(demsar())
    assert [round(rank, 3) for rank in found.ranks.values()] == [3.143, 2.000, 2.893, 1.964]
    plain = 12 * 14 / 20 * (sum(r**2 for r in found.ranks.values()) - 4 * 25 / 4)
    assert plain == pytest.approx(9.28, abs=0.01), "as the paper has it: not corrected for ties"
    assert found.statistic == pytest.approx(10.2283, abs=1e-4), "corrected, as R has it"
    assert found.p == pytest.approx(found.chi_squared_p, abs=0.004)


def test_groups_of_demsar() -> None:
    values = demsar()
    found = ties(values)
    for pair in found.pairs:
        differences = np.subtract(values[pair.first], values[pair.second]).round(4)
        assert pair.p == pytest.approx(enumerated(differences.tolist())), pair
    # Of C4.5 and C4.5+m the paper rejects by the same test alone (Table 2); of six pairs only it.
    assert found.groups == (
        ("C4.5+m+cf", "C4.5+m", "C4.5+cf"),
        ("C4.5+m+cf", "C4.5+cf", "C4.5"),
    )


@pytest.mark.parametrize("count", [3, 5, 10, 18, 40])
def test_signed_ranks_without_ties_are_scipys(count: int) -> None:
    rng = np.random.default_rng(count)
    for shift in (0.0, 0.4, 2.0):
        values = (rng.normal(size=count) + shift).tolist()
        expected = stats.wilcoxon(values, method="exact").pvalue
        assert signed_ranks(values) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize(
    "values", [[1, 1, -1, 2, 2, 3], [1, -1], [0, 0, 1, 2, -3], [2, 2, 2, -1, -1, -2, 5], [4, 4, 4]]
)
def test_signed_ranks_with_ties_are_those_of_all_signs(values: list[float]) -> None:
    assert signed_ranks(values) == pytest.approx(enumerated(values))


def test_no_difference_at_all_is_none() -> None:
    assert signed_ranks([0.0] * 9) == signed_ranks([]) == 1.0


LEVELS = {"a": 3.0, "b": 2.9, "c": 0.0, "d": -0.1, "e": -4.0}


def scores(count: int, sd: float = 0.3, seed: int = 0) -> dict[str, list[float]]:
    rng = np.random.default_rng(seed)
    block = 5 * rng.normal(size=count)  # seeds, or tasks, are not equally hard
    return {
        m: (block + level + sd * rng.normal(size=count)).tolist() for m, level in LEVELS.items()
    }


def test_models_of_one_level_are_a_group() -> None:
    found = ties(scores(18))
    assert [set(group) for group in found.groups] == [{"a", "b"}, {"c", "d"}, {"e"}], "best first"
    assert found.possible
    backwards = ties({m: v[::-1] for m, v in reversed(scores(18).items())})
    assert backwards.groups == found.groups, "whatever the order"


def test_a_model_between_two_stands_in_both_groups() -> None:
    rng = np.random.default_rng(9)
    own = {m: rng.normal(size=18) for m in "abc"}
    found = ties({m: (own[m] + x).tolist() for m, x in zip("abc", (1.6, 0.8, 0.0), strict=True)})
    assert found.groups == (("a", "b"), ("b", "c"))


def test_pairs_are_adjusted_by_holm_and_not_looked_at_without_friedman() -> None:
    found = ties(scores(12, sd=2.0))
    alone = [pair.p for pair in found.pairs]
    holm = multipletests(alone, method="holm")[1]
    assert len(alone) == 10
    assert [pair.adjusted_p for pair in found.pairs] == pytest.approx(
        np.maximum(holm, found.omnibus.p), abs=1e-12
    )


def gated() -> Ties:
    """Two models that differ a little in every block, among many that are noise."""
    rng = np.random.default_rng(5)
    noise = {f"n{i}": rng.normal(size=12) for i in range(3)}
    first = rng.normal(size=12)
    return ties({k: v.tolist() for k, v in {**noise, "x": first, "y": first + 1e-3}.items()})


def test_where_friedman_finds_nothing_all_are_one_group() -> None:
    found = gated()
    pair = next(p for p in found.pairs if {p.first, p.second} == {"x", "y"})
    assert 10 * pair.p < 0.05 < found.omnibus.p, "alone the pair would be told apart"
    assert len(found.groups) == 1


@pytest.mark.parametrize(("models", "needed"), [(3, 7), (4, 8), (5, 9), (7, 10), (8, 11)])
def test_too_few_blocks_can_tell_nobody_apart(models: int, needed: int) -> None:
    def clear(blocks: int) -> Ties:
        return ties({str(m): [10.0 * m + n for n in range(blocks)] for m in range(models)})

    few, enough = clear(needed - 1), clear(needed)
    assert (few.possible, enough.possible) == (False, True)
    assert few.needed == enough.needed == needed
    assert len(few.groups) == 1
    assert len(enough.groups) == models, "as clear as can be: nobody is tied"
    least = math.comb(models, 2) / 2 ** (needed - 1)
    assert enough.least_p == pytest.approx(least) == min(p.adjusted_p for p in enough.pairs)


def test_means_that_differ_by_rounding_tie() -> None:
    found = ties({"a": [0.1 + 0.2] * 8, "b": [0.3] * 8, "c": [0.1] * 8})
    assert next(p for p in found.pairs if (p.first, p.second) == ("a", "b")).p == 1.0
    assert found.groups == (("a", "b"), ("c",))
