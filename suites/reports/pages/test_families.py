"""A comparison over the tasks of a family: every task, their average, and a test batch's time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from harness.experiments.conclusion import conclude
from harness.experiments.examples import KeptPairs
from harness.experiments.over_tasks import overall_without
from reports.core.against import against
from reports.core.page import Output
from reports.core.source import Source
from reports.core.trained import trained_tasks
from reports.pages.comparison import families
from reports.pages.comparison.page import Compared
from suites.reports.conftest import on
from suites.support.comparisons import B
from suites.support.domains import GAINS, SEEDS, TASKS, TOKENS, averages, reviewed, value

MS, LSTM = "multi_scale_transformer.windowed", "bi_lstm.packed"


@pytest.fixture
def shown(tmp_path: Path) -> tuple[str, Path]:
    records = reviewed()
    piece = families.shown(Output(tmp_path, "page"), conclude(records[0], records))
    return piece.html, tmp_path


def rows(folder: Path, name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What the page's table saves, by task and model."""
    (path,) = folder.rglob(f"page-{name}.csv")
    return {(r["task"], r["model"]): dict(r) for _, r in pd.read_csv(path).iterrows()}


def test_every_domain_and_the_average_have_intervals_over_seeds(shown: tuple[str, Path]) -> None:
    html, folder = shown
    found = rows(folder, "family")
    assert len(found) == 17 * 3
    for model in GAINS:
        for number, name in ((0, TASKS[0]), (15, TASKS[15])):
            wanted = 100 * np.array([value(model, number, s) for s in range(SEEDS)])
            assert 100 * found[name, model]["mean"] == pytest.approx(wanted.mean())
        mean = found["mtl16", model]
        low, high = stats.t.interval(
            0.95, SEEDS - 1, np.mean(averages(model)), stats.sem(averages(model))
        )
        assert (mean["mean"], mean["low"], mean["high"]) == pytest.approx(
            (np.mean(averages(model)), low, high)
        )
    apparel = found[TASKS[0], MS]
    assert (apparel["printed"], apparel["test_tokens"]) == (87.25, 20)
    assert found["mtl16", LSTM]["printed"] == 84.01
    assert math.isnan(found["mtl16", B]["printed"])
    text = " ".join(re.sub("<[^>]*>", " ", html).split())
    assert "kitchen_housewares" in text
    assert "(87.25)" in text
    assert f"{100 * np.mean(averages(B)):.2f}" in text


def test_a_batchs_time_stands_beside_the_accuracy_of_the_same_runs(
    shown: tuple[str, Path],
) -> None:
    html, folder = shown
    text = " ".join(re.sub("<[^>]*>", " ", html).split())
    # 128 of 400 reviews, on average over lengths that take 1 to 8.5 times as long, and seeds.
    base = 2.0 * 128 / 400 * np.mean(list(TOKENS.values())) / 20 * 1.04
    assert f"{base:.2f} s" in text or f"{base:.1f} s" in text
    found = rows(folder, "batches")
    wanted = {name: 0.5 / math.sqrt(TOKENS[name] / 20) for name in TASKS}
    assert {name: found[name, MS]["ratio"] for name in TASKS} == pytest.approx(wanted)
    geometric = math.exp(np.mean(np.log(list(wanted.values()))))
    assert f"{geometric:.2f}x [" in text
    assert [found[name, LSTM]["ratio"] for name in TASKS] == pytest.approx([2.0] * 16)
    assert list(folder.rglob("page-batch-by-length.svg"))


def test_every_model_is_drawn_beside_the_baseline_on_every_domain(
    shown: tuple[str, Path],
) -> None:
    _, folder = shown
    (path,) = folder.rglob("page-family-differences.csv")
    drawn = pd.read_csv(path)
    for panel, model in enumerate((MS, LSTM)):
        mine = drawn[(drawn["kind"] == "interval") & (drawn["panel"] == panel)]
        assert len(mine) == 16
        bar = mine[mine["series"] == "apparel"].iloc[0]
        differences = [100 * (value(model, 0, s) - value(B, 0, s)) for s in range(SEEDS)]
        low, high = stats.t.interval(0.95, SEEDS - 1, np.mean(differences), stats.sem(differences))
        assert (bar["low"], bar["high"]) == pytest.approx((low, high))


