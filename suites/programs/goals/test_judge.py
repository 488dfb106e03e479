"""Samples made up beforehand, and what the goals say of them; the printed table."""

from __future__ import annotations

import io
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from harness.case import Case, parse
from harness.measure.ceilings import gauge_of, work_of
from suites.harness.measure import test_roofline
from suites.programs.goals import judge, plan, store, table
from suites.programs.goals.goal import Goal, load
from suites.programs.goals.judge import MET, MISSED, UNDECIDED, Result
from suites.programs.goals.plan import Planned
from suites.programs.goals.readings import Readings

KNOWN = plan.registry()
MEASURING = load().measuring


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


def a_record(kind: str, case: Case, block: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "key": f"{kind}{case.id}{block}",
        "case": case.id,
        "block": block,
        "status": "ok",
        "fingerprint": "f",
        "code": "c",
        **more,
    }


def time_record(case: Case, block: int, seconds: float) -> dict[str, Any]:
    found = {"samples": [seconds], "median": seconds, "interpreter": f"i{block}"}
    return a_record("time", case, block, **found)


def memory_record(case: Case, block: int, size: float) -> dict[str, Any]:
    return a_record("memory", case, block, transient_bytes=size, peak_bytes=size)


def margin_record(case: Case, status: str = "ok") -> dict[str, Any]:
    found = {"error": 1e-7, "budget": 1e-6, "margin": 10.0, "detail": "over budget"}
    return a_record("margin", case, 0, status=status, **found)


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
            for case, factor in ((base, 1.0), (base.control(), control)):
                seconds = factor * drift / ratio * math.exp(draw.gauss(0, noise))
                records.append(time_record(case, block, seconds))
    return records


def judged(one: Planned, records: Sequence[Mapping[str, Any]]) -> Result:
    return judge.judge(one, Readings(records, KNOWN.mechanisms))


@pytest.mark.parametrize(
    ("kind", "bound", "ratio", "says"),
    [
        ("time", {"at_most": 1.2}, 1.1, MET),
        ("time", {"at_most": 1.2}, 1.2, UNDECIDED),
        ("time", {"at_most": 1.2}, 1.3, MISSED),
        # a speed-up is the baseline's time over ours
        ("speed-up", {"at_least": 2.5}, 1 / 2.7, MET),
        ("speed-up", {"at_least": 2.5}, 1 / 2.5, UNDECIDED),
        ("speed-up", {"at_least": 2.5}, 1 / 2.3, MISSED),
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
        ((1.1, 1.2), UNDECIDED, "multi_head.matmul"),
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
        ({"by_scale": [[1, 1e-7]], "gradient_error": 0.5, "margin": 0.99}, MISSED),
        ({"by_scale": [[1, 1e-7], [100, 2.1e-5]], "gradient_error": 1e-5}, MISSED),
        ({"by_scale": [[1, 1e-7], [100, math.nan]], "gradient_error": 1e-5}, MISSED),
        ({"by_scale": [[1, 1e-7]], "gradient_error": math.inf}, MISSED),
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
