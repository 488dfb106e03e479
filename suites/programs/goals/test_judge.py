"""Samples made up beforehand, and what the goals say of them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from harness.case import Case, parse
from harness.measure.ceilings import gauge_of, work_of
from suites.harness.measure.test_roofline import peaks
from suites.harness.records.test_ratios import made, margin, record
from suites.programs.goals import __main__ as program
from suites.programs.goals import judge, plan
from suites.programs.goals.judge import MET, MISSED, UNDECIDED, Readings, Result
from suites.programs.goals.plan import Goal, Planned, load
from suites.support.command_line import printed

KNOWN = plan.registry()
PROFILES = load().profiles
BOTH = ("multi_head.sdpa", "multi_head.matmul")
BOUNDS: dict[str, dict[str, Any]] = {
    "time": {"at_most": 1.2},
    "speed-up": {"at_most": None, "at_least": 1 / 1.2},
}
"""A speed-up is the baseline's time over ours."""


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
    [one] = plan.planned([goal_of(**more)], PROFILES, KNOWN)
    return one


def held(case: Case, block: int, size: float) -> dict[str, Any]:
    """A reading of memory."""
    return made("memory", case.id, block, transient_bytes=size, peak_bytes=size)


def verified(one: Planned) -> list[dict[str, Any]]:
    return [margin(case.id) for case in (*one.measured, *one.baselines)]


def timed(
    one: Planned,
    ratios: Sequence[float],
    noise: float = 0.002,
    control: float = 1.0,
    blocks: int = 7,
) -> list[dict[str, Any]]:
    """Times of every block: each baseline takes 1, ours the given ratio to it (one for each).

    What hits a block as a whole is large.
    """
    draw = random.Random(0)
    records = []
    for block in range(blocks):
        drift = 2.0 ** (block % 3)
        [case] = one.measured
        records.append(record(case.id, block, drift * math.exp(draw.gauss(0, noise))))
        for base, ratio in zip(one.baselines, ratios, strict=True):
            for case, factor in ((base, 1.0), (base.control(), control)):
                seconds = factor * drift / ratio * math.exp(draw.gauss(0, noise))
                records.append(record(case.id, block, seconds))
    return records


def judged(one: Planned, records: Sequence[Mapping[str, Any]]) -> Result:
    return judge.judge(one, Readings(records, KNOWN.mechanisms))


@pytest.mark.parametrize(
    ("ratios", "says", "worst"),
    [
        ((1.1, 0.9), MET, "multi_head.sdpa"),
        ((1.1, 1.3), MISSED, "multi_head.matmul"),
        ((1.1, 1.2), UNDECIDED, "multi_head.matmul"),
    ],
)
@pytest.mark.parametrize("kind", BOUNDS)
def test_times_are_judged_by_the_better_baseline_on_the_right_side_of_the_bound(
    kind: str, ratios: tuple[float, float], says: str, worst: str
) -> None:
    one = planned(kind=kind, baselines=BOTH, **BOUNDS[kind])
    found = judged(one, [*timed(one, ratios), *verified(one)])
    assert found.verdict == says
    assert found.worst is not None
    assert found.worst.baseline == worst
    value = found.worst.value
    ratio = max(ratios)
    assert value.ratio == pytest.approx(ratio if kind == "time" else 1 / ratio, rel=0.01)
    assert value.low < value.ratio < value.high
    # A share of the bound, above zero beyond it.
    assert found.distance == pytest.approx(ratio / 1.2 - 1, abs=0.01)


@pytest.mark.parametrize("kind", BOUNDS)
def test_noise_and_too_few_blocks_leave_it_undecided(kind: str) -> None:
    one = planned(kind=kind, **BOUNDS[kind])
    ours = one.measured[0].id
    for records in (
        timed(one, [1.15], noise=0.2),
        # of ours alone, and half of its interval is beyond the bound
        [
            r | {"median": r["median"] * (1.3 if r["case"] == ours and r["block"] % 2 else 1.0)}
            for r in timed(one, [1.0])
        ],
        timed(one, [1.15], control=1.06),  # the noise floor reaches over the bound
        timed(one, [1.15], blocks=1),
        [r for r in timed(one, [1.15]) if not parse(r["case"]).is_control],
    ):
        assert judged(one, [*records, *verified(one)]).verdict == UNDECIDED
    assert judged(one, [*timed(one, [1.15], control=1.02), *verified(one)]).verdict == MET


