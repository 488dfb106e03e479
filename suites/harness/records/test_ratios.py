"""Ratios inside blocks, noise floor, sentences, figure and page, on records made by hand."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from harness.records.ratios import (
    Row,
    ratios_by_block,
    summarise,
    time_frame,
)
from reports.core.sentences import closing
from reports.core.words import margin_text, memory_text
from reports.pages.bench import cost
from reports.pages.scaling.tables import cells, numbers
from suites.support.made_up_records import peaks, timed
from suites.support.made_up_records import reading as record
from suites.support.made_up_records import record as made

BASE = "multi_head.sdpa"
MINE = "mtsa.algorithm1"
SIZE = {"batch": 64, "length": 64, "heads": 8}


def case_id(name: str, length: int = 64, phase: str = "forward", extra: str = "") -> str:
    return f"{name}-B64-N{length}-D300x600-H8-f32-{phase}-cpu{extra}"


def margin(case: str, error: float = 1e-7, status: str = "ok") -> dict[str, Any]:
    found: dict[str, Any] = {"error": error, "budget": 1e-6, "margin": 1e-6 / error}
    return made("margin", case, status=status, **found, detail="over budget")


def peak(case: str, size: float) -> dict[str, Any]:
    return made("memory", case, transient_bytes=size, peak_bytes=size)


def rows_of(records: list[dict[str, Any]]) -> list[Row]:
    return summarise(records, BASE)


def mine_of(records: list[dict[str, Any]]) -> Row:
    """The row of the case that is compared with the baseline."""
    (row,) = (r for r in rows_of(records) if r.case == case_id(MINE))
    return row


def sweep_records(ratio_at: dict[int, float], blocks: int = 7) -> list[dict[str, Any]]:
    """A sweep whose blocks drift by a fifth and whose ratios are exact up to 1 %."""
    seconds: dict[str, float] = {}
    held: dict[str, list[float]] = {}
    for n, ratio in ratio_at.items():
        for phase in ("forward", "training"):
            base, mine = case_id(BASE, n, phase), case_id(MINE, n, phase)
            seconds |= {base: n / 64, mine: ratio * n / 64}
            held |= {base: [100], mine: [150]}
    return [*timed(seconds, blocks=blocks, noise=0.01), *peaks(held)]


def test_samples_taken_in_turn_say_more_than_times_apart() -> None:
    records = []
    for block in range(3):
        records += [record(case_id(BASE), block, 1.0), record(case_id(MINE), block, 9.0)]
        if block < 2:
            records[-1] |= {"ratio": 1.5, "beside": case_id(BASE)}
    assert mine_of(records).by_block == {0: 1.5, 1: 1.5, 2: 9.0}
    # A ratio to another case is not the ratio to this baseline.
    records[1]["beside"] = case_id(MINE, extra="+control")
    assert mine_of(records).by_block == {0: 9.0, 1: 1.5, 2: 9.0}


def test_two_cases_that_a_third_was_timed_in_turn_with_are_compared_through_it() -> None:
    third = case_id(BASE)
    frames = []
    for case, seconds, ratios in ((MINE, 9.0, (3.0, 4.0)), (BASE, 2.0, (1.5, 1.6))):
        name = case_id(case, 128)
        records = [record(name, block, seconds) for block in range(3)]
        for block, ratio in enumerate(ratios):
            records[block] |= {"ratio": ratio, "beside": third}
        frames.append(time_frame(records))
    found = ratios_by_block(*frames)
    # In the third block neither has one, and the times are all there is.
    assert found == pytest.approx({0: 2.0, 1: 2.5, 2: 4.5})


def test_a_block_of_which_two_sessions_have_a_part_is_no_block() -> None:
    third = case_id(BASE)
    for session, blocks in (("a", {0: 2.0}), ("b", {})):
        frames = []
        for case, ratio, of in ((MINE, 3.0, "a"), (BASE, 1.5, session)):
            one = record(case_id(case, 128), 0, 1.0, interpreter=f"{case} {of}", session=of)
            frames.append(time_frame([one | {"ratio": ratio, "beside": third}]))
        assert ratios_by_block(*frames) == blocks


def test_a_block_is_compared_by_its_seconds_and_an_older_record_by_its_median() -> None:
    case = case_id(BASE)
    frame = time_frame([record(case, 0, 2.0), record(case, 1, 2.0) | {"seconds": 1.5}])
    assert frame["seconds"].tolist() == [2.0, 1.5]


def test_drift_between_blocks_cancels_in_the_ratio() -> None:
    rows = {r.case: r for r in rows_of(sweep_records({64: 1.2}))}
    mine = rows[case_id(MINE)]
    assert mine.time is not None
    assert mine.time.low < 1.2 < mine.time.high
    assert mine.time.high / mine.time.low < 1.05
    assert mine.verdict == "slower"
    assert mine.memory_ratio == pytest.approx(1.5)
    assert rows[case_id(BASE)].verdict == "baseline"


def test_a_resumed_block_is_paired_inside_its_interpreter() -> None:
    records = []
    for block in range(5):
        records.append(record(case_id(BASE), block, 1.0))
        mine = record(case_id(MINE), block, 3.0)
        anchor = record(case_id(BASE), block, 2.0)
        if block >= 3:  # measured another day, when the machine was half as fast
            mine["interpreter"] = anchor["interpreter"] = f"later{block}"
            records.append({**anchor, "kind": "anchor", "key": f"anchor{block}"})
        else:
            mine["median"] = 1.5
        records.append(mine)
    ratio = mine_of(records).time
    assert ratio is not None
    assert ratio.count == 5
    assert (ratio.low, ratio.high) == pytest.approx((1.5, 1.5))


def test_times_of_two_interpreters_are_never_divided() -> None:
    records = [record(case_id(BASE), b, 1.0) for b in range(3)]
    records += [record(case_id(MINE), b, 3.0, interpreter=f"other{b}") for b in range(3)]
    assert mine_of(records).time is None
    assert mine_of(records).verdict == ""


def test_only_blocks_with_both_count() -> None:
    records = [record(case_id(BASE), b, 1.0) for b in (0, 1, 2)]
    records += [record(case_id(MINE), b, 2.0) for b in (1, 2, 3)]
    mine = mine_of(records).time
    assert mine is not None
    assert mine.count == 2
    assert mine.ratio == pytest.approx(2.0)


def test_nothing_is_claimed_below_the_noise_floor() -> None:
    records = []
    for block in range(7):
        records.append(record(case_id(BASE), block, 1.0))
        records.append(record(case_id(BASE, extra="+control"), block, 1.5 if block % 2 else 0.7))
        records.append(record(case_id(MINE), block, 1.1))
    assert mine_of(records).floor > 1.1
    assert mine_of(records).verdict not in ("slower", "faster")


def _control(records: list[dict[str, Any]], status: str | None) -> list[dict[str, Any]]:
    """The same with every control failed, or left out."""
    kept = [r for r in records if "+control" not in r["case"]]
    if status is None:
        return kept
    failed = [r for r in records if "+control" in r["case"]]
    return kept + [{**r, "status": status, "samples": None, "median": None} for r in failed]


@pytest.mark.parametrize("status", [None, "oom", "crash", "timeout"])
def test_without_its_control_a_session_claims_nothing(status: str | None) -> None:
    records = _control(sweep_records({64: 3.0, 256: 0.2, 1024: 0.1}), status)
    rows = [r for r in rows_of(records) if r.columns["name"] == MINE]
    assert len(rows) == 6
    assert {r.verdict for r in rows} == {"undecided"}
    assert all(math.isinf(r.floor) and math.isnan(r.drift) for r in rows)
    cost_says, crossover, memory, correct = closing(rows_of(records), MINE, BASE, SIZE)
    assert not re.search(r"faster\)|slower\)|no difference", cost_says)
    assert cost_says.count("undecided") == 2
    assert "shown faster at no length" in crossover
    assert "from N" not in crossover
    assert "1.50x in forward" in memory  # memory is exempt
    assert "needs a second block" in correct


@pytest.mark.parametrize("ratio", [1.03, 1 / 1.03])
def test_sentences_and_tables_claim_nothing_nearer_than_the_control_reaches(
    ratio: float,
) -> None:
    """A ratio that is certain, below what the baseline strays from itself."""
    records = []
    for n in (16, 64, 256):
        for block in range(7):
            base, mine = case_id(BASE, n), case_id(MINE, n)
            records.append(record(base, block, 1.0 + n))
            control = (1.0 + n) * (1.10 if block % 2 else 0.95)
            records.append(record(case_id(BASE, n, extra="+control"), block, control))
            records.append(record(mine, block, ratio * (1.0 + n) * (1.001 if block % 2 else 1)))
        records += [margin(base), margin(mine)]
    rows = rows_of(records)
    mine_rows = [r for r in rows if r.columns["name"] == MINE]
    assert all(r.time is not None and 1 not in (r.time.low, r.time.high) for r in mine_rows)
    assert {r.verdict for r in mine_rows} == {"undecided"}
    says = closing(rows, MINE, BASE, SIZE)
    assert "(forward, undecided: within the noise floor of 8.8 %)" in says[0]
    assert "shown faster at no length" in says[1]
    assert {cells(r)["verdict"] for r in mine_rows} == {"undecided"}
    assert {numbers(r)["verdict"] for r in mine_rows} == {"undecided"}


@pytest.mark.parametrize("status", ["oom", "timeout", "unsupported", "crash", "wrong"])
def test_a_failed_case_keeps_its_row_and_has_no_number(status: str) -> None:
    records = [record(case_id(BASE), b, 1.0) for b in range(3)]
    failed = {**record(case_id(MINE), 0, 0.0, detail="why"), "status": status}
    del failed["samples"], failed["median"]
    mine = mine_of([*records, failed])
    assert (mine.status, mine.detail) == (status, "why")
    assert mine.time is None
    assert math.isnan(mine.seconds)


def test_blocks_that_went_to_different_kernels_are_no_replicates() -> None:
    native, tiled = ["attnbench::native_forward"], ["_Tiled", "aten::_flash"]

    def rows(mine: list[list[str] | None], base: list[list[str] | None]) -> dict[str, Row]:
        records = sweep_records({64: 0.5}, blocks=3)
        for r in records:
            seen = {MINE: mine, BASE: base}.get(r["case"].partition("-")[0])
            if r["kind"] == "time" and seen is not None and seen[r["block"]] is not None:
                r["dispatched"] = seen[r["block"]]
        return {
            str(r.columns["name"]): r for r in rows_of(records) if r.columns["phase"] == "forward"
        }

    alike = rows([native, None, native], [None] * 3)
    assert alike[MINE].verdict == "faster"
    assert alike[MINE].kernels == ("native_forward",)
    assert cells(alike[MINE])["kernels"] == numbers(alike[MINE])["kernels"] == "native_forward"
    assert alike[BASE].kernels == ()
    mixed = rows([native, None, tiled], [None] * 3)[MINE]
    assert mixed.verdict == "withheld"
    assert "blocks ran by different kernels (Tiled, flash; native_forward)" in mixed.detail
    assert mixed.kernels == ("Tiled, flash", "native_forward")
    under = rows([native] * 3, [[], tiled, None])
    assert [under[name].verdict for name in (MINE, BASE)] == ["withheld"] * 2
    assert "(Tiled, flash; none)" in under[MINE].detail


def test_an_error_over_budget_takes_the_headline_away() -> None:
    records = [r for r in sweep_records({64: 1.2}) if r["kind"] != "margin"]
    records.append(margin(case_id(MINE), error=1e-3, status="wrong"))
    rows = {r.case: r for r in rows_of(records)}
    assert rows[case_id(MINE)].status == "wrong"
    assert not rows[case_id(MINE)].verified
    said = closing(list(rows.values()), MINE, BASE, {"batch": 64, "length": 64, "heads": 8})
    assert "no cost to report" in said[0] or "training" not in said[0]


@pytest.mark.parametrize(
    ("change", "unverified", "cost", "correct"),
    [
        ({}, "", "takes 1.2", "margin "),
        (
            {"error": 1e-7, "budget": 1e-6, "margin": 10.0, "against": "its own float64"},
            "",
            "takes 1.2",
            "against its own float64 at this shape is 1.0e-07, within the budget of 1.0e-06 "
            "(margin 10.0x); no oracle vouches for it; ",
        ),
        (
            {"verdict": "no oracle", "what": "ill-conditioned"},
            "no oracle: ill-conditioned",
            "takes 1.2",
            "Nobody vouches for its values (no oracle: ill-conditioned); ",
        ),
        (
            {"status": "timeout", "detail": "no result after 60 s"},
            "not verified: timeout: no result after 60 s",
            "has no headline at this size (not verified: timeout: no result after 60 s).",
            "Its error at this shape is not known, so its ratios are no headline; ",
        ),
        (
            None,
            "not verified: no error was measured",
            "has no headline at this size (not verified: no error was measured).",
            "Its error at this shape is not known, so its ratios are no headline; ",
        ),
    ],
)
def test_what_is_known_of_values_is_said_alike_everywhere(
    change: dict[str, Any] | None, unverified: str, cost: str, correct: str
) -> None:
    records = [r for r in sweep_records({64: 1.2}) if r["kind"] != "margin"]
    if change is not None:
        checked = margin(case_id(MINE))
        without = {"error": None, "budget": None, "margin": None} if change else {}
        records.append({**checked, **without, **change})
    rows = {r.case: r for r in rows_of(records)}
    mine = rows[case_id(MINE)]
    assert (mine.verdict, mine.verified, mine.unverified) == ("slower", not unverified, unverified)
    said = closing(list(rows.values()), MINE, BASE, SIZE)
    assert cost in said[0]
    assert correct in said[3]
    own = " against its own float64" if "against" in (change or {}) else ""
    assert margin_text(mine) == (unverified.partition(":")[0] or f"10x{own}")


@pytest.mark.parametrize(
    ("floors", "below"),
    [((10, 10), False), ((100, 10), True), ((10, 100), True), ((None, 1), False)],
)
def test_a_ratio_of_memory_is_told_only_where_its_noise_is_small(
    floors: tuple[int | None, int], below: bool
) -> None:
    records = [r for r in sweep_records({64: 1.2}) if r["kind"] != "memory"]
    for name, kib, floor in zip((MINE, BASE), (300, 200), floors, strict=True):
        noise = {} if floor is None else {"floor_bytes": floor * 2**10}
        size = {"transient_bytes": 0, "peak_bytes": kib * 2**10}
        records += [made("memory", case_id(name), block, **size, **noise) for block in range(2)]
    rows = {r.case: r for r in rows_of(records)}
    mine = rows[case_id(MINE)]
    assert (mine.below_floor, math.isnan(mine.memory_ratio)) == (below, below)
    assert mine.peak_bytes == 300 * 2**10
    assert mine.memory_floor == max(f for f in floors if f is not None) * 2**10
    said = "below what can be told (floor 100 KiB)" if below else "1.50x"
    assert memory_text(mine) == said
    assert f"is {said} in forward" in closing(list(rows.values()), MINE, BASE, SIZE)[2]


def test_sentences_give_cost_crossover_memory_and_error() -> None:
    rows = rows_of(sweep_records({64: 1.3, 256: 0.9, 1024: 0.7}))
    cost_says, crossover, memory, correct = closing(rows, MINE, BASE, SIZE)
    assert "1.3" in cost_says
    assert "slower" in cost_says
    assert "N = 64" in cost_says
    place = re.search(r"in forward faster from N = (\d+) \[(\d+), (\d+)\] on", crossover)
    assert place is not None
    at, low, high = map(int, place.groups())
    crossing = 64 * 4 ** (math.log(1.3) / math.log(1.3 / 0.9))
    assert 64 < low < crossing < high < 256
    assert low < at < high
    assert "1.50x in forward and 1.50x in training" in memory
    assert "margin 10.0x" in correct
    assert "A/A control" in correct


def test_figure_draws_every_length_band_and_reference() -> None:
    rows = rows_of(sweep_records({64: 1.3, 256: 0.9, 1024: 0.7}))
    figure = cost(rows, BASE, "footer")
    time_axes, ratio_axes, _ = figure.axes[:3]
    drawn = {line.get_label(): line for line in time_axes.get_lines()}
    mine = drawn["mtsa.algorithm1 8h"]
    assert np.asarray(mine.get_xdata()).tolist() == [64, 256, 1024]
    expected = [r.seconds * 1e3 for r in rows if r.columns["name"] == MINE][::2]
    assert np.asarray(mine.get_ydata()).tolist() == pytest.approx(expected)
    assert time_axes.get_xscale() == time_axes.get_yscale() == "log"
    assert "ms" in time_axes.get_ylabel()
    assert any(np.asarray(line.get_ydata()).tolist() == [1, 1] for line in ratio_axes.get_lines())
    bars = ratio_axes.containers[0]
    assert len(bars[0].get_xdata()) == 3


def test_oom_is_marked_where_the_line_ends() -> None:
    records = sweep_records({64: 1.3, 256: 0.9})
    for r in records:
        if r["kind"] == "time" and r["case"].startswith(MINE) and "N256" in r["case"]:
            r.update(status="oom", median=None, samples=None)
    figure = cost(rows_of(records), BASE, "footer")
    assert "OOM" in [t.get_text() for t in figure.axes[0].texts]
