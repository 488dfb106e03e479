"""The page that says whether the measuring can be trusted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from reports.core.page import Output
from reports.core.source import DeviceRecords, Source
from reports.pages.trust.page import Trusted
from suites.support.report_records import BLOCKS, DISA, LENGTHS, RATIOS


def test_controls_drift_and_margins_are_counted(
    source: Source, device: DeviceRecords, tmp_path: Path
) -> None:
    page = Trusted(source, device, Output.of(tmp_path, "p"))
    assert len(page.controls) == 2 * (1 + len(LENGTHS))
    for control in page.controls:
        assert control.interval.count == BLOCKS
        assert control.interval.ratio == pytest.approx(1, abs=0.02)
    assert f"of {len(page.controls)} intervals" in page.control().plain
    drift = page.drift().plain
    assert "drifted" in drift  # times grow from block to block
    assert "too few" not in drift
    data = pd.read_csv(tmp_path / "figures" / "p-drift.csv")
    medians = data.groupby("series")["y"].median()
    assert medians.tolist() == pytest.approx([1.0] * len(medians))
    assert "0 are over budget" in page.errors().plain
    assert page.margins[0].margin == pytest.approx(20 / RATIOS[DISA])


def test_what_is_over_budget_or_measured_too_rarely_is_told(
    source: Source, device: DeviceRecords
) -> None:
    worse = {**next(r for r in device.records if r["kind"] == "margin"), "error": 1.0}
    kept = [r for r in device.records if r["kind"] != "time" or r["block"] < 2]
    page = Trusted(source, replace(device, records=(*kept, worse)), Output(None, "p"))
    assert "is over its error budget" in page.errors().plain
    assert "were measured in fewer than 4 blocks: too few to tell" in page.drift().plain
