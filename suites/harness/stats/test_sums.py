"""Metrics of sums and spans: by hand, as seqeval counts; influence against a jackknife."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sacrebleu.significance import PairedTest
from seqeval.metrics import classification_report, f1_score

from harness.stats import SUMMED, crossed, summed_p
from harness.stats.crossed import resamples
from harness.stats.sums import bleu, chrf, has_spans, share, span_f1, spans_of
from harness.train.kinds.translation import BLEU_SCORE, CHRF_SCORE
from harness.train.kinds.translation import counts as counts_of

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


def test_the_bootstrap_of_translations_draws_what_sacrebleus_draws() -> None:
    """Theirs takes absolute values before it centres: on our draws that gives their p."""
    draw = np.random.default_rng(3)
    references = [" ".join(draw.choice(list("abcdefgh"), 12)) for _ in range(200)]
    said = [
        [" ".join("x" if draw.random() < share else w for w in one.split()) for one in references]
        for share in (0.20, 0.215)
    ]
    tables = [
        np.array([counts_of(*pair) for pair in zip(side, references, strict=True)]) for side in said
    ]
    systems: list[tuple[str, Sequence[str]]] = [("baseline", said[1]), ("system", said[0])]
    for metric, name, score in (("bleu", "BLEU", BLEU_SCORE), ("chrf", "chrF2", CHRF_SCORE)):
        test = PairedTest(systems, {"": score}, [references], test_type="bs", n_samples=4000)
        found: Any = test()[1][name][1]
        theirs = float(found.p_value)
        known = SUMMED[metric]
        own = [table[:, known.first : known.last].astype(float) for table in tables]
        drawn = np.abs(known.of(resamples(200) @ own[0]) - known.of(resamples(200) @ own[1]))
        seen = abs(known.value(tables[0]) - known.value(tables[1]))
        like_theirs = float(np.mean(drawn - drawn.mean() > seen))
        error = np.sqrt(theirs * (1 - theirs) * (1 / 4000 + 1 / len(drawn)))
        assert like_theirs == pytest.approx(theirs, abs=4 * error)
        assert summed_p(metric, [(tables[0], tables[1])])[0] > theirs > 0.02


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


NAMES = ("O", "B-a", "I-a", "B-b", "I-b", "B-c-d", "I-c-d")


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("", []),
        ("O O", []),
        ("B-a I-a O B-a", [("a", 0, 2), ("a", 3, 4)]),
        ("B-a B-a", [("a", 0, 1), ("a", 1, 2)]),
        ("B-a I-b I-b", [("a", 0, 1), ("b", 1, 3)]),
        ("O I-c-d I-c-d", [("c-d", 1, 3)]),
        ("I-a B-a I-a", [("a", 0, 1), ("a", 1, 3)]),
    ],
)
def test_spans_by_hand(tags: str, spans: list[tuple[str, int, int]]) -> None:
    assert sorted(spans_of(tags.split()), key=lambda span: span[1]) == spans


def test_counts_are_those_of_seqeval_for_all_types_and_each() -> None:
    draw = np.random.default_rng(0)
    truth, said = ([[NAMES[i] for i in draw.integers(0, 7, n)] for n in range(1, 80)] for _ in "ts")
    # Most words are right, so that there are spans in common.
    said = [
        [b if draw.random() < 0.4 else a for a, b in zip(*both, strict=True)]
        for both in zip(truth, said, strict=True)
    ]
    pairs = [(spans_of(a), spans_of(b)) for a, b in zip(truth, said, strict=True)]
    counts = np.array([[len(a & b), len(b), len(a)] for a, b in pairs])
    padded = np.pad(counts, ((0, 0), (SUMMED["span_f1"].first, 0)))
    assert counts[:, 0].sum() > 50
    assert SUMMED["span_f1"].value(padded) == pytest.approx(f1_score(truth, said), abs=1e-12)
    report = classification_report(truth, said, output_dict=True)
    for kind in ("a", "b", "c-d"):
        own = Counter(
            where
            for a, b in pairs
            for where, some in (("right", a & b), ("said", b), ("true", a))
            for span in some
            if span[0] == kind
        )
        assert own["true"] == report[kind]["support"]
        assert own["right"] / own["said"] == pytest.approx(report[kind]["precision"], abs=1e-12)
        assert own["right"] / own["true"] == pytest.approx(report[kind]["recall"], abs=1e-12)


def test_names_of_tags_say_whether_there_are_spans() -> None:
    assert has_spans(NAMES)
    assert not has_spans(("ADJ", "X", "O"))
