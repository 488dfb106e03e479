"""Metrics of sums: by hand and against the libraries, influence against a jackknife."""

from __future__ import annotations

import numpy as np
import pytest

from harness.stats import SUMMED, crossed, summed_p
from harness.stats.sums import bleu, chrf, share, span_f1

COLUMNS = max(known.last for known in SUMMED.values())


def counts(examples: int, seed: int = 0) -> np.ndarray:
    """Counts of all metrics at once that could be counted: no more right than there are."""
    draw = np.random.default_rng(seed)
    out = draw.integers(5, 15, size=(examples, COLUMNS))
    out[:, [0, 2]] = draw.integers(0, 5, size=(examples, 2))
    return out.astype(np.int32)


def test_by_hand() -> None:
    assert share(np.array([3.0, 4.0])) == 0.75
    assert np.isnan(share(np.array([0.0, 0.0]))), "a share of none is unknown"
    assert span_f1(np.array([2.0, 3.0, 5.0])) == pytest.approx(
        2 * (2 / 3 * 2 / 5) / (2 / 3 + 2 / 5)
    )
    assert span_f1(np.array([0.0, 0.0, 0.0])) == 0.0
    # Nine words for ten; matches 8 4 2 1 of 9 8 7 6.
    some = np.array([9, 10, 8, 4, 2, 1, 9, 8, 7, 6], float)
    wanted = (8 / 9 * 4 / 8 * 2 / 7 * 1 / 6) ** 0.25 * np.exp(1 - 10 / 9)
    assert bleu(some) == pytest.approx(100 * wanted)
    assert bleu(np.array([9, 10, 8, 4, 2, 0, 9, 8, 7, 6], float)) == 0.0, "no match of four words"
    # One order counts: precision 3/4, recall 3/6.
    characters = np.array([4, 6, 3, *[0] * 15], float)
    assert chrf(characters) == pytest.approx(100 * 5 * 0.75 * 0.5 / (4 * 0.75 + 0.5))


@pytest.mark.parametrize("metric", SUMMED)
def test_parts_have_the_metric_as_their_mean_and_the_spread_of_a_jackknife(metric: str) -> None:
    known, some = SUMMED[metric], counts(200)
    if metric == "bleu":  # matches of an order are no more than its n-grams
        some[:, 2:6] = np.minimum(some[:, 2:6], some[:, 6:10])
    parts = known.parts(some)
    assert parts.mean() == pytest.approx(known.value(some), rel=1e-9)
    without = np.array([known.value(np.delete(some, i, axis=0)) for i in range(len(some))])
    jackknife = known.value(some) + (len(some) - 1) * (known.value(some) - without)
    assert parts.std() == pytest.approx(jackknife.std(), rel=0.05)


@pytest.mark.parametrize("metric", ["tag_accuracy", "span_f1"])
def test_a_difference_between_examples_is_found_and_none_is_not(metric: str) -> None:
    known, first = SUMMED[metric], counts(300)
    better = first.copy()
    better[:, known.first] += 2
    assert summed_p(metric, [(better, first)])[0] < 0.01
    assert summed_p(metric, [(first, first)]) == [1.0]
    apart = [counts(300, seed)[:, :COLUMNS] for seed in range(1, 5)]
    null = summed_p(metric, list(zip(apart[::2], apart[1::2], strict=True)))
    assert all(p > 0.01 for p in null)


def test_seeds_and_sentences_are_crossed_by_their_parts() -> None:
    known = SUMMED["tag_accuracy"]
    apart = []
    for seed in range(5):
        first, second = counts(100, seed), counts(100, seed)
        second[:, 0] = np.minimum(second[:, 0] + 1, second[:, 1])
        apart.append(known.parts(second) - known.parts(first))
    found = crossed(np.array(apart))
    assert found.low > 0
    assert found.difference == pytest.approx(np.mean(apart))
