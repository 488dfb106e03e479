"""The page of what a trained model attends to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.errors import UsageError
from reports.core.page import Output
from reports.core.source import DeviceRecords, Source
from reports.pages.attention.figures import heat_maps, highest, per_token
from reports.pages.attention.page import Attended


def test_attention_is_checked_and_drawn(
    source: Source, device: DeviceRecords, tmp_path: Path
) -> None:
    page = Attended(source, device, Output.of(tmp_path, "p"))
    assert "sum to one within 2.0e-07" in page.checks().plain
    assert "no attention" not in page.checks().plain
    page.sentences()
    cells = pd.read_csv(tmp_path / "figures" / "p-sentence0.csv")
    forward = cells[cells["series"].str.startswith("forward")]
    assert forward["value"].notna().sum() == 6  # strictly below the diagonal of 4 x 4
    assert forward.groupby("y")["value"].sum().tolist()[1:] == pytest.approx([1, 1, 1], abs=1e-3)
    page.tokens()
    bars = pd.read_csv(tmp_path / "figures" / "p-tokens0.csv")
    scores = {name: bars[bars["series"] == name]["y"].tolist() for name in bars["series"].unique()}
    assert scores["source2token scores, forward"] == [0.1, 0.8, 0.3, 0.0]
    assert scores["source2token scores, backward"] == [0.1, 1.0, 0.1, 0.0]
    assert "source2token scores" not in scores
    assert scores["pooling weights"] == [0.2, 0.5, 0.2, 0.1]
    said = page.speech().plain
    assert "nouns and verbs less stop words +0.09" in said
    assert ": higher." in said
    page.distances()
    counted = pd.read_csv(tmp_path / "tables" / "p-distances.csv")
    assert counted.query("head == 0")["queries"].sum() == 40
    record = dict(
        page.record or {}, checks={"row_error": 0.1, "forbidden": 0.2, "rows": 1, "cells": 1}
    )
    bad = Attended(page.source, device, page.place)
    bad.record = record
    assert "This is no attention" in bad.checks().plain


def test_a_look_is_found_on_whichever_device_it_was_recorded(folder: Path, source: Source) -> None:
    """Two devices have records; that of the look is not the newest."""
    first = Attended.begin(journal=str(folder), device="", look="a0", out="", page="p")
    assert first.record["key"] == "a0"
    other = next(d for d in source.devices if d.key != first.device.key)
    with pytest.raises(UsageError, match="given look 'a0'; the records have none"):
        Attended.begin(journal=str(folder), device=other.key, look="a0", out="", page="p")
    with pytest.raises(UsageError, match="given look 'nothing'"):
        Attended.begin(journal=str(folder), device="", look="nothing", out="", page="p")


def test_all_panels_of_a_heat_map_have_one_scale_that_is_told() -> None:
    strong, weak = np.tril(np.full((3, 3), 0.75), -1), np.triu(np.full((3, 3), 0.2), 1)
    layer = {"token2token": [strong.tolist(), weak.tolist()], "masks": ["forward", "backward"]}
    drawn = heat_maps({"tokens": ["a", "b", "c"], "layers": [layer]}, "mtsa.fused")
    assert [axes.collections[0].get_clim() for axes in drawn.axes[:2]] == [(0, 0.75)] * 2
    assert any("most ink: 0.75" in text.get_text() for text in drawn.texts)


def test_selections_are_counted_not_ranked() -> None:
    numbers = {"selected_heads": [1.0, 0.0, 1.0], "pooling_weights": [0.1, 0.7, 0.2]}
    said = highest(["a", "b", "c"], numbers)
    assert said == "2 of 3 tokens selected as heads; pooling weights highest at b"
    heads, weights = per_token(["a", "b", "c"], numbers, "resan").axes
    assert heads.get_ylim() == (0, 1.05)
    assert weights.get_ylim() != heads.get_ylim()
