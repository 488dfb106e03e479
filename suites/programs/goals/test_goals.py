"""The goals: what the file says, what samples made up beforehand are judged as, and a real one."""

from __future__ import annotations

import io
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from harness import registry
from harness.case import Case, parse
from harness.errors import UsageError
from harness.measure import blocks as runner
from harness.measure.ceilings import gauge_of, work_of
from harness.measure.session import Session
from harness.records import journal
from harness.registry import builtins, code_hash
from harness.verify.margin import check_case
from reference_impls.mtsa import optimized
from suites.harness.measure import test_roofline
from suites.programs.goals import accuracy, cores, judge, plan, store, table
from suites.programs.goals.__main__ import app
from suites.programs.goals.goal import Goal, instead, load
from suites.programs.goals.judge import MET, MISSED, UNDECIDED, Result
from suites.programs.goals.plan import Planned
from suites.programs.goals.readings import Readings
from suites.support.command_line import ROOT
from suites.support.sessions import FINGERPRINT, HERE, INSTEAD

KNOWN = plan.registry()
MEASURING = load().measuring


def of_row(row: int) -> list[Goal]:
    return [goal for goal in load().goals if goal.row == row]


def test_every_row_of_the_table_is_there_and_accuracy_names_every_fast_path() -> None:
    assert {goal.row for goal in load().goals} == set(range(11))
    ninth = of_row(9)
    assert {(g.kind, g.at_most, g.dtype) for g in ninth} == {("accuracy", 2e-5, "f32")}
    assert all(min(g.score_scales) == 1 and max(g.score_scales) == 100 for g in ninth)
    assert {g.device for g in ninth} == {"cpu", "cuda"}
    fast = {
        f"{m.name}.{i.name}": i.devices
        for m in builtins().values()
        for i in m.implementations
        if m.score_weights and i.name.startswith(("fused", "windowed"))
    }
    for device in ("cpu", "cuda"):
        wanted = {name for name, devices in fast.items() if device in devices}
        assert {g.measured for g in ninth if g.device == device} == wanted


def test_every_goal_can_be_planned_but_those_whose_implementation_is_not_there() -> None:
    everything = load().goals
    for one in plan.planned(everything, MEASURING, KNOWN):
        if one.missing:
            assert "has no implementation" in one.missing
        elif one.goal.kind != "accuracy":
            assert len(one.measured) == len(one.goal.lengths)
            assert all(parse(case.id) == case for case in one.cases)
            assert all("1-thread" in c.settings for c in one.cases if c.problem.device == "cpu")


# --- made-up readings

COMMON: dict[str, Any] = {
    "id": "g",
    "entry": "g",
    "row": 1,
    "what": "a goal",
    "kind": "time",
    "dtype": "f32",
    "measured": "mtsa.algorithm1",
    "baselines": ("multi_head.sdpa",),
    "phase": "forward",
    "batch": 64,
    "heads": 8,
    "lengths": (64,),
    "width": (300, 600),
    "baseline_width": (300, 600),
    "at_most": 1.2,
}


def goal_of(**more: Any) -> Goal:
    return Goal(**{**COMMON, **more})


def planned(**more: Any) -> Planned:
    [one] = plan.planned([goal_of(**more)], MEASURING, KNOWN)
    return one


