"""The page of memory, time and accuracy."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from harness.stats import MeanInterval
from reports.core.page import Output
from reports.core.source import DeviceRecords, Source, find
from reports.core.words import file_name
from reports.pages.tradeoff import Tradeoff, standings
from suites.support.domains import SEEDS, averages, reviewed
from suites.support.report_records import BASE, LSTM, MINE, PEAKS, SECONDS, VARIANT, run, write


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


METRICS = {
    "ud_ewt": ("tag_accuracy", 0.93, "93.00", " %"),
    "wnut17": ("span_f1", 0.31, "31.00", " %"),
    "multi30k": ("bleu", 38.5, "38.50", ""),
    "mirrored_summation": ("mse", 0.25, "0.2500", ""),
}
"""By task: its metric, what multi-head has of it, and how that and its unit are written."""


def rows(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What the page's table saves, by task and model."""
    found = pd.read_csv(folder / "tables" / "p-costs.csv")
    return {(r["task"], r["model"]): dict(r) for _, r in found.iterrows()}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tradeoff, Path, str]:
    """The page of five tasks whose metrics differ: sixteen domains among them."""
    records = [r for r in reviewed() if r["kind"] == "run"]
    for name, (metric, level, _, _) in METRICS.items():
        for model, gain in ((BASE, 0.0), (MINE, 0.1)):
            for seed in range(5):
                # As the records of a task: the primary metric first.
                test = {metric: level * (1 + gain + 0.001 * (seed - 2)), "chrf": 1.0}
                records.append(run(model, name, seed, test, None, SECONDS[model], PEAKS[model]))
    folder = write(tmp_path_factory.mktemp("others") / "journal", "Made up", records)
    source = find(str(folder))
    page = Tradeoff(source, source.devices[0], Output.of(folder.parent, "p"))
    return page, folder.parent, f"{page.fronts().html} {page.table().html}"


def test_tasks_of_any_metric_are_weighed(others: tuple[Tradeoff, Path, str]) -> None:
    page, folder, html = others
    assert {task.name for task in page.tasks} == {*METRICS, "mtl16"}
    costs = rows(folder)
    text = " ".join(re.sub("<[^>]*>", " ", html).split())
    for name, (metric, level, written, unit) in METRICS.items():
        scale, row = 100 if unit else 1, costs[name, BASE]
        assert row["metric"] == metric
        wanted = scale * level
        assert row["mean"] == pytest.approx(wanted)
        half = stats.t.ppf(0.975, 4) * wanted * 0.001 * math.sqrt(2.5) / math.sqrt(5)
        assert (row["low"], row["high"]) == pytest.approx((wanted - half, wanted + half))
        assert f"{name}: {BASE} {written} (" in text
        drawn = pd.read_csv(folder / "figures" / f"p-front-{file_name(name)}.csv")
        assert set(drawn["series"]) == {BASE, MINE}
        assert set(drawn["y_axis"].dropna()) == {
            f"test {metric}{f' ({unit.strip()})' if unit else ''}, "
            f"{'lower' if metric == 'mse' else 'higher'} is better"
        }
        # Ours has a tenth more, is slower and larger: of an error that is worse in all three.
        stand = page.standings(name)
        assert stand[BASE] == "on the front"
        assert stand[MINE] == ("behind" if metric == "mse" else "on the front")


def test_sixteen_domains_are_one_point_a_model(others: tuple[Tradeoff, Path, str]) -> None:
    page, folder, _ = others
    costs = rows(folder)
    ms = "multi_scale_transformer.windowed"
    row, points = costs["mtl16", ms], 100 * np.array(averages(ms))
    low, high = stats.t.interval(0.95, SEEDS - 1, points.mean(), stats.sem(points))
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((points.mean(), low, high))
    assert row["epoch_seconds"] == pytest.approx(3.0)
    assert (folder / "figures" / "p-front-mtl16.csv").is_file()
    assert len(page.costs["mtl16"]) == 3
