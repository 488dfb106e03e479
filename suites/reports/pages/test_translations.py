"""The page's part of translation: parts of BLEU, costs, translations side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.records.predictions import Predictions
from harness.train.data.directory import VARIABLE
from harness.train.kinds.translation import counts
from harness.train.task import task
from reports.core.page import Output
from reports.pages.comparison.disagreement import show
from reports.pages.comparison.translations import (
    apart,
    are_translated,
    sentences_a_second,
    training_seconds,
)
from suites.reports.conftest import arm, of_five_seeds, told
from suites.support.comparisons import A, B
from suites.support.made_up_data import write_table

TRUE = ("ein mann sieht einen hund", "zwei frauen laufen im park", "ein rotes haus")
GOOD = ("ein mann sieht einen hund", "zwei frauen laufen durch den park", "ein haus")
POOR = ("ein hund", "zwei frauen laufen durch den park", "ein rotes haus mit tür")
SOURCES = ("a man sees a dog", "two women run in the park", "a red house")


def said(texts: tuple[str, ...]) -> Predictions:
    nothing, encoded = np.empty(0, np.uint8), [text.encode() for text in texts]
    return Predictions(
        items=np.arange(3, dtype=np.int32),
        seen=np.zeros(3, bool),
        truth=nothing,
        said=np.frombuffer(b"".join(encoded), np.uint8),
        confidence=nothing,
        errors=nothing,
        lengths=np.array([len(text) for text in encoded], np.uint32),
        counts=np.array([counts(*both) for both in zip(texts, TRUE, strict=True)], np.int32),
    )


def say(found: Mapping[str, Any]) -> Predictions:
    """The first model the better translations."""
    return said(GOOD if found["model"] == A else POOR)


def test_sentences_are_ranked_by_how_far_apart_they_are() -> None:
    found = apart(arm(said(GOOD), said(POOR), said(GOOD)), arm(*[said(POOR)] * 3, model=B))
    assert [one.item for one in found] == [0, 2, 1]
    assert found[0].ahead > 30
    assert found[1].ahead < 0
    assert (found[0].first, found[0].second) == (GOOD[0], POOR[0])
    assert (found[1].first, found[1].second) == (GOOD[2], POOR[2]), "of the runs that differ"
    assert (found[2].ahead, found[2].first) == (0, found[2].second)


def test_what_is_no_translation_is_not_taken_for_one() -> None:
    one = said(GOOD)
    assert are_translated([arm(one)])
    nothing = np.empty(0, np.uint8)
    for other in (
        replace(one, truth=one.said),
        replace(one, counts=one.counts[:, :7]),
        replace(one, counts=nothing),
        replace(one, lengths=nothing.astype(np.uint32)),
        replace(one, said=one.said.astype(np.float16)),
    ):
        assert not are_translated([arm(one), arm(other)])


def test_speeds_are_medians_and_unknown_where_none_is_told() -> None:
    epochs = [{"epoch": i, "seconds": 10.0 + i, "judging": 2.0} for i in (1, 2, 3)]
    fast = {"epochs": epochs, "decoding": {"sentences": 200, "seconds": 4.0}}
    assert (training_seconds(fast), sentences_a_second(fast)) == (10.0, 50.0)
    untimed: dict[str, Any] = {"epochs": [{"epoch": 1, "seconds": 3.0}]}
    empty: dict[str, Any] = {"epochs": [], "decoding": {}}
    assert np.isnan([training_seconds(untimed, empty), sentences_a_second(untimed, empty)]).all()


def test_the_page_shows_translations_with_their_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = told(say)
    compared = of_five_seeds("multi30k", "bleu", 30.0, 2)
    output = Output(tmp_path / "out", "page")
    rows = list(zip(SOURCES, TRUE, strict=True))
    path = tmp_path / f"{task('multi30k').files[2]}.gz"
    write_table(path, ("en_tok", "de_tok"), rows)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    page = show(output, [compared], "", device).plain
    assert "2 of 3 test sentences are translated differently" in page
    for text in (SOURCES[0], TRUE[2], GOOD[0], POOR[2]):
        assert text in page
    write_table(path, ("en_tok", "de_tok"), rows[:1])
    assert "is not the table that was tested on" in show(output, [compared], "", device).plain