def time_record(case: Case, block: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {
        "kind": "time",
        "key": f"t{case.id}{block}",
        "case": case.id,
        "block": block,
        "status": "ok",
        "samples": [seconds],
        "median": seconds,
        "interpreter": f"i{block}",
        "fingerprint": "f",
        "code": "c",
        **more,
    }


def memory_record(case: Case, block: int, size: float) -> dict[str, Any]:
    return {
        "kind": "memory",
        "key": f"m{case.id}{block}",
        "case": case.id,
        "block": block,
        "status": "ok",
        "transient_bytes": size,
        "peak_bytes": size,
        "fingerprint": "f",
        "code": "c",
    }


def margin_record(case: Case, status: str = "ok") -> dict[str, Any]:
    return {
        "kind": "margin",
        "key": f"v{case.id}",
        "case": case.id,
        "block": 0,
        "status": status,
        "error": 1e-7,
        "budget": 1e-6,
        "margin": 10.0,
        "detail": "over budget",
        "fingerprint": "f",
        "code": "c",
    }


def verified(one: Planned) -> list[dict[str, Any]]:
    return [margin_record(case) for case in (*one.measured, *one.baselines)]


def timed(
    one: Planned,
    ratios: Sequence[float],
    noise: float = 0.002,
    control: float = 1.0,
    blocks: int = 7,
) -> list[dict[str, Any]]:
    """Times of every block: each baseline takes 1, ours the given ratio to it (one for each).

    Ours is one number: with two baselines the second takes as long as makes its ratio right. What
    hits a block as a whole is large.
    """
    draw = random.Random(0)
    records = []
    for block in range(blocks):
        drift = 2.0 ** (block % 3)
        [case] = one.measured
        records.append(time_record(case, block, drift * math.exp(draw.gauss(0, noise))))
        for base, ratio in zip(one.baselines, ratios, strict=True):
            records.append(time_record(base, block, drift / ratio * math.exp(draw.gauss(0, noise))))
            records.append(
                time_record(
                    base.control(),
                    block,
                    control * drift / ratio * math.exp(draw.gauss(0, noise)),
                )
            )
    return records


def judged(one: Planned, records: Sequence[Mapping[str, Any]]) -> Result:
    return judge.judge(one, Readings(records, KNOWN.mechanisms))


@pytest.mark.parametrize(
    ("kind", "bound", "ratio", "says"),
    [
        ("time", {"at_most": 1.2}, 1.1, MET),
        ("time", {"at_most": 1.2}, 1.2, UNDECIDED),
        ("time", {"at_most": 1.2}, 1.3, MISSED),
        ("time", {"at_most": 0.7}, 0.68, MET),
        ("time", {"at_most": 0.7}, 0.72, MISSED),
        # a speed-up is the baseline's time over ours
        ("speed-up", {"at_least": 2.5}, 1 / 2.7, MET),
        ("speed-up", {"at_least": 2.5}, 1 / 2.5, UNDECIDED),
        ("speed-up", {"at_least": 2.5}, 1 / 2.3, MISSED),
        ("speed-up", {"at_least": 2.5}, 2.7, MISSED),
    ],
)
def test_times_are_judged_on_the_right_side_of_the_bound(
    kind: str, bound: dict[str, float], ratio: float, says: str
) -> None:
    one = planned(kind=kind, **{"at_most": None, **bound})
    found = judged(one, [*timed(one, [ratio]), *verified(one)])
    assert found.verdict == says
    assert found.worst is not None
    value = ratio if kind == "time" else 1 / ratio
    assert found.worst.value.low <= found.worst.value.ratio <= found.worst.value.high
    assert found.worst.value.ratio == pytest.approx(value, rel=0.01)
    assert (found.distance > 0) == (says == MISSED) or says == UNDECIDED


def test_the_distance_is_a_share_of_the_bound_and_above_zero_beyond_it() -> None:
    one = planned(at_most=1.2)
    assert judged(one, timed(one, [1.32], 1e-9)).distance == pytest.approx(0.10, abs=1e-6)
    fast = planned(kind="speed-up", at_most=None, at_least=2.0)
    assert judged(fast, timed(fast, [1 / 2.5], 1e-9)).distance == pytest.approx(-0.2, abs=1e-6)


def test_noise_and_too_few_blocks_leave_it_undecided() -> None:
    one = planned(at_most=1.2)
    for records in (
        timed(one, [1.15], noise=0.2),
        timed(one, [1.15], control=1.06),  # the noise floor reaches over the bound
        timed(one, [1.15], blocks=1),
        [r for r in timed(one, [1.15]) if not parse(r["case"]).is_control],
    ):
        assert judged(one, [*records, *verified(one)]).verdict == UNDECIDED
    assert judged(one, [*timed(one, [1.15], control=1.02), *verified(one)]).verdict == MET


def test_ratios_are_formed_inside_interpreters_alone() -> None:
    one = planned(at_most=1.2)
    records = timed(one, [1.1])
    for r in records:
        if r["case"] == one.measured[0].id:
            r["interpreter"] += "-another"
    found = judged(one, [*records, *verified(one)])
    assert found.verdict == judge.UNMEASURED
    assert found.worst is None


BOTH = ("multi_head.sdpa", "multi_head.matmul")


@pytest.mark.parametrize(
    ("ratios", "says", "worst"),
    [
        ((1.1, 0.9), MET, "multi_head.sdpa"),
        ((1.1, 1.3), MISSED, "multi_head.matmul"),
        ((1.3, 1.1), MISSED, "multi_head.sdpa"),
        ((1.1, 1.2), UNDECIDED, "multi_head.matmul"),
        ((1.4, 1.3), MISSED, "multi_head.sdpa"),
    ],
)
@pytest.mark.parametrize("kind", ["time", "speed-up"])
def test_the_better_baseline_decides(
    kind: str, ratios: tuple[float, float], says: str, worst: str
) -> None:
    bound = {"at_most": 1.2} if kind == "time" else {"at_most": None, "at_least": 1 / 1.2}
    one = planned(kind=kind, baselines=BOTH, **bound)
    found = judged(one, [*timed(one, ratios), *verified(one)])
    assert found.verdict == says
    assert found.worst is not None
    assert found.worst.baseline == worst


def test_a_baseline_that_runs_out_of_memory_does_not_decide_and_is_named() -> None:
    one = planned(baselines=BOTH)
    lost = one.baselines[1]
    records = [
        r | {"status": "oom", "detail": "too large"} if parse(r["case"]) == lost else r
        for r in timed(one, (1.1, 0.1))
    ]
    found = judged(one, [*records, *verified(one)])
    assert found.verdict == MET
    assert "multi_head.matmul: oom: too large" in found.detail
    nothing = [r | {"status": "oom"} if parse(r["case"]) in one.baselines else r for r in records]
    assert judged(one, nothing).verdict == judge.UNMEASURED


@pytest.mark.parametrize("status", ["wrong", "crash", "timeout"])
def test_a_baseline_that_could_have_won_leaves_it_open(status: str) -> None:
    one = planned(baselines=BOTH)
    lost = one.baselines[1]
    records = [
        r | {"status": status} if parse(r["case"]) == lost else r for r in timed(one, (1.1, 0.1))
    ]
    assert judged(one, [*records, *verified(one)]).verdict == UNDECIDED
    missed = [
        r | {"status": status} if parse(r["case"]) == lost else r for r in timed(one, (1.5, 0.1))
    ]
    assert judged(one, [*missed, *verified(one)]).verdict == MISSED


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ((120, 120, 120), MET),
        ((125, 125, 125), MET),
        ((126, 126, 126), MISSED),
        ((120, 125, 130), UNDECIDED),
        ((120,), UNDECIDED),
    ],
)
def test_memory_is_judged_without_a_noise_floor(sizes: tuple[int, ...], says: str) -> None:
    one = planned(kind="memory", phase="training", at_most=1.25)
    [case], [base] = one.measured, one.baselines
    records = [time_record(c, 0, 1.0) for c in (case, base)]
    for block, size in enumerate(sizes):
        records += [memory_record(case, block, size), memory_record(base, block, 100)]
    found = judged(one, [*records, *verified(one)])
    assert found.verdict == says
    assert all(not c.is_control for c in one.cases)


