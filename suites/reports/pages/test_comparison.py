"""The page of a comparison: its figures of every seed, of differences and of power."""

from __future__ import annotations

import numpy as np
import pytest

from harness.experiments.conclusion import Comparison, Conclusion, conclusions
from harness.stats import power_of
from reports.core.figure_data import data_of
from reports.core.source import DeviceRecords, Source
from reports.pages.comparison import figures
from reports.pages.size.answers import difference_text
from suites.support.comparisons import HIGH, LOW, A, compared
from suites.support.report_records import BASE, LSTM, MINE


@pytest.fixture(scope="module")
def pair(device: DeviceRecords) -> Comparison:
    ((one,),) = (c.comparisons for c in conclusions(device.records))
    return one


@pytest.fixture(scope="module")
def many(source: Source) -> Conclusion:
    other = next(d for d in source.devices if d.has("family"))
    return next(c for c in conclusions(other.records) if not c.is_pair)


def test_a_line_for_every_seed(pair: Comparison) -> None:
    figure = figures.slope_chart(pair)
    drawn = data_of(figure)
    for seed, first, second in pair.values:
        ends = drawn[drawn["series"] == f"seed {seed}"]["y"].tolist()
        assert ends == pytest.approx([100 * second, 100 * first])
    texts = figure.axes[0].texts
    assert [f"seed {n}" in [t.get_text() for t in texts] for n in range(6)] == [True] * 6
    offsets = [t.get_position()[1] for t in texts if t.get_text().startswith("seed")]
    assert max(map(abs, offsets)) < 200, "beside their lines, not off the page"


def test_differences_are_those_of_the_seeds_and_the_interval_that_of_their_mean(
    pair: Comparison,
) -> None:
    figure = figures.differences(pair)
    drawn = data_of(figure).set_index("series")
    for seed, first, second in pair.values:
        assert drawn.loc[f"seed {seed}", "x"] == pytest.approx(100 * (first - second))
    bar = drawn[drawn["kind"] == "interval"].loc["mean"]
    d = pair.difference
    assert d is not None
    assert (bar["low"], bar["high"]) == pytest.approx((100 * d.low, 100 * d.high))
    names = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert names == [*(f"seed {n}" for n in range(6)), "mean"]


def test_learning_curves_name_their_models(pair: Comparison) -> None:
    curves = figures.learning_curves([pair])
    assert curves is not None
    assert {MINE, BASE} <= {t.get_text() for t in curves.axes[0].texts}


def test_a_forest_has_a_line_for_every_model(many: Conclusion) -> None:
    figure = figures.forest(many.of_task("mr"))
    drawn = data_of(figure)
    bars = drawn[drawn["kind"] == "interval"].set_index("series")
    for c in many.of_task("mr"):
        d = c.difference
        assert d is not None
        assert bars.loc[c.first, "low"] == pytest.approx(100 * d.low)
        assert bars.loc[c.first, "high"] == pytest.approx(100 * d.high)
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == [MINE, LSTM]


def test_unpaired_no_line_joins_seeds_and_only_means_are_subtracted() -> None:
    one = compared(HIGH, LOW, paired=False)
    figure = figures.groups(one)
    assert {line.get_linestyle() for line in figure.axes[0].get_lines()} == {"None"}
    assert {100 * v for v in (*HIGH, *LOW)} <= set(data_of(figure)["y"]), "every run is seen"
    (axes,) = figures.differences(one).axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["mean"]
    said = [t.get_text() for t in axes.texts]
    assert any("difference of accuracy (of means, unpaired)" in text for text in said)
    figure, paired = (figures.forest([c]) for c in (one, compared(HIGH, LOW)))
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == [f"{A} (unpaired)"]
    assert f"{A}: every replicate" in set(data_of(paired)["series"])
    assert not [s for s in data_of(figure)["series"] if "replicate" in s]
    assert difference_text(one).endswith("better (unpaired)")


def test_power_curves_rise_to_what_is_needed(pair: Comparison) -> None:
    found = figures.power_curves(pair)
    assert [c.name for c in found if "margin" in c.name]
    for curve in found:
        assert np.all(np.diff(curve.powers) >= -1e-9)
        assert curve.needed <= 2 or curve.powers[0] < 0.8
    drawn = data_of(figures.power(pair, found))
    assert set(drawn["series"]) == {c.name for c in found}
    assert drawn.groupby("series")["x"].apply(list).iloc[0] == list(figures.COUNTS)
    margin = next(c for c in found if "margin" in c.name)
    sd = float(np.std([a - b for _, a, b in pair.values], ddof=1))
    assert margin.powers[3] == pytest.approx(power_of(0.01, sd, figures.COUNTS[3]))
