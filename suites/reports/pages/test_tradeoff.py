"""The page of memory, time and accuracy."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from harness.stats import MeanInterval
from reports.core.page import Output
from reports.core.source import DeviceRecords, Source
from reports.pages.tradeoff.page import Tradeoff
from reports.pages.tradeoff.tables import standings
from suites.support.report_records import BASE, LSTM, MINE, VARIANT


def test_the_front_is_of_all_three_and_a_variant_hides_nothing(
    source: Source, device: DeviceRecords, tmp_path: Path
) -> None:
    page = Tradeoff(source, device, Output.of(tmp_path, "p"))
    stand = page.standings("trec")
    assert stand[MINE] == "on the front"  # the most accurate
    assert stand["none.fused"] == "on the front"  # the cheapest
    assert stand[BASE] == "on the front"
    assert stand[LSTM] in ("open", "behind")
    page.fronts()
    page.table()
    data = pd.read_csv(tmp_path / "figures" / "p-front-trec.csv")
    time = data[data["x_axis"].str.startswith("time")].set_index("series").loc[MINE]
    assert time["x"] == pytest.approx(2.4)
    assert time["low"] < time["y"] < time["high"]
    drawn = set(data["series"])
    assert VARIANT not in drawn
    costs = pd.read_csv(tmp_path / "tables" / "p-costs.csv").query("task == 'trec'")
    standing = costs.set_index("model")["standing"]
    assert standing[VARIANT] == "variant, not ranked"
    assert standing[MINE] == "on the front"
    # A mechanism that was trained in variants alone is ranked with them.
    assert sum("multi_scale_transformer" in name for name in drawn) > 1


def test_beaten_is_only_said_where_no_interval_meets() -> None:
    def one(cost: float, metric: float, half: float) -> list[MeanInterval]:
        return [MeanInterval(v, v - half, v + half) for v in (cost, -metric)]

    apart = standings({"good": one(1, 9, 0.1), "bad": one(2, 8, 0.1)})
    assert apart == {"good": "on the front", "bad": "behind"}
    near = standings({"good": one(1, 9, 2), "bad": one(2, 8, 2)})
    assert near == {"good": "on the front", "bad": "open"}
    trade = standings({"small": one(1, 5, 0.1), "right": one(2, 9, 0.1)})
    assert set(trade.values()) == {"on the front"}
    unknown = [MeanInterval(math.nan, math.nan, math.nan), MeanInterval(-9.5, -9.6, -9.4)]
    assert standings({"good": one(1, 9, 0.1), "u": unknown})["u"] == "on the front"
    same = standings({"a": one(1, 9, 0.1), "b": one(1, 9, 0.1)})
    assert set(same.values()) == {"on the front"}