@pytest.mark.parametrize(
    ("held", "says", "exponent"),
    [
        ({2048: 100, 4096: 200}, MET, 1.0),
        ({2048: 100, 4096: 230}, MISSED, 1.2),
        ({2048: 100, 4096: 400}, MISSED, 2.0),
    ],
)
def test_growth_is_the_exponent_over_the_last_lengths(
    held: dict[int, float], says: str, exponent: float
) -> None:
    one = planned(kind="growth", phase="training", lengths=(1024, 2048, 4096), at_most=1.1)
    records = [time_record(case, 0, 1.0) for case in one.measured]
    for block in range(3):
        for case in one.measured:
            records.append(memory_record(case, block, held.get(case.problem.length, 1.0)))
    found = judged(one, [*records, *verified(one)])
    assert found.verdict == says
    assert found.worst is not None
    assert found.worst.value.ratio == pytest.approx(exponent, abs=0.01)
    assert found.worst.value.known
    assert table.found_text(one.goal, found.worst, says).startswith(f"n^{exponent:.2f}")


def test_what_must_fit_fits_or_does_not() -> None:
    one = planned(kind="fits", at_most=None, baselines=())
    assert judged(one, [time_record(one.measured[0], 0, 1.0)]).verdict == MET
    lost = time_record(one.measured[0], 0, 1.0) | {"status": "oom", "detail": "no room"}
    found = judged(one, [lost])
    assert found.verdict == "oom"
    assert "no room" in found.detail


def test_nothing_is_met_without_a_verified_error_or_with_a_wrong_one() -> None:
    one = planned()
    records = timed(one, [1.1])
    assert judged(one, records).verdict == UNDECIDED
    assert "not verified" in judged(one, records).detail
    wrong = [*records, margin_record(one.measured[0], "wrong")]
    assert judged(one, wrong).verdict == "wrong"
    assert judged(one, timed(one, [1.3])).verdict == MISSED


