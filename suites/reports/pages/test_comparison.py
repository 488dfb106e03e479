"""The page of a comparison: its figures of every seed, of differences and of power."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.experiments import conclusion
from harness.experiments.conclusion import Comparison, Conclusion, conclude, conclusions
from harness.experiments.costs import epoch_seconds
from harness.experiments.examples import KeptPairs
from harness.experiments.replicates import Measured, judged_by
from harness.stats import power_of
from harness.train.task import task
from reports.core.figure_data import data_of
from reports.core.page import Output
from reports.core.source import DeviceRecords, Source
from reports.pages.comparison import figures, learning
from reports.pages.comparison.tables import over_baseline, peak_bytes
from reports.pages.experiments import UNSEEN, Experiments
from reports.pages.size.accuracy import difference_text
from suites.reports.conftest import on
from suites.support.comparisons import HIGH, LOW, A, B, compared, design, family, judged, run, runs
from suites.support.report_records import LSTM, MINE


@pytest.fixture(scope="module")
def pair(device: DeviceRecords) -> Comparison:
    ((one,),) = (c.comparisons for c in conclusions(device.records))
    return one


@pytest.fixture(scope="module")
def many(source: Source) -> Conclusion:
    other = next(d for d in source.devices if d.has("family"))
    return next(c for c in conclusions(other.records) if not c.is_pair)


def test_the_list_of_experiments_says_by_which_recipe_and_vectors(
    tmp_path: Path, source: Source
) -> None:
    common = task("trec").recipe.as_dict()
    wide, epochs = {**common, "width": 600}, [{"epoch": 1, "seconds": 1.0}]
    for mine, others, vectors, said in (
        (common, common, "", "common"),
        (wide, wide, "glove", "common, width=600, glove"),
        (wide, common, "glove", "several recipes, glove"),
    ):
        of_both = zip((A, B), (HIGH, LOW), (mine, others), strict=True)
        more: dict[str, Any] = {"epochs": epochs, "vectors": vectors}
        trained = (runs(m, v, recipe=recipe, **more) for m, v, recipe in of_both)
        alone = on(source, [design()], *trained)
        shown = Experiments(alone, Output(tmp_path, "page")).table().html
        assert f">{said}</td>" in shown
        assert ">5 seeds</td>" in shown


def test_the_list_of_experiments_is_by_corpus(tmp_path: Path, source: Source) -> None:
    tasks = ["trec", "cr", "trec", "cr"]
    each = [
        {**design(task=task), "key": f"{at}", "question": f"{at}"} for at, task in enumerate(tasks)
    ]
    trained = [[*runs(A, HIGH, task), *runs(B, LOW, task)] for task in ("trec", "cr")]
    rows = Experiments(on(source, each, *trained), Output(tmp_path, "page")).rows()
    assert [row["task"] for row in rows] == sorted(tasks)


def test_the_list_of_experiments_says_what_is_left_without_seen_examples(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [*runs(A, HIGH, data="d"), *runs(B, LOW, data="d")]

    def told() -> str:
        (row,) = Experiments(on(source, [design()], both), Output(tmp_path, "page")).rows()
        return str(row[UNSEEN])

    assert told() == "not told: without predictions"
    for seen, gain, said in (
        (3, 0.1, "unchanged"),
        (0, 0.1, "none is seen"),
        (3, 0.0, "1 of 1 changed: better (+10.00 [+8.48, +11.52] points) to undecided (+0.04 ["),
    ):

        def kept(m: Measured, _: object, seen: int = seen, gain: float = gain) -> KeptPairs:
            def metric(run: Mapping[str, Any]) -> float:
                return 0.8 + (run["model"] == A) * (gain + 0.002 * (-1) ** run["seed"])

            return KeptPairs(seen=seen, tested=400, unseen=judged_by(m.design, m.pairs, metric))

        monkeypatch.setattr(conclusion, "kept_of", kept)
        assert told().startswith(said)


def test_a_line_for_every_seed(pair: Comparison) -> None:
    figure = figures.every_seed(pair)
    drawn = data_of(figure)
    for seed, first, second in pair.values:
        ends = drawn[drawn["series"] == f"seed {seed}"]["y"].tolist()
        assert ends == pytest.approx([100 * second, 100 * first])
    texts = figure.axes[0].texts
    assert [f"seed {n}" in [t.get_text() for t in texts] for n in range(6)] == [True] * 6
    offsets = [t.get_position()[1] for t in texts if t.get_text().startswith("seed")]
    assert max(map(abs, offsets)) < 200, "beside their lines, not off the page"
    twenty = replace(pair, values=tuple((n, a, b) for n, (_, a, b) in enumerate(pair.values * 4)))
    figure = figures.every_seed(twenty)
    assert not [t for t in figure.axes[0].texts if t.get_text().startswith("seed")]
    assert len(data_of(figure)["series"].unique()) > 20, "all lines are drawn"


def test_differences_are_those_of_the_seeds_and_the_interval_that_of_their_mean(
    pair: Comparison,
) -> None:
    figure = figures.differences(pair)
    drawn = data_of(figure).set_index("series")
    for seed, first, second in pair.values:
        assert drawn.loc[f"seed {seed}", "x"] == pytest.approx(100 * (first - second))
    bar = drawn[drawn["kind"] == "interval"].loc["mean"]
    d = pair.difference
    assert (bar["low"], bar["high"]) == pytest.approx((100 * d.low, 100 * d.high))
    names = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert names == [*(f"seed {n}" for n in range(6)), "mean"]


def trained(ends: list[int], gain: float) -> list[list[float]]:
    """Dev metrics by epoch of runs that end after so many epochs, no two alike."""
    return [
        [0.5 + gain + 0.02 * seed**2 + 0.03 * e for e in range(end)]
        for seed, end in enumerate(ends)
    ]


def of_curves(model: str, curves: list[list[float]]) -> list[dict[str, Any]]:
    return [
        run(
            model,
            seed,
            dev[-1],
            epochs=[
                {"epoch": e, "seconds": 1.0, "dev": {"accuracy": v}} for e, v in enumerate(dev, 1)
            ],
            chosen_epoch=len(dev) - 1,
        )
        for seed, dev in enumerate(curves)
    ]


def test_learning_curves_are_medians_of_all_runs_and_tell_where_patience_ended_some() -> None:
    mine, other = trained([6, 4, 3, 5, 6], 0.1), trained([4] * 5, 0.0)
    pair = judged(design(), [*of_curves(A, mine), *of_curves(B, other)])
    figure = learning.learning_curves([pair])
    assert {A, B} <= {t.get_text() for t in figure.axes[0].texts}
    drawn = dict(iter(data_of(figure).groupby("series")))
    median, rest = drawn[f"{A}: median of 5 runs"], drawn[f"{A}: those that go on"]
    assert median["x"].tolist() == [1, 2, 3], "as far as all of them go"
    whole = 100 * np.array([dev[:3] for dev in mine])
    assert median["y"].tolist() == pytest.approx(np.median(whole, axis=0))
    assert rest["x"].tolist() == [3, 4, 5], "while half of them or more go on"
    left = [np.median([100 * dev[e] for dev in mine if len(dev) > e]) for e in (2, 3, 4)]
    assert rest["y"].tolist() == pytest.approx(left)
    band = drawn[f"{A}: middle half"]
    ends = band[band["x"] == 2]["y"]
    assert (ends.min(), ends.max()) == pytest.approx(np.percentile(whole[:, 1], [25, 75]))
    chosen = drawn[f"{A}: chosen epochs"]
    assert chosen["x"].tolist() == [5, 3, 2, 4, 5]
    assert chosen["y"].tolist() == pytest.approx([100 * dev[-2] for dev in mine])
    assert f"{B}: those that go on" not in drawn, "all of its runs end together"
    assert [one.whole for one in learning.dev_curves(pair)] == [3, 4]


def test_a_family_has_a_panel_for_every_model_with_the_baseline_in_each() -> None:
    told = {A: trained([5] * 6, 0.1), "disa.x": trained([6] * 6, 0.2), B: trained([5] * 6, 0.0)}
    records = [one for model, curves in told.items() for one in of_curves(model, curves)]
    many = conclude(family([A, "disa.x"], ["trec"]), records)
    figure = learning.learning_curves(many.comparisons)
    drawn = data_of(figure)
    for model in (A, "disa.x"):
        names = set(drawn[drawn["panel"] == model]["series"])
        assert {f"{one}: median of 6 runs" for one in (model, B)} <= names


def test_epochs_of_a_small_panel_are_written_apart() -> None:
    told = {model: trained([250] * 6, 0.1 * i) for i, model in enumerate((A, "disa.x", B))}
    records = [one for model, curves in told.items() for one in of_curves(model, curves)]
    figure = learning.learning_curves(
        conclude(family([A, "disa.x"], ["trec"]), records).comparisons
    )
    figure.canvas.draw()
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        assert len(boxes) > 2
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_a_forest_has_a_line_for_every_model(many: Conclusion) -> None:
    figure = figures.forest(many.of_task("mr"))
    drawn = data_of(figure)
    bars = drawn[drawn["kind"] == "interval"].set_index("series")
    for c in many.of_task("mr"):
        d = c.difference
        assert bars.loc[c.first, "low"] == pytest.approx(100 * d.low)
        assert bars.loc[c.first, "high"] == pytest.approx(100 * d.high)
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == [MINE, LSTM]


def test_unpaired_no_line_joins_seeds_and_only_means_are_subtracted() -> None:
    one = compared(HIGH, LOW, paired=False)
    figure = figures.every_seed(one)
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
    sd = float(np.std([a - b for _, a, b in pair.values], ddof=1))
    assert figures.spread_of(pair).value == pytest.approx(sd)
    found = figures.power_curves(pair, sd)
    assert [c.name for c in found if "margin" in c.name]
    for curve in found:
        assert np.all(np.diff(curve.powers) >= -1e-9)
        assert curve.needed <= 2 or curve.powers[0] < 0.8
    drawn = data_of(figures.power(pair, found))
    assert set(drawn["series"]) == {c.name for c in found}
    assert drawn.groupby("series")["x"].apply(list).iloc[0] == list(figures.COUNTS)
    margin = next(c for c in found if "margin" in c.name)
    assert margin.powers[3] == pytest.approx(power_of(0.01, sd, figures.COUNTS[3]))


def test_what_is_saved_is_a_ratio_by_pairs() -> None:
    """Of seconds of an epoch and of peak memory, with intervals over the pairs."""
    taken = {A: (3.0, 100), B: (2.0, 400)}
    more = [
        {
            **r,
            "epochs": [{"seconds": taken[r["model"]][0] * (1 + 0.1 * r["seed"])}],
            "peak_bytes": taken[r["model"]][1],
        }
        for r in (*runs(A, HIGH), *runs(B, LOW))
    ]
    (found,) = conclude(design(), [design(), *more]).comparisons
    ratios = over_baseline(found, epoch_seconds, peak_bytes)
    assert ratios == ["1.50x [1.50, 1.50]", "0.25x [0.25, 0.25]"]
    (none,) = conclude(design(), [design(), *({**r, "peak_bytes": None} for r in more)]).comparisons
    assert over_baseline(none, peak_bytes) == ["unknown"]
