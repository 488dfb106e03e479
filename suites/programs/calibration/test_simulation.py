"""The statistics on simulated experiments whose answer is known; `nox -s calibrate` is longer.

The draws are the same every time, so that a test that passes does so always.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm, t
from typer.testing import CliRunner

from harness.stats import MeanDifference, compare_means
from suites.programs.calibration.statistics import experiments
from suites.programs.calibration.statistics.__main__ import app
from suites.programs.calibration.statistics.run import (
    HEADS,
    Chunk,
    Condition,
    Goal,
    chunks,
    conditions,
    count,
    done,
    drawn,
    run,
    score,
)
from suites.programs.command import markdown_table
from suites.support.command_line import ROOT
from suites.support.parameters import few

DRAWS = 1000
BY_NAME = {c.says: c for c in conditions()}
FIRST_OF_A_KIND = set({c.experiment: c.says for c in reversed(conditions())}.values())
"""What every run draws: one condition of each experiment; the nightly session draws all."""

PROGRAM = "suites.programs.calibration.statistics"


@pytest.mark.parametrize("says", few(BY_NAME, FIRST_OF_A_KIND))
def test_what_must_come_out_does(says: str) -> None:
    condition = BY_NAME[says]
    draws = round(DRAWS * min(1.0, 2 * condition.weight))
    hits = count(condition, 0, draws)
    assert condition.met(hits, draws), (hits / draws, condition.interval(draws))


def test_every_condition_has_a_name_and_draws_of_its_own() -> None:
    assert len(BY_NAME) == len({c.id for c in conditions()}) == len(conditions())


@pytest.mark.parametrize(
    ("goal", "rate", "met"),
    [
        ("equal", 0.05, True),
        ("equal", 0.0522, True),  # 3.2 deviations, and 3.5
        ("equal", 0.0524, False),
        ("at most", 0.053, False),
        ("at least", 0.047, False),
        ("near", 0.058, True),
        ("near", 0.063, False),
    ],
)
def test_goals_reach_as_far_as_chance_does(goal: Goal, rate: float, met: bool) -> None:
    condition = Condition("", "paired_statistic", {}, 0.05, goal)
    assert condition.met(round(rate * 100_000), 100_000) is met


# Mistakes that the simulation must see


def normal_instead_of_t(first: list[float], second: list[float], **more: Any) -> MeanDifference:
    d = compare_means(first, second, **more)
    error = (d.high - d.low) / 2 / t.ppf(0.975, d.count_first - 1)
    half, p = norm.ppf(0.975) * error, 2 * norm.sf(abs(d.difference) / error)
    return replace(d, low=d.difference - half, high=d.difference + half, p=float(p))


@pytest.mark.parametrize(
    "says",
    [
        "false positives, paired t, n = 5, correlation 0.7",
        "coverage of the interval, paired, n = 10, correlation 0",
        "false verdicts, paired, n = 10, correlation 0.7",
    ],
)
def test_a_normal_instead_of_a_t_distribution_is_seen(
    says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "compare_means", normal_instead_of_t)
    assert not BY_NAME[says].met(count(BY_NAME[says], 0, DRAWS), DRAWS)


def test_without_holm_the_family_is_wrong_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    condition = BY_NAME["any false verdict among 7 equal models, Holm, n = 5"]
    monkeypatch.setattr(experiments, "holm", lambda p_values: list(p_values))
    assert not condition.met(count(condition, 0, 500), 500)


def test_the_learners_are_equally_good_and_share_their_corpus() -> None:
    random = np.random.default_rng(0)
    first, second = [], []
    for _ in range(200):
        a, b, folds = experiments._cross_validated(random, 10, 2, 200)
        assert len(a) == len(b) == len(folds) == 20
        first.append(np.mean(a))
        second.append(np.mean(b))
    assert np.mean(first) == pytest.approx(np.mean(second), abs=0.01)
    assert 0.7 < np.mean(first) < 0.85, "learnt something, and not everything"


# The long form


SHORT = [c for c in conditions() if c.experiment == "paired_statistic"][:2]


def drawn_into(folder: Path, todo: Iterable[Chunk], stop_after: int | None = None) -> None:
    for number, _ in enumerate(run(todo, folder), start=1):
        if number == stop_after:
            return


def test_a_stopped_simulation_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{PROGRAM}.run.CHUNK", 50)
    wanted = chunks(SHORT, 120)
    with monkeypatch.context() as other:
        other.setattr(f"{PROGRAM}.run.harness_hash", lambda _: "other code")
        assert not {c.key for c in wanted} & {c.key for c in chunks(SHORT, 120)}
    assert [c.draws for c in wanted] == [50, 50, 20] * 2
    drawn_into(tmp_path, wanted, stop_after=2)
    (first, *_) = rows = score(wanted, done(tmp_path))
    assert [(r.draws, r.wanted, r.met) for r in rows] == [(100, 120, False), (0, 120, False)]
    assert "not finished" in first.cells
    left = [c for c in wanted if c.key not in done(tmp_path)]
    assert len(left) == 4
    drawn_into(tmp_path, left)
    rows = score(wanted, done(tmp_path))
    assert [(r.draws, r.met) for r in rows] == [(120, True), (120, True)]
    whole = tmp_path / "whole"
    drawn_into(whole, wanted)
    assert [r.count for r in score(wanted, done(whole))] == [r.count for r in rows]


def test_chunks_draw_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def noting(generator: np.random.Generator, **sizes: Any) -> bool:
        seen.append(generator.random())
        return False

    monkeypatch.setattr(experiments, "paired_statistic", noting)
    for number in (0, 1):
        for condition in SHORT:
            count(condition, number, 1)
    count(SHORT[0], 0, 1)
    assert len(set(seen)) == 4
    assert seen[4] == seen[0]


def test_the_command_prints_what_came_out_and_fails_when_goals_are_not_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{PROGRAM}.__main__.conditions", lambda: tuple(SHORT))
    arguments = ["--draws", "200", "--journal", str(tmp_path / "j")]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    assert "all goals met" in first.output
    assert "2 chunks, 0 of them already there" in first.output
    again = CliRunner().invoke(app, [*arguments, "--markdown"])
    assert "2 chunks, 2 of them already there" in again.output
    assert "| false positives, paired t, n = 3, correlation 0 |" in again.output
    wrong = Condition(SHORT[0].says, SHORT[0].experiment, SHORT[0].sizes, 0.5)
    monkeypatch.setattr(f"{PROGRAM}.__main__.conditions", lambda: (wrong,))
    failed = CliRunner().invoke(app, arguments)
    assert failed.exit_code == 1
    assert "goals not met" in failed.output


def test_the_docs_show_the_published_draws() -> None:
    """By whichever code they were drawn: whoever changes the statistics draws them again."""
    published = "reports/published/cpu/calibration-statistics"
    shown = (ROOT / f"{published}.md").read_text(encoding="utf-8").rstrip()
    records = {(r["condition"], r["chunk"]): r for r in done(ROOT / published).values()}
    wanted = chunks(conditions(), 20_000)
    rows = score(wanted, {c.key: records[c.condition.id, c.number] for c in wanted})
    assert len(rows) == len(conditions())
    assert all(row.met for row in rows)
    told = drawn(records.values())
    assert shown == f"{markdown_table(HEADS, [row.cells for row in rows])}\n\n{told}"
    assert told.startswith("Drawn 2026-11-22 to 2026-11-30, ")