def test_what_is_faster_than_the_machine_is_withheld() -> None:
    one = planned()
    case = one.measured[0]
    least = work_of(KNOWN.mechanisms["mtsa"], case).operations
    rate = least / 2.0 / 1.2  # the median block takes 2
    peaks = test_roofline.peaks(gauge=gauge_of(case).id, gemm_operations_per_second=rate)
    found = judged(one, [*timed(one, [1.1]), *verified(one), peaks])
    assert found.verdict == "withheld"
    assert "ours: 120%" in found.detail or "ours: 119%" in found.detail
    slower = peaks | {"gemm_operations_per_second": 4 * rate}
    found = judged(one, [*timed(one, [1.1]), *verified(one), slower])
    assert found.verdict == MET
    assert found.share == pytest.approx(0.3, rel=0.02)
    assert found.worst is not None
    base = work_of(KNOWN.mechanisms["multi_head"], one.baselines[0]).operations
    assert found.worst.operations_ratio == pytest.approx(least / base)
    # Operations and how fast each side does them are all that a ratio of times is made of.
    made_of = found.worst.operations_ratio * found.worst.share / found.share
    assert made_of == pytest.approx(found.worst.value.ratio, rel=0.02)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"by_scale": [[1, 1e-7], [100, 1.9e-5]], "gradient_error": 1e-5, "margin": 2.0}, MET),
        ({"by_scale": [[1, 2e-5], [100, 1e-6]], "gradient_error": 1e-5, "margin": 2.0}, MET),
        ({"by_scale": [[1, 1e-7]], "gradient_error": 0.5, "margin": 0.99}, MISSED),
        ({"by_scale": [[1, 1e-7]], "gradient_error": 1e-5}, MISSED),
        ({"by_scale": [[1, 1e-7], [100, 2.1e-5]], "gradient_error": 1e-5}, MISSED),
        ({"by_scale": [[1, 1e-7], [100, math.inf]], "gradient_error": 1e-5}, MISSED),
        ({"by_scale": [[1, 1e-7], [100, math.nan]], "gradient_error": 1e-5}, MISSED),
        ({"by_scale": [[1, 1e-7]], "gradient_error": math.inf}, MISSED),
        ({"by_scale": [[1, 1e-7]]}, MISSED),
        ({"by_scale": "1e-7"}, judge.UNMEASURED),
        ({"by_scale": [[1, "1e-7"]]}, judge.UNMEASURED),
        ({"status": "unsupported", "detail": "no compiler"}, "unsupported"),
    ],
)
def test_errors_are_judged_by_the_largest(record: dict[str, Any], says: str) -> None:
    goal = goal_of(kind="accuracy", at_most=2e-5, score_scales=(1, 100))
    found = judge.judge_accuracy(goal, "", {"status": "ok", **record})
    assert found.verdict == says


def test_what_is_not_there_says_so() -> None:
    one = planned(measured="mtsa.nonsense")
    assert not one.cases
    found = judged(one, [])
    assert (found.verdict, "no implementation 'nonsense'" in found.detail) == ("missing", True)
    gpu = planned(device="cuda")
    assert judge.judge(gpu, None).verdict == judge.NOT_HERE
    assert "CUDA" in judge.judge(gpu, None).detail
    assert judged(planned(), []).verdict == judge.UNMEASURED
    [lost] = plan.planned([goal_of(kind="accuracy", measured="mtsa.x")], MEASURING, KNOWN)
    [result] = store.judge_all([lost], {}, KNOWN.mechanisms)
    assert result.verdict == "missing"


def test_a_value_without_a_bound_is_shown_beside_every_baseline() -> None:
    one = planned(row=0, at_most=None, baselines=BOTH)
    found = judged(one, timed(one, (1.1, 1.3)))
    assert found.verdict == "shown"
    assert len(table.rows([found])) == 2
    goal = planned(baselines=BOTH)
    assert len(table.rows([judged(goal, timed(goal, (1.1, 1.3)))])) == 1


def test_the_tables_hold_the_whole_row() -> None:
    one = planned(baselines=BOTH, prototype=1.24)
    peaks = test_roofline.peaks(gauge=gauge_of(one.measured[0]).id)
    memory = [memory_record(one.measured[0], 0, 3 * 2**20)]
    memory += [memory_record(base, 0, 2**21) for base in one.baselines]
    records = [*timed(one, (1.1, 1.3)), *verified(one), *memory, peaks]
    found = judged(one, records)
    held = {"cpu": store.Held({"model": "some machine", "torch": "2"}, records, {})}
    [line] = table.rows([found])
    cells = dict(zip(table.HEADS, line, strict=True))
    assert cells["measured : against"] == "mtsa.algorithm1 : multi_head.matmul"
    assert cells["bound"] == "<= 1.2x"
    assert cells["found"].startswith("1.30x [")
    assert (cells["verdict"], cells["off"]) == ("missed", "+8 %")
    assert cells["ops"] == "1.13x"
    assert "%" in cells["of peak"]
    assert cells["memory"] == "3.00 MiB 1.50x"
    assert (cells["margin"], cells["prototype"]) == ("10x", "1.24x")
    text = table.markdown([found], held)
    assert text.splitlines()[2].count("|") == len(table.HEADS) + 1
    assert "g: missed: 1.13x the operations of multi_head.matmul" in text
    assert "1 missed." in text
    assert "some machine (cpu, one thread), torch 2; up to 7 blocks" in text
    told = table.markdown([found], {"cpu": replace(held["cpu"], commits=("1234567", "89abcde+"))})
    assert told.endswith("over blocks; commits 1234567, 89abcde+.")
    assert text.endswith("over blocks.")
    out = Console(width=200, file=io.StringIO())
    table.print_results(out, [found], held)
    assert isinstance(out.file, io.StringIO)
    assert "1.30x [" in out.file.getvalue()
    told = json.loads(json.dumps(table.as_json([found], held), allow_nan=False))
    assert told["goals"][0]["verdict"] == "missed"
    assert told["goals"][0]["distance"] == pytest.approx(found.distance)