def test_of_many_tasks_what_is_decided_over_them_comes_first(
    tmp_path: Path, source: Source
) -> None:
    """Then each of them behind its name; of what is said of all alike there is one sentence."""
    alone = on(source, reviewed())
    page = Compared(alone, alone.devices[0], Output(tmp_path, "page"))
    assert len(re.findall("Tasks? mtl16", page.about().plain)) == 1
    verdicts = page.verdicts()
    assert verdicts.sentences[0].endswith("; over 16 tasks 1 better, 1 undecided.")
    assert verdicts.plain.index("Over tasks") < verdicts.plain.index(f"{MS} is better")
    assert page.statistics().html.count("<details><summary>mtl16[domain=") == 16


def test_a_seed_counts_only_where_every_domain_is_there(tmp_path: Path) -> None:
    records = reviewed()
    lost = [r for r in records if r["key"] != f"{MS} {TASKS[3]} 4"]
    (arm, *_) = families.arms_of(conclude(records[0], lost), "mtl16")
    assert arm.whole.model == MS
    assert arm.whole.values == pytest.approx(averages(MS)[:4])
    some = [r for r in records if r.get("task") != TASKS[3]]
    piece = families.shown(Output(tmp_path, "page"), conclude(records[0], some))
    assert "No model has finished a seed on every task of mtl16" in piece.plain
    other = [r for r in reviewed() if r["kind"] == "run" and r["task"] == TASKS[0]]
    assert trained_tasks(other) == [], "one domain is no average of all"


def test_a_family_is_one_task_of_what_was_trained() -> None:
    runs = [r for r in reviewed() if r["kind"] == "run"]
    (one,) = trained_tasks(runs)
    assert one.name == "mtl16"
    assert {m.model: m.values for m in one.models} == {
        model: pytest.approx(averages(model)) for model in GAINS
    }
    assert {m.counted for m in one.models} == {"5 seeds"}


def test_the_tests_over_tasks_are_made_again_without_what_was_trained_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the seen reviews the gain is gone: the verdict over tasks changes, and is told."""
    records = reviewed((B, MS))
    whole = conclude(records[0], records)
    assert whole.overall.rows[0].verdict == "better"
    assert overall_without(whole) == []

    from harness.experiments import conclusion
    from harness.experiments.replicates import Measured, judged_by

    def kept(m: Measured, said: object) -> KeptPairs:
        sign = 1 if TASKS.index(m.design["task"]) % 2 else -1

        def metric(run: Mapping[str, Any]) -> float:
            return 0.8 + 0.01 * sign * (run["model"] == MS) + 0.0001 * run["seed"]

        return KeptPairs(seen=3, tested=400, unseen=judged_by(m.design, m.pairs, metric))

    monkeypatch.setattr(conclusion, "kept_of", kept)
    again = conclude(records[0], records, said=lambda run: None)
    assert again.overall.rows[0].verdict == "better"
    assert again.overall_learned is None
    (said,) = overall_without(again)
    assert said.startswith(f"{MS} without test examples that stand in the training set: mean")
    assert "8 better / 8 worse (sign test p = 1)" in said
    assert said.endswith("verdict changed (undecided)")

    def learned(m: Measured, said: object) -> KeptPairs:
        stuck = f"{B} {TASKS[2]} 0"

        def metric(run: Mapping[str, Any]) -> float:
            return math.nan if run["key"] == stuck else float(run["test"]["accuracy"])

        only = judged_by(m.design, m.pairs, metric) if m.design["task"] == TASKS[2] else None
        return KeptPairs(tested=400, stuck={B: 1} if only else {}, learned=only)

    monkeypatch.setattr(conclusion, "kept_of", learned)
    again = conclude(records[0], records, said=lambda run: None)
    (row,) = again.overall_learned.rows
    differences = [
        [value(MS, i, s) - value(B, i, s) for s in range(SEEDS) if (i, s) != (2, 0)]
        for i in range(16)
    ]
    assert row.tasks.difference.difference == pytest.approx(
        np.mean(list(map(np.mean, differences)))
    )
    (said,) = overall_without(again)
    assert said.startswith(
        f"{MS} without pairs of which a run says one class for all test examples"
    )


def test_training_is_compared_task_by_task() -> None:
    """What one task has more, and another less, is alike in sum."""
    longer, shorter = ({"epochs": [{"seconds": 1.0}] * n, "chosen_epoch": 1} for n in (6, 3))
    known = {"recipe": {"batch": 32, "epochs": 99, "patience": 5}, **longer}
    unlike = [
        {**r, **known, **(shorter if (r["model"], r["task"]) == (MS, TASKS[0]) else {})}
        for r in reviewed()[1:]
    ]
    (one,) = trained_tasks(unlike)
    other = one.find(B)
    ms, lstm = (against(one.find(model), other) for model in (MS, LSTM))
    assert ms.flaws == ("the training was not alike on 1 of 16 tasks",)
    assert lstm.flaws == ()
