"""The page that says whether the measuring can be trusted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from reports.core.page import Output
from reports.core.source import DeviceRecords, Source
from reports.pages.trust import Trusted
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
    assert page.margins[0]["margin"] == pytest.approx(20 / RATIOS[DISA])


def test_what_is_over_budget_or_measured_too_rarely_is_told(
    source: Source, device: DeviceRecords
) -> None:
    worse = {**next(r for r in device.records if r["kind"] == "margin"), "error": 1.0}
    kept = [r for r in device.records if r["kind"] != "time" or r["block"] < 2]
    page = Trusted(source, replace(device, records=(*kept, worse)), Output(None, "p"))
    assert "is over its error budget" in page.errors().plain
    assert "were measured in fewer than 4 blocks: too few to tell" in page.drift().plain


def test_bits_that_come_again_are_counted(
    source: Source, device: DeviceRecords, tmp_path: Path
) -> None:
    page = Trusted(source, device, Output.of(tmp_path, "p"))
    assert "attnbench verify --determinism" in page.determinism().plain
    same = {"again": 0.0, "batch": 0.0, "threads": 0.0, "compiled": 0.0, "repeats": 30}
    first = {"kind": "determinism", "status": "ok", "dtype": "f32", "name": "one.fast", **same}
    first |= {"price": 1.5, "price_low": 1.4, "price_high": 1.6}
    other = {**first, "name": "two.fast", "batch": 2e-7, "compiled": None, "price": None}
    lost = {**first, "name": "three.fast", "status": "timeout"}
    known = replace(device, records=(*device.records, first, other, lost))
    told = Trusted(source, known, Output.of(tmp_path, "p")).determinism().plain
    assert "Of 2 implementations 2 give the same bits in 30 repeats" in told
    assert "1 do for a sample alone and in a batch" in told
    assert "compiled, 1 of 1 give those of the plain call." in told
    assert "batch 2e-07; compiled not told" in told
    assert "1.50x (1.40 to 1.60)" in told
    assert "three" not in told


def test_problems_of_two_widths_have_a_name_each(
    source: Source, device: DeviceRecords, tmp_path: Path
) -> None:
    times = [r for r in device.records if r["kind"] == "time" and "-B64-" in r["case"]]
    wide = [{**r, "case": r["case"].replace("-D300", "-D512")} for r in times]
    page = Trusted(source, replace(device, records=(*times, *wide)), Output.of(tmp_path, "p"))
    names = {
        f"{phase}, B64 N64 D{width}, f32, 1-thread"
        for phase in ("forward", "training")
        for width in (300, 512)
    }
    page.drift()
    assert set(pd.read_csv(tmp_path / "figures" / "p-drift.csv")["series"]) == names
    shown = page.control().plain
    assert all(f"| {name} |" in shown for name in names)
