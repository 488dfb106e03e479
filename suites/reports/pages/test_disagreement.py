"""Where models disagree: confusion, calibration, and examples with their texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.records.predictions import Predictions, PredictionsLost
from harness.train.data.directory import VARIABLE
from reports.core.figure_data import data_of
from reports.core.page import Output
from reports.pages.comparison.disagreement import (
    NOTHING,
    calibration,
    calibration_curves,
    cases,
    confusion,
    show,
)
from suites.reports.conftest import arm, of_five_seeds, told
from suites.support.comparisons import A, B
from suites.support.made_up_data import write_table

EMPTY = np.empty(0, np.uint8)
COUNT = 40


def said(classes: Any, truth: Any = 1, confidence: Any = 204) -> Predictions:
    return Predictions(
        items=np.arange(COUNT, dtype=np.int32),
        seen=np.zeros(COUNT, bool),
        truth=np.broadcast_to(truth, COUNT).astype(np.uint8),
        said=np.broadcast_to(classes, COUNT).astype(np.uint8),
        confidence=np.broadcast_to(confidence, COUNT).astype(np.uint8),
        errors=EMPTY,
    )


COMPARED = of_five_seeds("trec", "accuracy", 0.8, 0.0)
ODD = np.where(np.arange(COUNT) == 17, 4, 1)
"""Class 1 of all but one, which is class 4."""


def kept(found: Mapping[str, Any]) -> Predictions:
    return said(ODD if found["model"] == A else 1)


def test_a_row_is_what_it_is_a_column_what_was_said() -> None:
    counts = confusion(arm(said([1] * 30 + [0] * 10, [1] * 35 + [2] * 5), said(2, 2)), 3)
    assert counts.tolist() == [[0, 0, 0], [5, 30, 0], [5, 0, 40]]


def test_calibration_error_is_the_weighed_distance_of_both() -> None:
    sure = np.where(np.arange(COUNT) < 30, 230, 140)  # 90 % and 55 %
    right = np.where(np.arange(COUNT) < 30, 1, 0)
    found = calibration(arm(said(right, 1, sure)))
    assert found.counts.tolist() == [0, 0, 0, 0, 0, 10, 0, 0, 0, 30]
    assert found.accuracy[[5, 9]].tolist() == [0.0, 1.0]
    expected = (30 * (1 - 230 / 255) + 10 * 140 / 255) / 40
    assert found.error == pytest.approx(expected)
    assert calibration(arm(said(1, 1, 255))).error == 0.0


def test_a_curve_has_a_dot_for_every_bin_that_is_not_nearly_empty() -> None:
    sure = np.where(np.arange(COUNT) < 30, 230, 140)
    one = arm(said(1, 1, sure))
    drawn = data_of(calibration_curves("t", [(one, calibration(one))]))
    dots = drawn[drawn["series"] == A]
    assert (dots["x"].tolist(), dots["y"].tolist()) == (pytest.approx([230 / 255]), [1.0])


def test_an_example_tells_in_how_many_runs_they_were_apart() -> None:
    first, second = arm(said(ODD), said(1)), arm(said(1), said(1), model=B)
    found = {case.item: case for case in cases(first, second)}
    assert {item for item, case in found.items() if case.apart} == {17}
    assert (found[17].apart, found[17].ahead) == (1, 1)
    other = arm(replace(said(ODD), items=np.arange(COUNT, dtype=np.int32)[::-1]))
    assert [case.item for case in cases(other, second) if case.apart] == [COUNT - 1 - 17]


def test_the_example_stands_there_by_its_place_and_with_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Output(tmp_path / "out", "page")
    monkeypatch.delenv(VARIABLE, raising=False)
    page = show(output, [COMPARED], "", told(kept))
    assert "trec/test.tsv row 18" in page.plain
    assert f"Set {VARIABLE} to the data directory to see the texts." in page.plain
    columns = ("coarse", "fine", "text")
    rows = [["DESC", "x", f"question {number} <b>?"] for number in range(COUNT)]
    write_table(tmp_path / "trec" / "test.tsv", columns, rows)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    page = show(output, [COMPARED], "", told(kept))
    assert "5 of 5" in page.plain
    assert "question 17 &lt;b&gt;?" in page.html
    assert "question 16" not in page.plain
    rows[17][0] = "NUM"
    write_table(tmp_path / "trec" / "test.tsv", columns, rows)
    page = show(output, [COMPARED], "", told(kept))
    assert "question 17" not in page.plain
    assert "trec/test.tsv.gz is not the table that was tested on" in page.plain
    (tmp_path / "trec" / "test.tsv").unlink()
    assert "no file" in show(output, [COMPARED], "", told(kept)).plain


def test_what_is_lost_is_named_and_the_rest_is_shown() -> None:
    def lacking(found: Mapping[str, Any]) -> Predictions:
        if found["seed"] == 2:
            raise PredictionsLost(f"predictions of {found['key']} are lost: no file")
        return kept(found)

    page = show(Output(None, ""), [COMPARED], "", told(lacking))
    assert f"predictions of {A} trec 2 are lost: no file" in page.plain
    assert "4 of 4" in page.plain
    assert show(Output(None, ""), [COMPARED], "", told(lambda run: None)).plain == NOTHING
