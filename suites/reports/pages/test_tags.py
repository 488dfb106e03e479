"""The page's part of tagging: types, confusions, words unseen in training, sentences."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.records.predictions import Predictions
from harness.train.data.directory import VARIABLE
from harness.train.tasks.tagging import TYPES, entities
from reports.core.page import Output
from reports.pages.comparison.disagreement import show
from reports.pages.comparison.tags import apart, by_type, confused
from suites.reports.conftest import arm, of_five_seeds, told
from suites.support.comparisons import A, B
from suites.support.made_up_data import write_table

NAMES = ["", *entities.tags]
TRUTH = ("O B-person I-person", "B-group", "O O")
WRONG = ("O B-person O", "B-group", "B-person O")
WORDS = ("hello Ada Lovelace", "attnbench", "nothing here")


def said(sentences: tuple[str, ...], truth: tuple[str, ...] = TRUTH) -> Predictions:
    """Of three sentences, the last word of the first one and the second one's not seen before."""
    tags, true = (
        [[NAMES.index(tag) for tag in one.split()] for one in some] for some in (sentences, truth)
    )
    right = [
        [int(a == b) for a, b in zip(*both, strict=True)] for both in zip(tags, true, strict=True)
    ]
    unseen = [[0, 0, 1], [1], [0, 0]]
    counts = [
        [sum(r), len(r), sum(a & b for a, b in zip(r, u, strict=True)), sum(u), 0, 0, 0]
        for r, u in zip(right, unseen, strict=True)
    ]
    return Predictions(
        items=np.arange(3, dtype=np.int32),
        seen=np.zeros(3, bool),
        truth=np.concatenate(true).astype(np.uint8),
        said=np.concatenate(tags).astype(np.uint8),
        confidence=np.empty(0, np.uint8),
        errors=np.empty(0, np.float16),
        lengths=np.array([3, 1, 2], np.uint32),
        counts=np.array(counts, np.int32),
    )


def say(found: Mapping[str, Any]) -> Predictions:
    """The first model all that is right, but for one run."""
    good = found["model"] == A and found["seed"] != 4
    return said(TRUTH if good else WRONG)


def test_spans_count_by_type() -> None:
    found = by_type(arm(said(WRONG), said(TRUTH)), NAMES)
    assert set(found) == {"group", "person"} <= set(TYPES)
    assert (found["group"].right, found["group"].f1) == (2, 1.0)
    person = found["person"]
    assert (person.right, person.said, person.true) == (1, 3, 2)
    assert person.f1 == pytest.approx(2 / 5)


def test_tags_that_are_no_bio_count_as_words() -> None:
    plain = [name.replace("-", "_") for name in NAMES]
    found = by_type(arm(said(WRONG)), plain)
    assert (found["O"].right, found["O"].said, found["O"].true) == (2, 3, 3)
    assert (found["I_person"].right, found["I_person"].said, found["I_person"].f1) == (0, 0, 0.0)


def test_confusions_are_of_wrong_words_alone() -> None:
    assert confused(arm(said(WRONG), said(TRUTH)), NAMES) == {
        ("I-person", "O"): 1,
        ("O", "B-person"): 1,
    }


def test_a_sentence_is_apart_where_most_runs_differ() -> None:
    first = arm(said(WRONG), said(TRUTH), said(TRUTH))
    second = arm(said(WRONG), said(WRONG), said(WRONG), model=B)
    found = {one.item: one for one in apart(first, second)}
    assert found[0].differences() == [(2, NAMES.index("I-person"), NAMES.index("O"))]
    assert found[0].ahead == pytest.approx(2 / 3)
    assert found[1].differences() == []
    assert next(iter(found)) in (0, 2)


def test_the_page_shows_words_types_and_real_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = told(say)
    compared = of_five_seeds("wnut17", "span_f1", 0.5, 0.1)
    output = Output(tmp_path / "out", "page")
    monkeypatch.delenv(VARIABLE, raising=False)
    page = show(output, [compared], "", device).plain
    assert f"Set {VARIABLE} to the data directory to see the sentences." in page
    assert "word 3 is I-person: I-person \\| O" in page
    rows = zip(WORDS, TRUTH, strict=True)
    write_table(tmp_path / "wnut17" / "test.tsv", ("tokens", "tags"), [list(row) for row in rows])
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    page = show(output, [compared], "", device).plain
    assert "Lovelace is I-person: I-person \\| O" in page
    assert "hello Ada Lovelace" in page
    assert "93.33 %" in page, "28 of 30 words are right"
    assert "95.00 %" in page, "19 of 20 seen ones"
    assert "90.00 %" in page, "9 of 10 unseen ones"
    (tmp_path / "wnut17" / "test.tsv").unlink()
    write_table(tmp_path / "wnut17" / "test.tsv", ("tokens", "tags"), [["a", "O"]])
    assert "is not what was tested on" in show(output, [compared], "", device).plain