def test_goals_of_a_device_that_is_not_here_share_a_sentence_and_have_no_row() -> None:
    here = judged(planned(), [])
    waiting = [judge.not_here(goal_of(id=name, device="cuda")) for name in ("far", "farther")]
    assert len(table.rows([here, *waiting])) == 1
    assert "Not here (needs CUDA): far, farther." in table.sentences([here, *waiting], {})
    assert not any("far" in line for line in table.remarks(waiting))
    both = [replace(here, goal=goal_of(id=name), detail="the same") for name in ("one", "two")]
    assert table.remarks(both) == [f"one, two: {here.verdict}: the same"]


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
        ("at_most = 1.2", "at_most = -1", "at_most is -1; expected a number above 0"),
        ("at_most = 1.2", "at_most = true", "at_most is True; expected a number above 0"),
        ("at_most = 1.2", "at_least = 1.2", "needs at_most"),
        ("at_most = 1.2", "at_most = 1.2\nat_least = 1.3", "can't have at_least"),
        ("at_most = 1.2", "at_most = 1.2\nspeed = 3", "has the word 'speed'"),
        ('kind = "time"', 'kind = "speed"', "kind is 'speed'; expected one of time"),
        ('kind = "time"', 'kind = "growth"', "can't have baselines"),
        ('pass = "forward"', 'pass = "sideways"', "pass is 'sideways'"),
        ('dtype = "f32"', 'dtype = "f8"', "dtype is 'f8'"),
        ("lengths = [8]", "lengths = 8", "lengths is 8; expected a list"),
        ("lengths = [8]", "lengths = []", "expected a list of whole numbers"),
        ("batch = 2", "batch = 0", "batch is 0"),
        ("width = [12, 16]", "width = [12]", "width is [12]; expected [d_in, d_out]"),
        ('id = "tiny"', "", "goal '(without id)' has no id"),
        ("heads = 4", "", "needs heads"),
        ("[[goal]]", "[[goal]", "is no TOML"),
        ("[[goal]]", "[[goals]]", "expected one [measuring] and at least one [[goal]]"),
        ("[measuring]", "[measuring]\nrounds = 3", "[measuring]:"),
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


def test_only_and_instead_refuse_what_is_not_there() -> None:
    goals = load()
    with pytest.raises(UsageError, match=r"no goal 'a-f32-foward'; did you mean .*a-f32-forward"):
        goals.chosen(["a-f32-foward"])
    assert not [g for g in goals.chosen() if not g.row]
    assert next(g.id for g in goals.chosen(["sweep-core-f32-forward"])).endswith("-n16")
    for text, says in (("mtsa", "expected e.g."), ("none.x=mtsa.plain", "measures 'none.x'")):
        with pytest.raises(UsageError, match=says):
            instead(goals.chosen(), [text])
    changed = instead(
        goals.chosen(["windows-128", "a-f32-forward"]), ["msmsa.windowed=msmsa.masked"]
    )
    names = {g.id: g.measured for g in changed}
    assert names["windows-128"].startswith("msmsa.masked[scales=1;")
    assert names["a-f32-forward"] == "mtsa.fused"


# --- sessions and resumption


def tiny_goals() -> list[Goal]:
    small = {"batch": 2, "width": (12, 16), "baseline_width": (12, 16), "heads": 4}
    return [
        goal_of(id="a", lengths=(8,), baselines=BOTH, **small),
        goal_of(id="b", lengths=(8,), baselines=("multi_cnn.conv",), **small),
        goal_of(id="c", lengths=(9,), **small),
    ]


