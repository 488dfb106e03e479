"""The calibration: comparisons whose answer is known, with made-up samples and a few real ones."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from harness.errors import UsageError
from harness.measure.cpu_clock import Sampled, ratio
from harness.records import journal
from harness.records.ratios import summarise
from suites.harness.records.test_ratios import BASE, MINE, case_id, record
from suites.programs.calibration import arms, plan, run, score
from suites.programs.calibration.__main__ import app, sentences
from suites.programs.calibration.plan import ARMS, Arm, Plan, Problem
from suites.support.command_line import ROOT

FINGERPRINT = {"device": "made up"}
PROBLEMS = tuple(Problem("product", (size,)) for size in range(10))


@pytest.fixture
def no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up samples need none."""
    none = nullcontext(SimpleNamespace(id="none"))
    monkeypatch.setattr(run, "Interpreter", lambda *_, **__: none)


class MadeUp:
    """Samples of an arm: as many calls as it has, and noise of the log time once a block.

    The user interrupts after so many arms.
    """

    def __init__(self, noise: float, stop_after: int | None = None) -> None:
        self.noise = noise
        self.stop_after = stop_after
        self.random = random.Random(0)
        self.asked: list[tuple[str, str]] = []

    def __call__(self, _: Any, problem: Problem, arm: Arm) -> Mapping[str, Any]:
        self.asked.append((problem.name, arm.name))
        if len(self.asked) == self.stop_after:
            raise KeyboardInterrupt
        seconds = 1e-4 * arm.calls * math.exp(self.random.gauss(0, self.noise))
        samples = [seconds * factor for factor in (0.999, 1.0, 1.0, 1.0, 1.05)]
        return run.compact(pair(samples, [2e-3] * 5))


def pair(mine: list[float], base: list[float]) -> dict[str, Any]:
    """What `arms.time_arm` gives, for samples taken in turn."""
    first, second = (Sampled(samples, [0.0] * len(samples), 1) for samples in (mine, base))
    return {"ratio": ratio(first, second), "mine": vars(first), "base": vars(second)}


def measured(folder: Path, what: Plan, time_arm: Callable[..., Mapping[str, Any]]) -> score.Score:
    todo = run.missing(what, ["idle"], folder, FINGERPRINT)
    run.run(what, todo, folder, FINGERPRINT, lambda _: None, time_arm)
    found, records, *_ = run.load(folder)
    return score.score(found, records)


def test_goals_are_met_by_a_quiet_machine_and_by_no_noisy_one(
    tmp_path: Path, no_interpreter: None
) -> None:
    what = Plan(40, 15, 3, 0.05, PROBLEMS)
    quiet = measured(tmp_path / "quiet", what, MadeUp(0.01))
    assert quiet.reached
    totals = {n: {s.total for s in shares} for n, shares in quiet.fewer.items()}
    assert totals == {2: {40 * 7}, 3: {40 * 5}, 5: {40 * 3}, 7: {40 * 2}}
    found = {n: {s.arm: s.count / s.total for s in of} for n, of in quiet.fewer.items()}
    five = [found[n]["5 % slower"] for n in (2, 3, 5, 7)]
    assert five == sorted(five)
    assert five[0] < 0.8 < five[-1]
    assert all(of["same"] < 0.05 for of in found.values())
    assert not measured(tmp_path / "noisy", what, MadeUp(0.2)).reached


def test_goals_hold_at_their_bounds() -> None:
    same, ten, five = plan.GOALS
    assert [same.met(15, 200), same.met(16, 200)] == [True, False]
    assert [ten.met(190, 200), ten.met(189, 200)] == [True, False]
    assert [five.met(160, 200), five.met(159, 200)] == [True, False]


