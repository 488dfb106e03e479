"""The goals: what the file says, how it is planned, measured, gone on with, and published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from harness.case import parse
from harness.errors import UsageError
from harness.measure import blocks as runner
from harness.measure.session import Session
from harness.records import journal
from harness.registry import builtins
from reference_impls.mtsa import optimized
from reports.core import predicted, words
from suites.programs.goals import __main__ as program
from suites.programs.goals import accuracy, judge, plan
from suites.programs.goals.judge import MET, MISSED, UNDECIDED, Readings
from suites.programs.goals.plan import Goal, load
from suites.programs.goals.test_judge import (
    BOTH,
    KNOWN,
    PROFILES,
    goal_of,
    planned,
    timed,
    verified,
)
from suites.support.command_line import ROOT
from suites.support.sessions import FINGERPRINT, HERE, ignore


def test_every_row_of_the_table_is_there_and_accuracy_names_every_fast_path() -> None:
    assert {goal.row for goal in load().goals} == set(range(13))
    accurate = [goal for goal in load().goals if goal.row == 11]
    assert {(g.kind, g.at_most, g.dtype) for g in accurate} == {("accuracy", 2e-5, "f32")}
    assert all(min(g.score_scales) == 1 and max(g.score_scales) == 100 for g in accurate)
    assert {g.device for g in accurate} == {"cpu", "cuda"}
    fast = {
        f"{m.name}.{i.name}": i.devices
        for m in builtins().values()
        for i in m.implementations
        if m.score_weights and i.name.startswith(("fused", "windowed"))
    }
    for device in ("cpu", "cuda"):
        wanted = {name for name, devices in fast.items() if device in devices}
        assert {g.measured for g in accurate if g.device == device} == wanted


def test_all_that_is_predicted_of_a_gpu_can_be_measured() -> None:
    """At the very sizes, and by the names, by which it is then shown beside."""
    asked = [goal for goal in load().goals if goal.id.startswith("predicted-")]
    there = set()
    for one in plan.planned(asked, PROFILES, KNOWN):
        for case in one.measured:
            p = case.problem
            assert (case.name, p.dtype, p.device) == (predicted.MEASURED, "bf16", "cuda")
            assert (p.batch, p.heads) == (predicted.BATCH, predicted.HEADS)
            there.add((p.phase, p.d_out // p.heads, p.length))
    assert there == {(one.phase, one.width, one.tokens) for one in predicted.beside([])}


def test_every_goal_can_be_planned_but_those_whose_implementation_is_not_there() -> None:
    everything = load().goals
    for one in plan.planned(everything, PROFILES, KNOWN):
        if one.missing:
            assert "has no implementation" in one.missing
        elif one.goal.kind != "accuracy":
            assert len(one.measured) == len(one.goal.lengths)
            assert all(parse(case.id) == case for case in one.cases)
            assert all("1-thread" in c.settings for c in one.cases if c.problem.device == "cpu")


# --- what the file may say

ENTRY = """
[[goal]]
id = "tiny"
row = 1
what = "a small one"
kind = "time"
measured = "mtsa.algorithm1"
baselines = ["multi_head.sdpa"]
pass = "forward"
dtype = "f32"
batch = 2
lengths = [8]
width = [12, 16]
heads = 4
at_most = 1.2
"""
HEAD = """
[measuring]
summary = ""
baseline = ""
subject = ""
reference = { heads = 0 }
cases = []
setting = { cpu = "1-thread", cuda = "eager" }
blocks = { cpu = 2, cuda = 2 }
memory_blocks = 1
min_rounds = 3
seconds = 0.01
limit_seconds = 60
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "goals.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("at_most = 1.2", "", "of kind 'time' needs at_most"),
        ("at_most = 1.2", "at_most = 1.2\nat_least = 1.3", "can't have at_least"),
        ('kind = "time"', 'kind = "speed"', "kind is 'speed'; expected one of time"),
        ('kind = "time"', 'kind = "growth"', "can't have baselines"),
        ("at_most = 1.2", "at_most = 1.2\nspeed = 3", "can't have speed"),
        ('id = "tiny"', "", "goal '(without id)' has no id"),
        ("heads = 4", "", "needs heads"),
    ],
)
def test_a_wrong_word_in_the_file_is_one_line(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    text = HEAD + ENTRY
    assert old in text
    with pytest.raises(UsageError) as error:
        load(written(tmp_path, text.replace(old, new, 1)))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_ids_are_told_apart_and_lists_become_goals_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two goals are called 'tiny'"):
        load(written(tmp_path, HEAD + ENTRY + ENTRY))
    text = (HEAD + ENTRY).replace("[8]", "[8, 16]")
    text = text.replace('"mtsa.algorithm1"', '["mtsa.plain", "mtsa.algorithm1"]')
    ids = [goal.id for goal in load(written(tmp_path, text)).goals]
    assert ids == [f"tiny-mtsa.{i}-n{n}" for i in ("plain", "algorithm1") for n in (8, 16)]
    assert len(load(written(tmp_path, text)).chosen(["tiny"])) == 4
    assert len(load(written(tmp_path, text)).chosen(["tiny-mtsa.plain-n8"])) == 1


def test_a_goal_that_is_not_there_is_refused() -> None:
    goals = load()
    with pytest.raises(UsageError, match=r"no goal 'a-f32-foward'; did you mean .*a-f32-forward"):
        goals.chosen(["a-f32-foward"])
    assert not [g for g in goals.chosen() if not g.row]
    assert next(g.id for g in goals.chosen(["sweep-core-f32-forward"])).endswith("-n16")


# --- sessions and resumption


def tiny_goals() -> list[Goal]:
    small = {"batch": 2, "width": (12, 16), "baseline_width": (12, 16), "heads": 4}
    return [
        goal_of(id="a", lengths=(8,), baselines=BOTH, **small),
        goal_of(id="b", lengths=(8,), baselines=("multi_cnn.conv",), **small),
        goal_of(id="c", lengths=(9,), **small),
    ]


def made_up_sessions(folder: Path) -> list[Session]:
    plans = plan.planned(tiny_goals(), PROFILES, KNOWN)
    profile = replace(PROFILES["cpu"], blocks=3, memory_blocks=1, limit_seconds=30)
    made = plan.sessions(plans, profile, KNOWN, folder, FINGERPRINT)
    return [replace(s, margin_call=f"{HERE}margin_case") for s in made]


def test_goals_of_one_size_share_a_session_and_their_cases(tmp_path: Path) -> None:
    first, second = made_up_sessions(tmp_path)
    assert {case.problem.length for case in first.cases} == {8}
    names = [case.name for case in first.cases if not case.is_control]
    assert sorted(names) == sorted(["mtsa.algorithm1", *BOTH, "multi_cnn.conv"])
    assert sum(case.is_control for case in first.cases) == 3
    assert {case.problem.length for case in second.cases} == {9}
    assert first.pairs is not None
    assert len(first.pairs) == 3 + 3 + 2
    mine = first.pairs[0][0]
    first_base = next(base for case, base in first.pairs if case == mine)
    others = {base for case, base in first.pairs if case == mine} - {first_base}
    # What a case is timed in turn with is the first; the others are timed in turn with that too.
    assert {(other, first_base) for other in others} <= set(first.pairs)


@pytest.mark.usefixtures("quick")
def test_every_ratio_is_there_and_nothing_is_left_to_do(tmp_path: Path) -> None:
    for _ in range(2):
        session, _ = made_up_sessions(tmp_path)
        runner.run(session, ignore, {})
    assert session.missing() == 0
    records = journal.read(tmp_path).records
    keys = [r["key"] for r in records if r["kind"] in ("time", "memory", "margin", "peaks")]
    assert sorted(keys) == sorted(session.keys())
    readings = Readings(session.records(), KNOWN.mechanisms)
    assert session.pairs is not None
    for case, base in session.pairs:
        ratio = readings.time_ratio(case, base)
        assert ratio is not None
        assert ratio.count == 3, (case.id, base.id)


@pytest.mark.usefixtures("quick")
def test_a_failed_baseline_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up_time = runner.Runner._execute

    def lost(self: Any, interpreter: Any, task: Any) -> Any:
        outcome = made_up_time(self, interpreter, task)
        if task.kind == "time" and task.case.name == "multi_head.matmul":
            return replace(outcome, status="oom", value=None, detail="no room")
        return outcome

    monkeypatch.setattr(runner.Runner, "_execute", lost)
    session, _ = made_up_sessions(tmp_path)
    runner.run(session, ignore, {})
    session, _ = made_up_sessions(tmp_path)
    assert session.missing() == 0
    plans = plan.planned(tiny_goals(), PROFILES, KNOWN)
    result = judge.judge(plans[0], Readings(session.records(), KNOWN.mechanisms))
    assert [one.baseline for one in result.against] == ["multi_head.sdpa"]


# --- records of a folder


def test_a_folder_is_judged_by_its_newest_code_and_holds_one_machine(tmp_path: Path) -> None:
    one = planned(at_most=1.2)

    def put(records: Sequence[Mapping[str, Any]]) -> None:
        with journal.Writer(tmp_path, {"fingerprint": {"model": "some machine"}}) as writer:
            for record in records:
                writer.append(record)

    with pytest.raises(UsageError, match="holds no record of these goals"):
        judge.read_folder(tmp_path, [one])
    records = timed(one, [1.1])
    old = [r | {"key": f"{r['key']} old", "code": "old"} for r in timed(one, [1.4])]
    put([*old, *records, *verified(one)])
    held, warnings = judge.read_folder(tmp_path, [one])
    assert not warnings
    [result] = judge.judge_all([one], held, KNOWN.mechanisms)
    assert result.verdict == MET
    assert held["cpu"].blocks == 7
    dates = [{"at": f"2026-11-{day}T10:00"} for day in (25, 28, 26)]
    assert words.days(dates) == "2026-11-25 to 2026-11-28"
    assert words.days(dates[:1]) == "2026-11-25"
    assert words.days([{}]) == ""
    put([r | {"key": f"{r['key']} 2", "fingerprint": "another"} for r in records])
    with pytest.raises(UsageError, match="2 different machines"):
        judge.read_folder(tmp_path, [one])


# --- the command


def goals(*arguments: str) -> Result:
    """What the command says, in this process."""
    return CliRunner().invoke(program.app, arguments)


@pytest.mark.nightly
def test_a_real_run_measures_judges_tells_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = ENTRY.replace('"tiny"', '"core"').replace("mtsa.algorithm1", "core_mtsa.fused")
    core = core.replace("multi_head.sdpa", "core_dot.sdpa").replace("[12, 16]", "[64, 16]")
    core = core.replace("at_most = 1.2", "at_most = 100\nbaseline_width = [48, 16]")
    errors = '[[goal]]\nid = "errors"\nrow = 9\nwhat = "errors"\nkind = "accuracy"\n'
    errors += 'measured = "mtsa.algorithm1"\ndtype = "f32"\nscore_scales = [1, 100]\n'
    lost = ENTRY.replace('"tiny"', '"lost"').replace("mtsa.algorithm1", "mtsa.nonsense")
    wanted = load(written(tmp_path, HEAD + ENTRY + core + errors + "at_most = 2e-5\n" + lost))
    monkeypatch.setattr(program, "load", lambda: wanted)
    folder = tmp_path / "results"
    where = ("--device", "cpu", "--journal", str(folder))
    assert goals(*where).exit_code == 1  # one implementation is not there
    plans = plan.planned(wanted.chosen(), wanted.profiles, KNOWN)
    held, _ = judge.read_folder(folder, plans)
    tiny, tiny_core, *others = judge.judge_all(plans, held, KNOWN.mechanisms)
    assert tiny.worst is not None
    assert tiny.worst.value.count == 2
    assert tiny.worst.operations_ratio > 1
    assert 0 < tiny.share < 1
    assert min(tiny.margin, tiny_core.margin) > 1
    assert {tiny.verdict, tiny_core.verdict} <= {MET, MISSED, UNDECIDED}
    assert [result.verdict for result in others] == [MET, judge.MISSING]
    before = sorted(path.name for path in folder.glob("*.jsonl"))
    again = goals(*where, "--only", "tiny", "--only", "errors")
    assert again.exit_code == 0
    assert "0 of them missing" in again.stdout
    assert sorted(path.name for path in folder.glob("*.jsonl")) == before


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = load(written(tmp_path, HEAD + ENTRY))
    monkeypatch.setattr(program, "load", lambda: wanted)
    folder = tmp_path / "results"
    done = goals("--dry-run", "--journal", str(folder))
    assert done.exit_code == 0
    assert "mtsa.algorithm1-B2-N8-D12x16-H4-f32-forward-cpu+1-thread" in done.stdout
    assert "multi_head.sdpa-B2-N8-D12x16-H4-f32-forward-cpu+1-thread+control" in done.stdout
    assert not folder.exists()


def test_errors_of_growing_scores_are_found_and_a_broken_kernel_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accuracy, "LENGTHS", (65,))
    fine = accuracy.errors("mtsa.algorithm1", "f32", "cpu", [1, 100])
    assert [scale for scale, _ in fine["by_scale"]] == [1, 100]
    assert 0 < max(error for _, error in fine["by_scale"]) < 2e-5
    assert fine["margin"] > 1
    monkeypatch.setattr(optimized, "least_denominator", lambda dtype, length: 0.0)
    broken = accuracy.errors("mtsa.algorithm1", "f32", "cpu", [1, 100])
    assert max(error for _, error in broken["by_scale"]) > 2e-5


PUBLISHED = sorted((ROOT / "reports/published/cpu").glob("goals*.md"))


@pytest.mark.parametrize("shown", PUBLISHED, ids=lambda path: path.stem)
def test_the_docs_show_the_published_records(shown: Path) -> None:
    text = shown.read_text(encoding="utf-8").rstrip()
    done = goals("--from", str(shown.with_suffix("")), "--markdown")
    assert (done.exit_code, done.stderr) == (int("\nNot measured: " in text), "")
    assert done.stdout.rstrip() == text
