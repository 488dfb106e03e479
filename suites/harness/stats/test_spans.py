"""Spans of BIO tags: by hand, and as seqeval counts them (conlleval's rules)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from seqeval.metrics import classification_report, f1_score

from harness.stats import SUMMED
from harness.stats.spans import has_spans, spans_of

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
def test_by_hand(tags: str, spans: list[tuple[str, int, int]]) -> None:
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