def made_up_sessions(folder: Path, count: int = 3) -> list[Session]:
    plans = plan.planned(tiny_goals(), MEASURING, KNOWN)
    profile = replace(plan.profile_of(MEASURING, "cpu", count), memory_blocks=1, limit_seconds=30)
    made = plan.sessions(plans, profile, KNOWN, folder, FINGERPRINT)
    return [replace(s, margin_call=f"{HERE}margin_case") for s in made]


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in INSTEAD:
        monkeypatch.setattr(module, name, value)


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


class Stop(Exception):
    """The user's ctrl-C, at a place of our choice."""


@pytest.mark.parametrize("after", [1, 4, 9, 13, 17])
def test_killed_and_started_again_every_ratio_is_there_and_nothing_is_done_twice(
    tmp_path: Path, made_up: None, after: int
) -> None:
    session, _ = made_up_sessions(tmp_path)
    steps = 0

    def stop(step: Any, record: Mapping[str, Any]) -> None:
        nonlocal steps
        steps += 1
        if steps == after:
            raise Stop

    with pytest.raises(Stop):
        runner.run(session, stop, {})
    session, _ = made_up_sessions(tmp_path)
    runner.run(session, lambda step, record: None, {})
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


def test_a_session_started_again_measures_nothing(tmp_path: Path, made_up: None) -> None:
    made = made_up_sessions(tmp_path)
    for session in made:
        runner.run(session, lambda step, record: None, {})
    before = len(journal.read(tmp_path).records)
    again = made_up_sessions(tmp_path)
    assert [s.missing() for s in again] == [0, 0]
    for session in again:
        runner.run(session, lambda step, record: None, {})
    assert len(journal.read(tmp_path).records) == before