def test_an_interrupted_calibration_goes_on_where_it_was(
    tmp_path: Path, no_interpreter: None
) -> None:
    what = Plan(20, 3, 3, 0.05, PROBLEMS)
    first = MadeUp(0.01, stop_after=2 * 40 + 7)  # in the third passage, the second block's first
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, what, first)
    left = run.missing(what, ["idle"], tmp_path, FINGERPRINT)
    assert [(p.block, p.repeat) for p in left] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    second = MadeUp(0.01)
    result = measured(tmp_path, what, second)
    assert len(second.asked) == 4 * 40
    assert {s.total for s in result.shares if s.judge == score.ATTNBENCH} == {20}
    assert run.missing(what, ["idle"], tmp_path, FINGERPRINT) == []
    assert len(run.missing(what, ["idle", "busy"], tmp_path, FINGERPRINT)) == 6
    assert len(run.missing(what, ["idle"], tmp_path, {"device": "another"})) == 6


def test_an_arm_that_fails_is_named_leaves_goals_open_and_is_tried_again(
    tmp_path: Path, no_interpreter: None
) -> None:
    what = Plan(2, 2, 3, 0.05, PROBLEMS[:2])
    good = MadeUp(0.01)

    def fails_once(interpreter: Any, problem: Problem, arm: Arm) -> Mapping[str, Any]:
        value = good(interpreter, problem, arm)
        return {"detail": "crash: killed"} if len(good.asked) == 3 else value

    result = measured(tmp_path, what, fails_once)
    assert result.missing == {"idle": 2}
    assert not result.reached
    assert {s.total for s in result.shares} == {0}
    [failed] = [r for r in journal.read(tmp_path).records if r["status"] != "ok"]
    assert failed["detail"].endswith("crash: killed")
    assert measured(tmp_path, what, good).missing == {"idle": 0}


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.06])
def test_the_verdict_is_the_one_bench_would_give(factor: float) -> None:
    rng = np.random.default_rng(int(factor * 100))
    times: list[dict[str, Any]] = []
    blocks: dict[int, dict[str, dict[str, Any]]] = {}
    names = {"control": case_id(BASE, extra="+control"), "same": case_id(MINE)}
    for block in range(15):
        blocks[block] = {}
        times.append(record(case_id(BASE), block, 1.0))
        for arm, case in names.items():
            mine, base = 100 * np.exp(rng.normal(0, 0.02, (2, 7)))
            found = pair((mine * (factor if arm == "same" else 1)).tolist(), base.tolist())
            # What was timed apart, in whatever state the machine was then, does not count.
            apart = record(case, block, float(rng.uniform(0.5, 2)))
            times.append(apart | {"ratio": found["ratio"], "beside": case_id(BASE)})
            blocks[block][arm] = found
    rows = summarise(times, BASE)
    [row] = [r for r in rows if r.case == names["same"]]
    floor = score.noise_floor(score.interval(blocks, "control"))
    assert floor == row.floor
    assert score.interval(blocks, "same") == row.time
    assert score.told_apart(blocks, "same", floor) == (row.verdict in ("slower", "faster"))
    assert (row.verdict == "faster") == (factor == 0.9)
    slower = {block: {"5 % slower": found["same"]} for block, found in blocks.items()}
    assert score.told_apart(slower, "5 % slower", floor) == (row.verdict == "slower")


def test_pytest_benchmark_fails_what_is_more_than_five_per_cent_slower_on_the_wall() -> None:
    assert not score.compare_fails([100.0, 101, 99], [105, 104.9, 150])
    assert score.compare_fails([100.0, 101, 99], [105.1, 105.2, 90])
    assert not score.compare_fails([100.0], [50.0])
    arm = {"us": [100.0, 100.0, 100.0], "waited_us": {"0": 10.0, "2": 7.5}}
    assert score.wall(arm) == [110.0, 100.0, 107.5]
    both = {"mine": {**arm, "inner": 2}, "base": {**arm, "inner": 1}}
    assert score.in_all({"arms": {"a": {"same": both, "control": both}}}) == (1800.0, 105.0)
    published = {"steps_us": [100.1, 0.2, 0]}
    assert score.wall(published) == [100.1, 100.3, 100.3]
    assert score.in_all({"arms": {}, "ran_us": 560, "waited_us": 15.0}) == (560, 15.0)


def test_samples_on_disk_are_short_and_hardly_rounded() -> None:
    side = {"samples": [1.23456789e-3, 2e-3], "waited": [0.0, 3e-3], "inner": 2}
    value = run.compact({"ratio": 1.5, "mine": side, "base": side})
    short = {"inner": 2, "us": [1235.0, 2000.0], "waited_us": {"1": 3000.0}}
    assert value == {"ratio": 1.5, "mine": short, "base": short}