def test_a_baseline_of_another_interpreter_is_none() -> None:
    one = planned()
    records = [
        r | {"interpreter": f"of {r['case']}"} if r["case"] == one.measured[0].id else r
        for r in timed(one, [1.1])
    ]
    found = judged(one, [*records, *verified(one)])
    assert (found.verdict, found.worst) == (judge.UNMEASURED, None)
    assert "multi_head.sdpa: not measured side by side" in found.detail


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("oom", MET),
        ("unsupported", MET),
        ("wrong", UNDECIDED),
        ("crash", UNDECIDED),
        ("timeout", UNDECIDED),
    ],
)
def test_a_failed_baseline_is_named_and_leaves_it_open_if_it_could_have_won(
    status: str, says: str
) -> None:
    one = planned(baselines=BOTH)

    def without_the_second(ratio: float) -> Result:
        records = [
            r | {"status": status, "detail": "why"} if parse(r["case"]) == one.baselines[1] else r
            for r in timed(one, (ratio, 0.1))
        ]
        return judged(one, [*records, *verified(one)])

    found = without_the_second(1.1)
    assert found.verdict == says
    assert f"multi_head.matmul: {status}: why" in found.detail
    assert without_the_second(1.5).verdict == MISSED


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
    records = [record(c.id, 0, 1.0) for c in (case, base)]
    for block, size in enumerate(sizes):
        records += [held(case, block, size), held(base, block, 100)]
    found = judged(one, [*records, *verified(one)])
    assert found.verdict == says
    assert all(not c.is_control for c in one.cases)


@pytest.mark.parametrize(
    ("sizes", "says", "exponent"),
    [
        ({2048: 100, 4096: 200}, MET, 1.0),
        ({2048: 100, 4096: 230}, MISSED, 1.2),
        ({2048: 100, 4096: 400}, MISSED, 2.0),
    ],
)
def test_growth_is_the_exponent_over_the_last_lengths(
    sizes: dict[int, float], says: str, exponent: float
) -> None:
    one = planned(kind="growth", phase="training", lengths=(1024, 2048, 4096), at_most=1.1)
    records = [record(case.id, 0, 1.0) for case in one.measured]
    for block in range(3):
        for case in one.measured:
            records.append(held(case, block, sizes.get(case.problem.length, 1.0)))
    found = judged(one, [*records, *verified(one)])
    assert found.verdict == says
    assert found.worst is not None
    assert found.worst.value.ratio == pytest.approx(exponent, abs=0.01)
    assert found.worst.value.known


@pytest.mark.parametrize(("factor", "says"), [(0.97, MET), (1.0, UNDECIDED), (1.03, MISSED)])
def test_work_is_a_ratio_of_times_over_that_of_operations(factor: float, says: str) -> None:
    one = planned(kind="work", at_most=1.0)
    [ours], [base] = one.measured, one.baselines
    operations = work_of(KNOWN.mechanisms["mtsa"], ours).operations
    operations /= work_of(KNOWN.mechanisms["multi_head"], base).operations
    assert operations > 1.03
    found = judged(one, [*timed(one, [factor * operations]), *verified(one)])
    assert found.verdict == says
    assert found.worst is not None
    assert found.worst.value.ratio == pytest.approx(factor, rel=0.01)
    [cells] = program.rows([found])
    assert cells[program.HEADS.index("bound")] == "<= 1x ops"


def test_what_must_fit_fits_or_does_not() -> None:
    one = planned(kind="fits", at_most=None, baselines=())
    done = record(one.measured[0].id, 0, 1.0)
    assert judged(one, [done]).verdict == MET
    found = judged(one, [done | {"status": "oom", "detail": "no room"}])
    assert found.verdict == "oom"
    assert "no room" in found.detail


def test_nothing_is_met_without_a_verified_error_or_with_a_wrong_one() -> None:
    one = planned()
    records = timed(one, [1.1])
    found = judged(one, records)
    assert found.verdict == UNDECIDED
    assert "not verified" in found.detail
    assert judged(one, [*records, margin(one.measured[0].id, status="wrong")]).verdict == "wrong"
    assert judged(one, timed(one, [1.3])).verdict == MISSED