def test_a_failed_baseline_keeps_nobody_waiting(
    tmp_path: Path, made_up: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up_time = runner.Runner._execute

    def lost(self: Any, interpreter: Any, task: Any) -> Any:
        outcome = made_up_time(self, interpreter, task)
        if task.kind == "time" and task.case.name == "multi_head.matmul":
            return replace(outcome, status="oom", value=None, detail="no room")
        return outcome

    monkeypatch.setattr(runner.Runner, "_execute", lost)
    session, _ = made_up_sessions(tmp_path)
    runner.run(session, lambda step, record: None, {})
    session, _ = made_up_sessions(tmp_path)
    assert session.missing() == 0
    plans = plan.planned(tiny_goals(), MEASURING, KNOWN)
    [held] = [store.held_by([session], [], tmp_path, FINGERPRINT)]
    result = store.judge_all(plans[:1], {"cpu": held}, KNOWN.mechanisms)[0]
    assert [one.baseline for one in result.against] == ["multi_head.sdpa"]


# --- records of a folder


def put(folder: Path, records: Sequence[Mapping[str, Any]], **session: Any) -> None:
    writer = journal.Writer(folder, {"fingerprint": {"model": "some machine"}, **session})
    for record in records:
        writer.append(record)
    writer.close()


def test_a_folder_is_judged_by_its_newest_code(tmp_path: Path) -> None:
    one = planned(at_most=1.2)
    old = [r | {"key": r["key"] + "o", "code": "old"} for r in timed(one, [1.4])]
    put(tmp_path, [*old, *timed(one, [1.1]), *verified(one)])
    held, warnings = store.read_folder(tmp_path, [one])
    assert not warnings
    [result] = store.judge_all([one], held, KNOWN.mechanisms)
    assert result.verdict == MET
    assert held["cpu"].blocks == 7


def test_two_machines_are_not_mixed_and_nothing_is_nothing(tmp_path: Path) -> None:
    one = planned()
    with pytest.raises(UsageError, match="holds no record of these goals"):
        store.read_folder(tmp_path, [one])
    records = timed(one, [1.1])
    put(tmp_path, records)
    put(tmp_path, [r | {"key": r["key"] + "2", "fingerprint": "another"} for r in records])
    with pytest.raises(UsageError, match="2 different machines"):
        store.read_folder(tmp_path, [one])


# --- the command


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    """A real run of small goals in two blocks: goals file, journal, what came of it."""
    folder = tmp_path_factory.mktemp("goals")
    more = ENTRY.replace('"tiny"', '"tiny-core"').replace("mtsa.algorithm1", "core_mtsa.algorithm1")
    more = more.replace("multi_head.sdpa", "core_dot.sdpa").replace("[12, 16]", "[64, 16]")
    more = more.replace("at_most = 1.2", "at_most = 100\nbaseline_width = [48, 16]")
    more = more.replace('"forward"', '"training"')
    memory = ENTRY.replace('"tiny"', '"tiny-memory"').replace('"time"', '"memory"')
    memory = memory.replace("at_most = 1.2", "at_most = 1000")
    fits = ENTRY.replace('"tiny"', '"tiny-fits"').replace('"time"', '"fits"')
    fits = fits.replace('baselines = ["multi_head.sdpa"]', "").replace("at_most = 1.2", "")
    errors = '[[goal]]\nid = "tiny-errors"\nrow = 9\nwhat = "errors"\nkind = "accuracy"\n'
    errors += 'measured = "mtsa.algorithm1"\ndtype = "f32"\nscore_scales = [1, 100]\n'
    errors += "at_most = 2e-5\n"
    lost = ENTRY.replace('"tiny"', '"tiny-lost"').replace("mtsa.algorithm1", "mtsa.nonsense")
    gpu = ENTRY.replace('"tiny"', '"tiny-gpu"') + 'device = "cuda"\n'
    goals = written(folder, HEAD + ENTRY + more + memory + fits + errors + lost + gpu)
    results = folder / "results"
    told = folder / "told.json"
    done = invoke(
        "--goals", str(goals), "--journal", str(results), "--json", str(told), "--device", "cpu"
    )
    return goals, results, done


@pytest.mark.nightly
def test_a_real_run_measures_judges_and_tells(real: tuple[Path, Path, Any]) -> None:
    goals, _, done = real
    assert done.exit_code == 1, done.output  # one implementation is not there
    told = json.loads((goals.parent / "told.json").read_text())
    by_id = {g["goal"]["id"]: g for g in told["goals"]}
    assert by_id["tiny"]["verdict"] in (MET, MISSED, UNDECIDED)
    assert by_id["tiny"]["against"][0]["value"]["count"] == 2
    assert by_id["tiny"]["against"][0]["operations_ratio"] > 1
    assert by_id["tiny"]["margin"] > 1
    assert 0 < by_id["tiny"]["share"] < 1
    assert by_id["tiny-core"]["verdict"] in (MET, UNDECIDED)
    assert by_id["tiny-core"]["margin"] > 1
    assert by_id["tiny-fits"]["verdict"] == MET
    assert by_id["tiny-errors"]["verdict"] == MET
    assert by_id["tiny-lost"]["verdict"] == "missing"
    assert by_id["tiny-gpu"]["verdict"] == judge.NOT_HERE
    assert "no implementation 'nonsense'" in done.output


@pytest.mark.nightly
def test_a_real_run_goes_on_where_it_was_and_codes_say_what_happened(
    real: tuple[Path, Path, Any],
) -> None:
    goals, results, _ = real
    before = sorted(path.name for path in results.glob("*.jsonl"))
    arguments = ("--goals", str(goals), "--journal", str(results), "--device", "cpu")
    again = invoke(*arguments, "--only", "tiny-fits", "--only", "tiny-errors")
    assert again.exit_code == 0, again.output
    assert "0 of them missing" in again.output
    assert sorted(path.name for path in results.glob("*.jsonl")) == before
    tight = written(results, goals.read_text().replace("at_most = 2e-5", "at_most = 1e-12"))
    missed = ("--goals", str(tight), "--from", str(results), "--only", "tiny-errors")
    assert invoke(*missed).exit_code == 0
    assert invoke(*missed, "--strict").exit_code == 1
    readme = invoke(*missed, "--markdown")
    assert readme.stdout.startswith("| goal |")
    assert "| missed |" in readme.stdout
    assert sorted(path.name for path in results.glob("*.jsonl")) == before


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(tmp_path: Path) -> None:
    goals = written(tmp_path, HEAD + ENTRY)
    folder = tmp_path / "results"
    done = invoke("--goals", str(goals), "--journal", str(folder), "--dry-run")
    assert done.exit_code == 0, done.output
    assert "mtsa.algorithm1-B2-N8-D12x16-H4-f32-forward-cpu+1-thread" in done.output
    assert "multi_head.sdpa-B2-N8-D12x16-H4-f32-forward-cpu+1-thread+control" in done.output
    assert not folder.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "nonsense"], "there is no goal 'nonsense'"),
        (["--blocks", "0"], "--blocks: given 0"),
        (["--instead", "mtsa"], "expected e.g. mtsa.fused=mtsa.algorithm1"),
        (["--from", "nowhere"], "holds no record"),
        (["--device", "tpu"], "given 'tpu'"),
        (["--goals", "nowhere.toml"], "can't read the goals"),
        (["--json", "nowhere/out.json"], "can't write --json"),
    ],
)
def test_a_wrong_option_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


# --- cores


CORES = [
    "core_mtsa.plain",
    "core_mtsa.algorithm1",
    "core_dot.plain",
    "core_dot.matmul",
    "core_dot.sdpa",
]


