"""Claims on time, memory and growth, on made-up records: value, interval, verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from harness.case import parse
from harness.measure.ceilings import gauge_of
from reports.claims.ledger import ledger
from reports.claims.verdict import Verdict
from suites.reports.claims.conftest import BASE, OURS, SIZE, devices, judged
from suites.support.made_up_records import case, claim, peaks, timed

OTHER = "multi_cnn.conv"
OURS_64 = case(OURS, 64, heads=2)


def times(ratio: float, **more: Any) -> list[dict[str, Any]]:
    seconds = {case(BASE, 64): 1.0, case(OURS, 64, heads=2): ratio, case(OTHER, 64, heads=0): 0.5}
    return list(timed(seconds, **more))


TIME: dict[str, Any] = {"first": f"{OURS}@2", "second": f"{BASE}@8", **SIZE}


def ratio(records: Iterable[dict[str, Any]], published: float = 1.1, **more: Any) -> Verdict:
    """What is said of a printed ratio of times that may be half as much more or less."""
    return judged("time_ratio", records, {"factor": 1.5}, published, **{**TIME, **more})


@pytest.mark.parametrize(
    ("found", "answer"), [(1.2, "reproduced"), (2.5, "not reproduced"), (0.4, "not reproduced")]
)
def test_a_time_ratio_is_judged_by_its_factor(found: float, answer: str) -> None:
    v = ratio(times(found))
    assert v.verdict == answer, v.reason
    assert v.value == pytest.approx(found, rel=0.01)
    assert v.low < found < v.high
    assert v.wanted == "within 1.5x of 1.1, and at least 1"
    assert len(v.keys) == 14
    assert "7 blocks" in v.reason


def test_the_second_may_have_a_width_of_its_own() -> None:
    """It is the case of that width, whichever else was measured in the same blocks."""
    narrow = case(OTHER, 64, heads=0).replace("x600", "")
    seconds = {case(BASE, 64): 1.0, case(OURS, 64): 1.0, case(OTHER, 64, heads=0): 2.0, narrow: 0.5}
    asked = {**TIME, "first": OURS, "second": OTHER}
    wide = judged("time_ratio", timed(seconds), {"at_least": 1}, **asked)
    own = judged("time_ratio", timed(seconds), {"at_least": 1}, **asked, second_width=300)
    assert wide.value == pytest.approx(0.5, rel=0.01)
    assert own.value == pytest.approx(2.0, rel=0.01)
    none = judged("time_ratio", times(1.0), {"at_least": 1}, **asked, second_width=300)
    assert none.verdict == "not testable here"
    assert "attnbench bench --profile paper --only" in none.reason


def test_nothing_smaller_than_the_noise_floor_is_claimed() -> None:
    # The control strays by 20 % although the two cases themselves repeat exactly.
    records = times(1.1, noise=0.0)
    for r in records:
        if r["kind"] == "time" and r["case"].endswith("+control"):
            r["median"] *= 1.2
    v = judged("time_ratio", records, {"at_least": 1.05}, **TIME)
    assert v.value == pytest.approx(1.1)
    assert v.low == pytest.approx(1.1 / 1.2)
    assert v.high == pytest.approx(1.1 * 1.2)
    assert v.verdict == "undecided"
    assert judged("time_ratio", times(1.1, noise=0.0), {"at_least": 1.05}, **TIME).verdict == (
        "reproduced"
    )


def test_without_control_margin_or_a_second_block_nothing_is_decided() -> None:
    for more, word in (
        ({"control": False}, "A/A control"),
        ({"verified": False}, "not verified"),
        ({"blocks": 1}, "no interval"),
    ):
        v = ratio(times(1.1, **more))
        assert v.verdict == "undecided", more
        assert word in v.reason
        assert v.value == pytest.approx(1.1, rel=0.02)


def test_the_preferred_name_is_taken_where_it_is_there() -> None:
    released = case("mtsa_released.algorithm1", 64, heads=2)
    seconds = {case(BASE, 64): 1.0, case(OURS, 64, heads=2): 2.0, released: 3.0}
    names = ["mtsa_released.algorithm1@2", f"{OURS}@2"]
    both = ratio(timed(seconds), 3.0, first=names)
    assert both.value == pytest.approx(3.0, rel=0.01)
    del seconds[released]
    one = ratio(timed(seconds), 3.0, first=names)
    assert one.value == pytest.approx(2.0, rel=0.01)
    assert "mtsa.algorithm1 2h" in one.reason


@pytest.mark.parametrize(
    "wrong",
    [
        {"length": 128},
        {"batch": 2},
        {"phase": "forward"},
        {"first": f"{OURS}@8"},
        {"first": "disa.broadcast"},
    ],
)
def test_what_was_not_measured_is_not_testable_and_says_how(wrong: dict[str, Any]) -> None:
    v = ratio(times(1.1), **wrong)
    assert v.verdict == "not testable here"
    assert v.wants_records
    assert "attnbench bench --only" in v.reason
    assert v.measured == ""


def test_a_case_that_failed_gives_no_ratio() -> None:
    records = times(1.1)
    for r in records:
        if r["kind"] == "time" and r["case"].startswith(OURS):
            r |= {"status": "oom"}
    v = ratio(records)
    assert v.verdict == "undecided"
    assert "mtsa.algorithm1: oom" in v.reason


def test_times_that_bench_withholds_settle_no_claim() -> None:
    assert ratio(times(1.1)).verdict == "reproduced"
    mixed = times(1.1)
    for number, r in enumerate(r for r in mixed if r["case"].startswith(OURS)):
        r["dispatched"] = ["aten::mm"] if number % 2 else ["attnbench::native_forward"]
    peak = {"gemm_operations_per_second": 1e6, "copy_bytes_per_second": 1e15}
    ceiling = {"kind": "peaks", "key": "p", "case": gauge_of(parse(case(OURS, 64, heads=2))).id}
    fast = [
        *times(1.1),
        {**ceiling, **peak, "status": "ok", "read_bytes_per_second": 1e15, "launch_seconds": 1e-9},
    ]
    for records, why in ((mixed, "different kernels"), (fast, "best matrix product")):
        v = ratio(records)
        assert v.verdict == "undecided"
        assert why in v.reason
        assert judged("memory_ratio", records, {"at_most": 1}, **TIME).wants_records


def test_memory_is_judged_by_three_readings_or_more() -> None:
    def of(*ratios: float, **tolerance: Any) -> Verdict:
        cases = {case(OURS, 64, heads=2): [100 * r for r in ratios], case(BASE, 64): [100.0] * 3}
        return judged("memory_ratio", [*times(1.1), *peaks(cases)], tolerance, 1.2, **TIME)

    one = of(1.2, factor=1.25)
    assert (one.value, one.low, one.high) == pytest.approx((1.2, 1.2, 1.2))
    assert one.verdict == "undecided"
    assert "120 MiB and 100 MiB; 1 reading, a verdict needs 3)" in one.reason
    assert len(one.keys) == 4
    assert of(1.2, 1.2, factor=1.25).verdict == "undecided"
    assert of(1.19, 1.2, 1.21, factor=1.25).verdict == "reproduced"
    assert of(1.19, 1.2, 1.21, at_most=1).verdict == "not reproduced"
    for found, direction in ((1.2001, "as published"), (1.3, "less favourable")):
        v = of(found, found, found, factor=1.25)
        assert (v.verdict, v.direction) == ("reproduced", direction), "1.2 and 1.2 look alike"
    three = {OURS_64: [90.0, 120.0, 150.0], case(BASE, 64): [100.0] * 3}
    wide = judged("memory_ratio", [*times(1.1), *peaks(three)], {"at_most": 1.2}, **TIME)
    assert wide.low < 1.0 < wide.high
    assert wide.verdict == "undecided"
    assert judged("memory_ratio", times(1.1), {"at_most": 1}, **TIME).wants_records
    # Of peaks no more than four times what two readings can differ by bench shows no ratio either.
    for floor, answer in ((24, "reproduced"), (25, "undecided")):
        held = [{**r, "floor_bytes": floor * 2**20} for r in peaks({**three, OURS_64: [120.0] * 3})]
        v = judged("memory_ratio", [*times(1.1), *held], {"at_least": 1}, **TIME)
        assert v.verdict == answer, v.reason
        assert ("within 4 times what two readings" in v.reason) == (answer == "undecided")


def sweep(power: float, lengths: tuple[int, ...], noise: float = 0.01) -> list[dict[str, Any]]:
    seconds = {case(OURS, n, batch=2, heads=2): 1e-3 * n**power for n in lengths}
    return list(timed(seconds, noise=noise))


def growth(
    records: Iterable[dict[str, Any]], power: float, room: float = 0.25, **more: Any
) -> Verdict:
    """Whether time grows with such a power of the length."""
    asked = {"first": [f"{OURS}@2"], "cost": "time", "phase": "training", "reach": 1024, **more}
    return judged("slope", records, {"plus_minus": room}, power, **asked)


def test_growth_is_judged_where_the_leading_term_shows() -> None:
    lengths = (64, 256, 1024, 2048)
    v = growth(sweep(2.0, lengths), 2.0)
    assert v.verdict == "reproduced", v.reason
    assert v.value == pytest.approx(2.0, abs=0.05)
    linear = growth(sweep(1.0, lengths), 2.0)
    assert linear.verdict == "not reproduced"
    short = growth(sweep(1.0, (64, 256)), 2.0)
    assert short.verdict == "undecided"
    assert "no sweep of one session reaches N = 1024" in short.reason
    once = [r for r in sweep(2.0, lengths) if r.get("block", 0) == 0]
    single = growth(once, 2.0)
    assert single.verdict == "undecided"
    assert "one block holds all lengths" in single.reason
    assert growth(times(1.0), 2.0).wants_records


def test_growth_of_what_bench_withholds_settles_no_claim() -> None:
    lengths = (256, 1024, 2048)
    mixed = sweep(2.0, lengths)
    for number, r in enumerate(mixed):
        r["dispatched"] = ["aten::mm"] if number % 2 else ["attnbench::native_forward"]
    unverified = [r for r in sweep(2.0, lengths) if r["kind"] != "margin"]
    for records, why in ((unverified, "is not verified"), (mixed, "different kernels")):
        v = growth(records, 2.0)
        assert v.verdict == "undecided"
        assert why in v.reason


def test_growth_is_of_one_width() -> None:
    seconds = {case(OURS, n, batch=2, heads=2): float(n) for n in (256, 512, 1024)}
    wider = {case(OURS, 256, batch=2, heads=2).replace("x600", "x900"): 9000.0}
    v = growth(timed({**seconds, **wider}), 1.0, 0.1)
    assert v.value == pytest.approx(1.0, abs=0.05)
    assert v.verdict == "reproduced"


def test_growth_of_memory() -> None:
    lengths = (256, 1024, 2048)

    def read(times: int) -> list[dict[str, Any]]:
        cases = {case(OURS, n, batch=2, heads=2): [n * 1.0] * times for n in lengths}
        return [*sweep(2.0, lengths), *peaks(cases)]

    records = read(3)
    for few in (1, 2):
        v = growth(read(few), 1.0, cost="memory")
        assert v.verdict == "undecided"
        assert "fewer than the 3 readings that a verdict needs" in v.reason
    v = growth(records, 1.0, cost="memory")
    assert v.value == pytest.approx(1.0)
    assert v.verdict == "reproduced"
    assert growth(records, 2.0, cost="memory").verdict == "not reproduced"
    law = growth(records, 1.1, cost="memory")
    assert (law.verdict, law.direction) == ("reproduced", "as published"), "of a law, no number"


def test_growth_is_that_of_the_longest_sweep_of_the_preferred_name() -> None:
    """Batch 2 ends at 256 and grows little there; batch 4 goes to 1,024."""
    short = timed({case(OURS, n, batch=2, heads=2): s for n, s in ((64, 1.0), (256, 1.1))})
    long = list(timed({case(OURS, n, batch=4, heads=2): float(n) for n in (64, 256, 1024)}))
    other = timed({case(BASE, n, batch=4): 1.0 for n in (64, 256, 4096)})
    v = growth([*short, *long, *other], 1.0, 0.1, reach=256, first=[OURS, BASE])
    assert v.verdict == "reproduced", v.reason
    assert "N = 256 to 1024" in v.reason
    fitted = [r["key"] for r in long if r["kind"] == "time" and "-N64-" not in r["case"]]
    assert set(v.keys) == set(fitted)


@pytest.mark.parametrize(
    ("found", "published", "tolerance", "direction"),
    [
        (1.2, 1.2, {"factor": 1.1}, "as published"),
        # Reproduced, and yet beside what is printed, which the score tells.
        (1.4, 1.2, {"factor": 1.5}, "less favourable"),
        (1.05, 1.2, {"factor": 1.5}, "more favourable"),
        (0.5, None, {"at_most": 1.0}, "as published"),
        (3.0, 1.2, {"factor": 1.5}, "less favourable"),
        (1.05, 2.4, {"factor": 1.5}, "more favourable"),
        (0.5, 2.4, {"factor": 1.5}, "opposite"),
        # Within the factor, and slower instead of faster.
        (1.3, 0.923, {"factor": 1.5}, "opposite"),
        (3.0, 0.4, {"factor": 1.5}, "opposite"),
        (3.0, None, {"alike": 1.25}, "less favourable"),
        (0.3, None, {"alike": 1.25}, "more favourable"),
        # Claimed to lie on one side of equality, without a number.
        (3.0, None, {"at_most": 1.0}, "opposite"),
        (3.0, None, {"at_most": 0.25}, "opposite"),
        (0.9, None, {"at_most": 0.25}, "less favourable"),
        (1.5, 1.2, {"factor": 1.25}, ""),
    ],
)
def test_whom_a_ratio_of_costs_favours(
    found: float, published: float | None, tolerance: dict[str, float], direction: str
) -> None:
    records = times(found, noise=0.05 if not direction else 0.002)
    v = judged("time_ratio", records, tolerance, published, **TIME)
    assert v.direction == direction, (v.verdict, v.reason)
    assert (f" ({direction})" in v.said) == (direction not in ("", "as published"))
    assert v.hardware == "another class"


@pytest.mark.parametrize(("found", "direction"), [(0.1, "less favourable"), (0.97, "more")])
def test_what_is_left_without_a_part_favours_it_the_more_the_less_it_costs(
    found: float, direction: str
) -> None:
    """A model without a part over the whole: printed .69 of the time."""
    tolerance = {"factor": 1.25}
    printed = {"value": 0.69}
    one = claim("time_ratio", parameters=TIME, published=printed, tolerance=tolerance)
    measured = devices(d=times(found, noise=0.002))
    (v,) = ledger(measured, claims=[replace(one, cheap_is_large=True)])
    assert v.direction.startswith(direction), v.reason
    (turned,) = ledger(measured, claims=[one])
    assert {v.direction, turned.direction} == {"less favourable", "more favourable"}


def test_devices_are_never_mixed() -> None:
    one = claim("time_ratio", parameters=TIME, tolerance={"at_most": 1.5})
    found = ledger(devices(fast=times(1.1), slow=times(9.0), none=[]), claims=[one])
    assert [(v.device, v.verdict) for v in found] == [
        ("fast", "reproduced"),
        ("slow", "not reproduced"),
        ("none", "not testable here"),
    ]
    assert not set(found[0].keys) & set(found[1].keys)