@pytest.mark.parametrize("work", plan.PROBLEMS, ids=lambda p: p.name)
def test_every_work_can_be_done(work: Problem) -> None:
    with torch.inference_mode():
        result = arms.WORKS[work.work](*work.sizes)()
    assert isinstance(result, torch.Tensor)
    assert bool(torch.isfinite(result).all())


def test_an_arm_makes_exactly_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    done = 0

    def work() -> None:
        nonlocal done
        done += 1
        time.sleep(1e-4)

    monkeypatch.setitem(arms.WORKS, "counted", lambda: work)
    try:
        for calls in (20, 21, 22):
            done = 0
            value = arms.time_arm("counted", [], calls, base_calls=20, rounds=2, seconds=0.0)
            timed = [len(v["samples"]) * v["inner"] for v in (value["mine"], value["base"])]
            # Each side is warmed up by two or three calls.
            warming = done - timed[0] * calls - timed[1] * 20
            assert warming in {a * calls + b * 20 for a in (2, 3, 4) for b in (2, 3, 4)}
    finally:
        torch.set_num_threads(threads)


def test_a_core_is_kept_busy_only_as_long_as_it_must() -> None:
    with run.kept_busy("idle") as nobody:
        assert nobody is None
    with run.kept_busy("busy") as pid:
        assert pid is not None
        deadline = time.monotonic() + 20
        ran = 0.0
        while ran < 0.2 and time.monotonic() < deadline:
            time.sleep(0.05)
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ran = int(fields[11]) / os.sysconf("SC_CLK_TCK")
        assert ran >= 0.2
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.nightly
def test_a_real_one_of_one_work_and_two_blocks(tmp_path: Path) -> None:
    what = Plan(1, 2, 3, 0.01, plan.PROBLEMS[:1])
    todo = run.missing(what, ["idle"], tmp_path, FINGERPRINT)
    seen: list[Mapping[str, Any]] = []
    run.run(what, todo, tmp_path, FINGERPRINT, seen.append)
    assert [r["status"] for r in seen] == ["ok", "ok"]
    assert len({r["interpreter"] for r in seen}) == 2
    for r in seen:
        [timed] = r["arms"].values()
        assert set(timed) == {a.name for a in ARMS}
        for arm in timed.values():
            assert len(arm["mine"]["us"]) == len(arm["base"]["us"]) >= 3
            assert min(arm["mine"]["us"] + arm["base"]["us"]) > 0
            assert 0 < arm["ratio"] < 10
        assert r["before"]["load"] is None or len(r["before"]["load"]) == 3
    found, records, *_ = run.load(tmp_path)
    result = score.score(found, records)
    assert found == what
    assert result.missing == {"idle": 0}
    assert any("idle" in line for line in sentences(result))


def test_calibrations_of_two_plans_or_machines_are_not_mixed(
    tmp_path: Path, no_interpreter: None
) -> None:
    def measure(blocks: int, device: str) -> Plan:
        what, fingerprint = Plan(2, blocks, 3, 0.05, PROBLEMS[:2]), {"device": device}
        todo = run.missing(what, ["idle"], tmp_path, fingerprint)
        run.run(what, todo, tmp_path, fingerprint, lambda _: None, MadeUp(0.01))
        return what

    two, _ = measure(2, "one"), measure(3, "one")
    with pytest.raises(UsageError, match="2 different calibrations"):
        run.load(tmp_path)
    found, records, *_ = run.load(tmp_path, two.id)
    assert (found, len(records)) == (two, 2)
    measure(2, "another")
    with pytest.raises(UsageError, match="twice"):
        run.load(tmp_path, two.id)


def test_the_docs_show_the_published_records() -> None:
    published = "reports/published/cpu/calibration"
    shown = (ROOT / f"{published}.md").read_text(encoding="utf-8")
    done = CliRunner().invoke(app, ["--from", str(ROOT / published), "--markdown"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.rstrip() == shown.rstrip()