def core_id(name: str, n: int, dtype: str, phase: str = "training", batch: int = 2) -> str:
    width = 64 if name.startswith("core_mtsa") else 48
    return f"{name}-B{batch}-N{n}-D{width}x16-H4-{dtype}-{phase}-cpu"


@pytest.mark.parametrize("n", [1, 2, 65])
@pytest.mark.parametrize(
    "name", [*CORES, "core_dot.sdpa[causal=true]", "core_dot.matmul[causal=true]"]
)
def test_cores_are_what_their_oracles_say(name: str, n: int) -> None:
    for dtype in ("f64", "f32"):
        found = check_case(core_id(name, n, dtype), [plan.GIVEN])
        assert found["verdict"] == "ok", found


def test_a_core_that_computes_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(self: Any, x: torch.Tensor) -> Any:
        q, k, v, s = cores.CoreLayer.project(self, x)
        return q, k, s, v

    monkeypatch.setattr(cores.Algorithm1Core, "project", shifted)
    assert check_case(core_id("core_mtsa.algorithm1", 8, "f32"), [plan.GIVEN])["verdict"] == "wrong"


def test_a_core_takes_views_and_has_no_weights() -> None:
    core = cores.Algorithm1Core(64, 16, heads=4)
    assert not list(core.parameters())
    x = torch.randn(2, 7, 64)
    for i, part in enumerate(core.project(x)):
        assert part.shape == (4, 2, 7, 4)
        assert part.stride(-1) == 1
        assert part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert torch.equal(part[1], x[..., 16 * i + 4 : 16 * i + 8])


@pytest.mark.parametrize(("name", "width"), [("core_mtsa.plain", 48), ("core_dot.sdpa", 64)])
def test_a_core_refuses_other_widths(name: str, width: int) -> None:
    case = f"{name}-B2-N8-D{width}x16-H4-f32-forward-cpu"
    with pytest.raises(ValueError, match="tensors of width d_out side by side: give d_in="):
        check_case(case, [plan.GIVEN])


def test_half_of_the_pairs_and_twice_the_width_make_three_quarters() -> None:
    """The limit that the project's notes derive: 6d/2 against 4d, and 20d/2 against 14d."""
    for phase, limit in (("forward", 0.75), ("training", 10 / 14)):
        ours = parse(core_id("core_mtsa.plain", 4096, "f32", phase))
        base = parse(core_id("core_dot.sdpa", 4096, "f32", phase))
        ratio = (
            work_of(KNOWN.mechanisms["core_mtsa"], ours).operations
            / work_of(KNOWN.mechanisms["core_dot"], base).operations
        )
        assert ratio == pytest.approx(limit, rel=1e-3)


def test_code_of_a_core_is_that_of_its_own_file_and_what_it_imports() -> None:
    files = registry._files_elsewhere(
        ("suites.programs.goals.cores", "suites.programs.goals.fused_core")
    )
    names = {path.name for path in files}
    assert {"cores.py", "fused_core.py", "geometry.py", "optimized.py"} <= names
    assert code_hash(KNOWN.mechanisms["core_mtsa"], "measure") != code_hash(
        replace(KNOWN.mechanisms["core_mtsa"], implementations=()), "measure"
    )


# --- errors


def test_errors_of_growing_scores_are_found_and_a_broken_kernel_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fine = accuracy.errors("mtsa.algorithm1", "f32", "cpu", [1, 100])
    assert [scale for scale, _ in fine["by_scale"]] == [1, 100]
    assert 0 < max(error for _, error in fine["by_scale"]) < 2e-5
    assert fine["margin"] > 1
    monkeypatch.setattr(optimized, "least_denominator", lambda dtype, length: 0.0)
    broken = accuracy.errors("mtsa.algorithm1", "f32", "cpu", [1, 100])
    assert max(error for _, error in broken["by_scale"]) > 2e-5


# --- what is published


def test_the_docs_show_the_published_records() -> None:
    """By ``python -m suites.programs.goals --from FOLDER --markdown``."""
    published = "reports/published/cpu/goals"
    shown = (ROOT / f"{published}.md").read_text(encoding="utf-8").rstrip()
    plans = plan.planned(load().chosen(), load().measuring, KNOWN)
    held, warnings = store.read_folder(ROOT / published, plans)
    assert warnings == []
    results = store.judge_all(plans, held, KNOWN.mechanisms)
    here = [result for result in results if result.goal.device == "cpu"]
    assert {result.verdict for result in here} <= {MET, MISSED, UNDECIDED}
    assert shown == table.markdown(results, held)
