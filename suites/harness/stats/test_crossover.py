"""From which length on: made-up curves whose crossing is known, coverage by simulation, words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from harness.stats import Crossover, crossover, ratio_interval, verdict
from reports.core.crossovers import crossover_sentence, crossovers, short_crossover
from suites.harness.records.test_ratios import BASE, MINE, SIZE, rows_of, sweep_records

LENGTHS = (16, 64, 256, 1024)


def curve(
    ratios: Sequence[float], blocks: int, noise: float, seed: int = 0, floor: float = 1.0
) -> Crossover:
    """A sweep whose true ratios are given, with independent noise per block and length."""
    draw = np.random.default_rng(seed)
    lengths = LENGTHS[: len(ratios)]
    logs = np.log(ratios) + draw.normal(0, noise, (blocks, len(ratios)))
    return crossover(
        {n: dict(enumerate(np.exp(logs[:, i]).tolist())) for i, n in enumerate(lengths)},
        dict.fromkeys(lengths, floor),
    )


def true_crossing(ratios: Sequence[float]) -> float:
    logs = np.log(ratios)
    i = int(np.flatnonzero((logs[:-1] >= 0) & (logs[1:] < 0))[-1])
    return LENGTHS[i] * 4.0 ** (logs[i] / (logs[i] - logs[i + 1]))


def test_without_noise_the_crossing_is_exact() -> None:
    found = curve([2.0, 1.25, 0.8, 0.5], blocks=5, noise=0.0)
    assert found.answer == "from"
    assert (found.at, found.low, found.high) == pytest.approx((128, 128, 128), rel=1e-6)
    assert found.verdicts == ("slower", "slower", "faster", "faster")


@pytest.mark.parametrize(
    ("blocks", "ratios"), [(3, [1.4, 1.2, 0.8, 0.6]), (7, [1.5, 1.03, 0.97, 0.6])]
)
def test_the_interval_covers_the_crossing_as_often_as_it_says(
    blocks: int, ratios: list[float]
) -> None:
    """Of the answers that give one; a flat stretch around 1 as well, where it is wide."""
    where = true_crossing(ratios)
    found = [curve(ratios, blocks, 0.05, seed) for seed in range(150)]
    given = [f for f in found if f.answer == "from"]
    assert len(given) > 75
    hit = sum(f.low <= where <= f.high for f in given)
    assert hit >= binom.ppf(0.0005, len(given), 0.95)


def test_a_sweep_without_difference_is_seldom_given_a_crossing() -> None:
    claims = sum(curve([1.0] * 4, 3, 0.05, s).answer in ("from", "always") for s in range(300))
    # One length, the longest, must come out faster by chance: one side of 5 %.
    assert claims <= binom.ppf(0.9995, 300, 0.025)


@pytest.mark.parametrize(
    ("ratios", "answer"),
    [
        ([0.5, 0.6, 0.7, 0.6], "always"),
        ([2.0, 1.5, 1.2, 1.1], "never"),
        ([1.0, 1.0, 1.0, 1.0], "never"),
        ([2.0, 0.7, 1.3, 1.4], "dip"),
        ([0.5, 0.7, 1.3, 1.4], "dip"),
        ([2.0, 0.7, 1.3, 0.5], "from"),
    ],
)
def test_every_answer(ratios: list[float], answer: str) -> None:
    found = curve(ratios, 7, 0.01)
    assert found.answer == answer
    if answer == "from":
        assert 256 < found.low < found.at < found.high < 1024
    else:
        assert all(math.isnan(v) for v in (found.at, found.low, found.high))


def test_too_noisy_is_undecided() -> None:
    found = curve([1.3, 1.1, 0.9, 0.8], 3, 0.5)
    assert found.answer == "undecided"
    assert found.lengths_with("undecided")


def test_faster_at_the_end_and_never_shown_slower_has_no_lower_end() -> None:
    found = curve([1.0, 1.0, 1.0, 0.5], 7, 0.01)
    assert (found.answer, found.low) == ("from", 0.0)
    assert 256 < found.high < 1024


def test_the_noise_floor_widens_the_interval_and_silences_what_lies_below() -> None:
    ratios = [2.0, 1.25, 0.8, 0.5]
    sharp, blurred = (curve(ratios, 7, 0.01, floor=floor) for floor in (1.0, 1.1))
    assert blurred.low < sharp.low < 128 < sharp.high < blurred.high
    # At the floor itself: 1.25 ** -x = 1.1.
    assert blurred.low < 64 * 4 ** (math.log(1.25 / 1.1) / math.log(1.25 / 0.8)) * 1.02
    assert curve(ratios, 7, 0.01, floor=2.5).answer == "undecided"
    assert curve(ratios, 7, 0.01, floor=math.inf).answer == "undecided"


def test_one_block_decides_nothing_and_one_length_is_no_sweep() -> None:
    assert curve([2.0, 0.5], 1, 0.0).answer == "undecided"
    with pytest.raises(ValueError, match="expected a sweep"):
        crossover({64: {0: 1.0, 1: 1.0}}, {64: 1.0})


def test_a_block_that_lacks_a_length_counts_at_the_others() -> None:
    """Verdicts are those of each length by itself; between two those count that have both."""
    wide = {0: 2.6, 1: 1.1, 2: 2.0, 3: 2.0, 4: 2.0, 5: 2.0}
    ratios = {16: wide, 64: {0: 0.4, 1: 0.38}, 256: dict.fromkeys(range(6), 0.3)}
    found = crossover(ratios, dict.fromkeys(ratios, 1.0))
    each = tuple(verdict(ratio_interval([*by.values()]), 1.0) for by in ratios.values())
    assert found.verdicts == each == ("slower", "faster", "faster")
    assert verdict(ratio_interval([2.6, 1.1]), 1.0) == "undecided"
    assert found.blocks == 2
    left, right = (np.mean(np.log([*ratios[n].values()])) for n in (16, 64))
    assert found.at == pytest.approx(16 * 4 ** (left / (left - right)))
    apart = crossover({16: {0: 2.0, 1: 2.0}, 64: {2: 0.5, 3: 0.5}}, {16: 1.0, 64: 1.0})
    assert (apart.answer, apart.low, apart.high) == ("from", pytest.approx(16), pytest.approx(64))
    assert apart.at == pytest.approx(32), "no block has both"


def say(ratio_at: dict[int, float]) -> str:
    return crossover_sentence(rows_of(sweep_records(ratio_at)), MINE, BASE, SIZE)


@pytest.mark.parametrize(
    ("ratio_at", "words"),
    [
        ({16: 0.5, 64: 0.6, 256: 0.7}, "in forward faster at every length measured (N = 16 to 256"),
        ({16: 1.5, 64: 1.6, 256: 1.7}, "in forward slower at every length measured (N = 16 to 256"),
        ({16: 1.5, 64: 0.6, 256: 1.7}, "in forward faster at N = 64 only;"),
        ({16: 0.5, 64: 0.7, 256: 1.7}, "in forward faster up to, and slower from, N = "),
        ({16: 1.5, 64: 0.7, 256: 0.5}, "in forward faster from N = "),
    ],
)
def test_what_is_said(ratio_at: dict[int, float], words: str) -> None:
    assert words in say(ratio_at)


def test_every_sweep_stands_in_the_json() -> None:
    told = crossovers(rows_of(sweep_records({16: 1.5, 64: 0.7, 256: 0.5})))
    mine = [c for c in told if c["name"] == MINE]
    assert {(c["phase"], c["answer"], c["blocks"]) for c in mine} == {
        ("forward", "from", 7),
        ("training", "from", 7),
    }
    assert all(16 < c["low"] < c["at"] < c["high"] < 64 for c in mine)


def test_of_two_dtypes_that_of_the_size_is_told() -> None:
    """In bfloat16 it is faster from 16 on, in float32 from 256: a page on float32 says 256."""
    early = rows_of(sweep_records({16: 0.9, 64: 0.7, 256: 0.5, 1024: 0.4}))
    late = rows_of(sweep_records({16: 1.5, 64: 1.2, 256: 0.5}))
    other = [replace(r, columns={**r.columns, "dtype": "bf16"}) for r in early]
    for rows in ([*other, *late], [*late, *other]):
        said = crossover_sentence(rows, MINE, BASE, SIZE)
        assert "N = 16 to 1,024" not in said
        assert ", f32, " in said
        assert "in forward faster from N = 8" in said  # between 64 and 256
        mine = next(r for r in late if r.columns["name"] == MINE)
        assert short_crossover(rows, mine).startswith("from N = 8")
        theirs = next(r for r in other if r.columns["name"] == MINE)
        assert "every length" in short_crossover(rows, theirs)
    # Where only the other was measured, it is told with its name.
    assert ", bf16, " in crossover_sentence(other, MINE, BASE, SIZE)
