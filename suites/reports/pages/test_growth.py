"""Growth with CPU threads and batch: what is paired, what is left out, what the page shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from reports.core.costs import Costs
from reports.core.source import DeviceRecords, find
from reports.pages.scaling import growth
from reports.pages.scaling.page import Scaling
from suites.support import made_up_records
from suites.support.made_up_records import reading
from suites.support.report_records import BASE, LSTM, MINE, write

BLOCKS = 4
ONE, TWO = "1-thread", "2-threads"
SHARES = {BASE: 0.5, MINE: 0.6, LSTM: 0.9}
"""Time on two threads over that on one."""
PASSES = {"forward": 1.0, "training": 3.0}


def case(name: str, phase: str, setting: str, batch: int = 64, length: int = 64) -> str:
    return made_up_records.case(name, length, phase, batch, 0 if name == LSTM else 8, setting)


def noise(name: str, phase: str, block: int) -> float:
    return 1 + 0.01 * ((len(name) + len(phase) + 3 * block) % 5)


def on_threads() -> Iterator[dict[str, Any]]:
    """Three implementations on one and two threads; blocks of a machine that slows down."""
    for block in range(BLOCKS):
        for phase, passes in PASSES.items():
            for name, share in SHARES.items():
                one = passes * (1 + block)
                yield reading(case(name, phase, ONE), block, one)
                two = one * share * noise(name, phase, block)
                yield reading(case(name, phase, TWO), block, two)
            control = f"{case(BASE, phase, ONE)}+control"
            yield reading(control, block, passes * (1 + block) * 1.001)


def in_batches() -> Iterator[dict[str, Any]]:
    """One that gains nothing from a batch, and one that gains most of its time."""
    for block in range(BLOCKS):
        for batch in (1, 4, 16):
            yield reading(case(BASE, "forward", ONE, batch, 32), block, 0.01 * batch)
            yield reading(case(LSTM, "forward", ONE, batch, 32), block, 0.1 + 0.001 * batch)


def opened(folder: Path, records: Iterable[dict[str, Any]]) -> DeviceRecords:
    (device,) = find(str(write(folder, "Made up", records))).devices
    return device


def grown_over(
    folder: Path, records: Iterable[dict[str, Any]], what: str
) -> dict[tuple[str, str, int], growth.Grown]:
    measured = Costs(opened(folder, records))
    found = growth.grown(measured.rows, measured.times, what)
    by_place = {(g.label.split()[0], g.phase, g.amount): g for g in found}
    assert len(by_place) == len(found)
    return by_place


def test_the_ratio_is_of_readings_of_one_interpreter_and_its_interval_over_blocks(
    tmp_path: Path,
) -> None:
    def two_ways(r: dict[str, Any]) -> dict[str, Any]:
        mine = r["case"] == case(LSTM, "forward", TWO)
        return {**r, "dispatched": [f"kernel {r['block'] % 2}" if mine else "one"]}

    strayed = [
        # Another interpreter's block, in which the machine was slow: no pair.
        reading(case(MINE, "forward", TWO), BLOCKS, 100.0, interpreter="one"),
        reading(case(MINE, "forward", ONE), BLOCKS, 1.0, interpreter="other"),
    ]
    found = grown_over(tmp_path, map(two_ways, [*on_threads(), *strayed]), "threads")
    every = {(name, phase, n) for name in SHARES for phase in PASSES for n in (1, 2)}
    # What went by two kernels is withheld: nothing is left to hold beside its single thread.
    assert set(found) == every - {(LSTM, "forward", 1), (LSTM, "forward", 2)}
    for (name, phase, n), g in found.items():
        assert g.problem == "batch 64, N = 64, input 300 wide, f32"
        assert (g.amount, g.least) == (n, 1)
        if n == 1:
            assert g.time.ratio == 1
            assert not g.time.known
            continue
        logs = [math.log(SHARES[name] * noise(name, phase, b)) for b in range(BLOCKS)]
        mean, error = np.mean(logs), np.std(logs, ddof=1) / math.sqrt(BLOCKS)
        low, high = t.interval(0.95, BLOCKS - 1, mean, error)
        expected = [math.exp(v) for v in (mean, low, high)]
        assert [g.time.ratio, g.time.low, g.time.high] == pytest.approx(expected)
        assert g.time.count == BLOCKS


def test_a_batch_is_divided_among_its_sequences(tmp_path: Path) -> None:
    found = grown_over(tmp_path / "batch", in_batches(), "batch")
    assert {batch for _, _, batch in found} == {1, 4, 16}
    assert found[BASE, "forward", 16].time.ratio == pytest.approx(16)
    assert found[BASE, "forward", 16].by_item.ratio == pytest.approx(1)
    lstm = found[LSTM, "forward", 4]
    assert lstm.time.ratio == pytest.approx(0.104 / 0.101)
    assert lstm.by_item.ratio == pytest.approx(0.104 / 0.101 / 4)
    assert lstm.by_item.low == pytest.approx(lstm.time.low / 4)
    assert lstm.problem == "N = 32, input 300 wide, f32, 1-thread"
    assert grown_over(tmp_path / "threads", in_batches(), "threads") == {}


@pytest.mark.parametrize("what", ["threads", "batch"])
def test_other_settings_lengths_and_what_has_no_time_are_kept_apart(
    tmp_path: Path, what: str
) -> None:
    cases = [
        case(BASE, "forward", ONE),
        case(BASE, "forward", f"{TWO}+padded"),
        case(BASE, "forward", TWO, length=128),
        case(MINE, "forward", ONE),
    ]
    records = [reading(c, b, 1.0) for c in cases for b in range(BLOCKS)]
    failed = [reading(case(MINE, "forward", TWO), b, 1.0, status="oom") for b in range(BLOCKS)]
    assert grown_over(tmp_path, [*records, *failed], what) == {}


def test_the_page_shows_both_with_their_numbers(tmp_path: Path) -> None:
    opened(tmp_path / "journal", [*on_threads(), *in_batches()])
    page = Scaling.begin(journal=str(tmp_path / "journal"), device="", out=str(tmp_path), page="p")
    threads = page.threads()
    assert threads.html.count("<svg") == 2
    assert "With 2 threads instead of 1, time is: multi_head.sdpa 8h 0.5" in threads.plain
    table = pd.read_csv(tmp_path / "tables" / "p-threads.csv")
    assert len(table) == 2 * len(SHARES) * len(PASSES)
    assert set(table["threads"]) == {1, 2}
    drawn = pd.read_csv(tmp_path / "figures" / "p-threads0.csv")
    assert set(drawn["x_axis"]) == {"CPU threads"}
    ideal = drawn[drawn["series"] == "ideal"]
    assert dict(zip(ideal["x"], ideal["y"], strict=True)) == {1: 1.0, 2: 0.5}
    mine = drawn[(drawn["series"] == f"{MINE} 8h") & (drawn["x"] == 2)]
    assert mine["y"].to_numpy() == pytest.approx(0.6, rel=0.05)
    batches = page.batches()
    assert batches.html.count("<svg") == 1
    assert "At batch 16 instead of 1, the time that falls to one sequence is: bi_lstm" in (
        batches.plain
    )
    table = pd.read_csv(tmp_path / "tables" / "p-batch.csv")
    last = table[(table["batch"] == 16) & table["case"].str.startswith(BASE)]
    assert last["time_ratio_to_least"].to_numpy() == pytest.approx(16)
