"""Records of a GPU's own readings: one line a case, odd ones skipped, old ones as they were."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from harness.case import parse
from harness.cli.display import tell_gpu
from harness.measure.ceilings import gauge_of, with_shares
from harness.records import journal
from harness.records.gpu import GpuReading, gpu_readings
from harness.registry import Registry
from reports.core.gpu import gpu_remarks
from reports.pages.bench import write_page
from suites.harness.records.test_ratios import record, rows_of
from suites.support.command_line import printed

SIZE = "B64-N64-D300x600-H8-bf16-training-cuda"
BASE, CONTROL, MINE = (
    f"multi_head.sdpa-{SIZE}",
    f"multi_head.sdpa-{SIZE}+control",
    f"mtsa.fused-{SIZE}",
)
READ: dict[str, Any] = {
    "taken": 10,
    "throttled": 4,
    "throttle_reasons": ["power cap"],
    "sm_mhz": 1900.0,
    "hot_seconds": 0.8,
}


def of_gpu(case: str, block: int, seconds: float, **gpu: Any) -> dict[str, Any]:
    return record(case, block, seconds, gpu={**READ, **gpu})


def a_session() -> list[dict[str, Any]]:
    """Three blocks: mine spends half of the baseline, whose control strays by a per cent or two."""
    records = []
    for block, stray in enumerate((0.99, 1.01, 1.02)):
        records += [
            of_gpu(BASE, block, 1.0, joules=300.0),
            of_gpu(CONTROL, block, 1.0, energy_ratio=stray),
            of_gpu(MINE, block, 0.5 + 0.1 * block, joules=150.0, energy_ratio=0.5 * stray),
        ]
    records[2]["gpu"] |= {"device_seconds": 0.4}
    records[0]["gpu"] |= {"device_detail": "RuntimeError: no"}
    return records


def test_a_case_has_one_line_of_all_blocks_and_a_control_is_the_floor() -> None:
    base, mine = gpu_readings([*a_session(), record(MINE, 3, 9.0), *a_session()])
    assert (base.case, mine.case) == (BASE, MINE)
    assert (mine.cold, mine.hot, mine.alone, mine.mhz) == (0.6, 0.8, 0.4, 1900.0)
    assert (mine.taken, mine.throttled, mine.reasons) == (60, 24, ("power cap",))
    assert mine.joules == 150.0
    assert mine.energy is not None
    assert mine.energy.count == 3
    assert mine.energy.ratio == pytest.approx(0.5 * (0.99 * 1.01 * 1.02) ** (1 / 3))
    assert 1.01 < mine.floor < 1.1
    assert base.energy is None
    assert math.isnan(base.alone)
    assert base.details == ("RuntimeError: no",)


def test_without_a_control_nothing_is_claimed_of_energy() -> None:
    (mine,) = gpu_readings([of_gpu(MINE, b, 1.0, energy_ratio=0.5) for b in range(3)])
    assert math.isinf(mine.floor)


def test_cases_of_a_cpu_and_of_older_journals_have_none() -> None:
    assert gpu_readings([record(MINE, 0, 1.0)]) == []
    failed = of_gpu(MINE, 0, 1.0) | {"status": "crash"}
    assert gpu_readings([failed]) == []


def test_it_is_said_of_a_gpu_that_was_slow_throughout() -> None:
    slow, other = (
        gpu_readings([of_gpu(MINE, 0, 1.0, taken=8, throttled=count)])[0] for count in (8, 7)
    )
    assert (slow.throttled, slow.slow_blocks) == (0, 1), "all of them count: none is set aside"
    assert (other.throttled, other.slow_blocks) == (7, 0)
    assert gpu_remarks([other]) == []
    (line,) = gpu_remarks([slow])
    assert line == (
        f"{MINE}: the GPU lowered its clock in all samples (power cap): its time is of that state"
    )
    assert not gpu_readings([of_gpu(MINE, 0, 1.0, taken=0, throttled=0)])[0].slow_blocks


def test_a_block_that_was_slow_throughout_is_told_of_though_others_were_not() -> None:
    blocks = [(8, 8), (8, 3), (8, 0)]
    records = [of_gpu(MINE, i, 1.0, taken=t, throttled=s) for i, (t, s) in enumerate(blocks)]
    (found,) = gpu_readings(records)
    assert (found.taken, found.throttled, found.blocks, found.slow_blocks) == (24, 3, 3, 1)
    assert gpu_remarks([found]) == [
        f"{MINE}: the GPU lowered its clock in all samples of 1 of 3 blocks (power cap): its time "
        "is in part of that state"
    ]


def test_other_readings_of_a_lowered_clock_are_told_once_for_all_cases() -> None:
    more = {"throttle_reasons": [], "hot_lowered": ["temperature"], "energy_lowered": ["power cap"]}
    found = gpu_readings([of_gpu(case, 0, 1.0, throttled=0, **more) for case in (BASE, MINE)])
    assert gpu_remarks(found) == [
        "2 cases: hot, energy of a lowered clock (temperature, power cap)"
    ]


PEAKS: dict[str, Any] = {
    **{"kind": "peaks", "status": "ok", "block": 0, "key": "p", "fingerprint": "f"},
    **{"gemm_operations_per_second": 1e14, "copy_bytes_per_second": 1e15},
    **{"read_bytes_per_second": 1e15, "launch_seconds": 1e-6},
}


def test_terminal_and_page_show_what_was_read(tmp_path: Path) -> None:
    records = [*a_session(), {**PEAKS, "case": gauge_of(parse(MINE)).id}]
    readings = gpu_readings(records)
    assert [type(one) for one in readings] == [GpuReading] * 2
    rows = with_shares(rows_of(records), records, Registry().mechanisms)
    (operations,) = {
        r.operations_per_second * r.seconds / 1e12 for r in rows if r.case == MINE
    }  # of a pass
    assert printed(lambda out: tell_gpu([], rows, out)) == ""
    text = printed(lambda out: tell_gpu(readings, rows, out), width=240)
    (line,) = (s for s in text.splitlines() if s.startswith(MINE) and "ms" in s)
    session = {"device": "cuda", "model": "none"}
    page = write_page(tmp_path, session, "multi_head.sdpa", [], rows, [], readings).read_text()
    rate = f"{operations / 0.6:.3g}"
    for part in ("600 ms", "800 ms", "400 ms", "1900", "12/30", rate, "150", "0.50x", "faster"):
        assert part in line, part
        assert f"<td>{part}" in page, part
    for said in ("noise floor of energy: ", f"not read of {BASE}: RuntimeError: no"):
        assert said in text
        assert said in page
    page = write_page(tmp_path, session, "multi_head.sdpa", [], rows, []).read_text()
    assert "What the GPU said" not in page


ODD: tuple[Any, ...] = (3, "x", [], -1, float("nan"), 10**400, True, {})


@pytest.mark.parametrize(
    "name", [*READ, "joules", "energy_ratio", "device_detail", "hot_lowered", None]
)
def test_an_odd_reading_is_skipped_with_a_word_or_read(tmp_path: Path, name: str | None) -> None:
    """Never an error of whoever reads it."""
    for i, value in enumerate(ODD):
        folder = tmp_path / str(i)
        folder.mkdir()
        good = of_gpu(MINE, 0, 1.0, energy_ratio=0.5) | {"key": "a"}
        odd = {**good, "gpu": value} if name is None else of_gpu(MINE, 0, 1.0, **{name: value})
        head = {"kind": "session", "schema": 1, "session": "s"}
        lines = [head, good, {**odd, "key": "b", "block": 1}]
        (folder / "a.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        read = journal.read(folder)
        assert len(read.records) + len(read.warnings) == 2
        (reading,) = gpu_readings(read.records)
        assert gpu_remarks([reading]) is not None
        assert reading.cold == 1.0
    assert bool(journal.read(tmp_path / "1").warnings) == (name != "device_detail")