def test_a_reading_that_could_not_be_taken_is_told_with_its_reason() -> None:
    one = planned()
    [mine], [base] = one.measured, one.baselines
    records = [*timed(one, [1.3]), *verified(one), held(mine, 0, 4.0), held(base, 0, 2.0)]
    assert judged(one, records).lacking == ()
    lost = {"status": "timeout", "detail": "no result after 60 s"}
    records = [*timed(one, [1.3]), margin(mine.id) | lost, held(mine, 0, 4.0)]
    found = judged(one, records)
    assert found.lacking == (
        "no margin of mtsa.algorithm1: timeout: no result after 60 s",
        "no memory of multi_head.sdpa: not measured",
    )
    [said] = program.remarks([found])
    assert said.endswith("; ".join(found.lacking))


def test_what_is_faster_than_the_machine_is_withheld() -> None:
    one = planned()
    case = one.measured[0]
    rate = work_of(KNOWN.mechanisms["mtsa"], case).operations / 2.0  # the median block takes 2
    for share, says in ((1.2, "withheld"), (0.3, MET)):
        best = peaks(gauge=gauge_of(case).id, gemm_operations_per_second=rate / share)
        found = judged(one, [*timed(one, [1.1]), *verified(one), best])
        assert found.verdict == says
        assert found.share == pytest.approx(share, rel=0.02)
        assert found.detail.startswith("ours: ") == (share > 1)
    assert found.worst is not None
    # Operations and how fast each side does them are all that a ratio of times is made of.
    made_of = found.worst.operations_ratio * found.worst.share / found.share
    assert made_of == pytest.approx(found.worst.value.ratio, rel=0.02)
    beyond = judged(one, [*timed(one, [3.0]), *verified(one), best])
    assert one.goal.at_most is not None
    wanted = beyond.share * beyond.worst.value.ratio / one.goal.at_most if beyond.worst else 0
    assert f"; the bound takes {wanted:.0%}" in judge.bounded_by(beyond)


@pytest.mark.parametrize(
    ("errors", "says"),
    [
        ({"by_scale": [[1, 1e-7], [100, 1.9e-5]], "gradient_error": 1e-5, "margin": 2.0}, MET),
        ({"by_scale": [[1, 1e-7]], "gradient_error": 0.5, "margin": 0.99}, MISSED),
        ({"by_scale": [[1, 1e-7], [100, 2.1e-5]], "gradient_error": 1e-5}, MISSED),
        ({"by_scale": [[1, 1e-7], [100, math.nan]], "gradient_error": 1e-5}, MISSED),
        ({"by_scale": [[1, 1e-7]], "gradient_error": math.inf}, MISSED),
        ({"status": "unsupported", "detail": "no compiler"}, "unsupported"),
    ],
)
def test_errors_are_judged_by_the_largest(errors: dict[str, Any], says: str) -> None:
    goal = goal_of(kind="accuracy", at_most=2e-5, score_scales=(1, 100))
    assert judge.judge_accuracy(goal, {"status": "ok", **errors}).verdict == says


def test_what_is_not_there_says_so() -> None:
    wanted = [
        goal_of(measured="mtsa.nonsense"),
        goal_of(kind="accuracy", measured="mtsa.nonsense"),
        goal_of(device="cuda"),
        goal_of(kind="accuracy", device="cuda"),
        goal_of(),
        goal_of(kind="accuracy"),
    ]
    plans = plan.planned(wanted, PROFILES, KNOWN)
    results = judge.judge_all(plans, {"cpu": judge.Held({}, [])}, KNOWN.mechanisms)
    assert [r.verdict for r in results] == [
        *[judge.MISSING] * 2,
        *[judge.NOT_HERE] * 2,
        *[judge.UNMEASURED] * 2,
    ]
    assert "no implementation 'nonsense'" in results[0].detail


def test_a_value_without_a_bound_is_shown_beside_every_baseline() -> None:
    one = planned(row=0, at_most=None, baselines=BOTH)
    found = judged(one, timed(one, (1.1, 1.3)))
    assert found.verdict == "shown"
    text = printed(lambda out: program.print_results(out, [found], {}))
    assert all(shown in text for shown in ("1.30x [", "1.10x ["))
    assert len(program.rows([found])) == 2
    goal = planned(baselines=BOTH)
    assert len(program.rows([judged(goal, timed(goal, (1.1, 1.3)))])) == 1
