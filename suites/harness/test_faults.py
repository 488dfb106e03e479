"""Faults that a session survives: kill -9, a full or read-only disk, children that misbehave."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import random
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.errors import UsageError
from harness.isolate import Interpreter, StartError
from harness.measure import blocks
from harness.records import journal
from harness.registry import Registry
from suites.bench.display import Display
from suites.harness.misbehaving import PIDS
from suites.harness.sessions import INSTEAD, Launcher, case, ignore, made_up
from suites.harness.test_isolate import gone, linux

KILLS = 50


def _on_disk(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.glob("*.jsonl")} if folder.exists() else {}


def _finished(files: dict[str, bytes]) -> list[str]:
    """Keys of all whole lines that are a result; no reader of ours stands between."""
    keys = []
    for text in files.values():
        for line in text.split(b"\n")[:-1]:
            record = json.loads(line)
            if "key" in record and record["status"] != "crash":
                keys.append(record["key"])
    return keys


def _below(pid: int) -> list[int]:
    """Process ids of all descendants."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile
        parents.setdefault(parent, []).append(int(path.parent.name))
    found, waiting = [], [pid]
    while waiting:
        mine = parents.get(waiting.pop(), [])
        found += mine
        waiting += mine
    return found


@linux
def test_fifty_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """A driver or a child is killed at a random moment, and the same command started again."""
    draw = random.Random(5)
    killed: Counter[str] = Counter()
    number = 0
    with Launcher() as launcher:
        launcher.start(tmp_path / "whole")  # the first one also warms up the disk's cache
        assert launcher.wait() == 0
        began = time.monotonic()
        launcher.start(tmp_path / "again")
        assert launcher.wait() == 0
        whole = time.monotonic() - began
        while killed.total() < KILLS:
            folder = tmp_path / str(number)
            before = _on_disk(folder)
            driver = launcher.start(folder)
            time.sleep(draw.uniform(0, whole))
            below = _below(driver)
            whom = "driver" if not below or draw.random() < 0.5 else "child"
            target = driver if whom == "driver" else draw.choice(below)
            try:
                os.kill(target, signal.SIGKILL)
                killed[whom] += 1
            except ProcessLookupError:
                pass  # it has ended: nobody was killed
            code = launcher.wait()
            assert code in (0, -signal.SIGKILL)
            assert all(gone(pid, within=10) for pid in below)
            after = _on_disk(folder)
            assert {name: after[name] for name in before} == before
            finished = _finished(after)
            assert len(finished) == len(set(finished)), "something was measured twice"
            if code == 0 and not made_up(folder).missing():
                number += 1
        launcher.start(tmp_path / str(number))
        launcher.wait()
    assert min(killed["driver"], killed["child"]) >= 10
    for done in range(number):
        session = made_up(tmp_path / str(done))
        records = journal.read(session.folder)
        kept = Counter(r["key"] for r in records.records if r["kind"] not in ("anchor", "block"))
        assert kept == Counter(session.keys())
        assert {r["status"] for r in records.records if "key" in r} == {"ok"}
        assert not [w for w in records.warnings if "torn" not in w]
        (row,) = [r for r in session.rows() if r.verdict != "baseline"]
        assert row.time is not None
        assert row.time.count == 2


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up measurements instead of real ones."""
    for name, value in INSTEAD.items():
        monkeypatch.setattr(blocks, name, value)


MISBEHAVING = {
    "Hang": "timeout", "Segfault": "crash", "Scribbler": "crash", "Exits": "crash",
    "Unprintable": "crash", "Nan": "wrong", "LateNan": "wrong", "NanGradient": "wrong",
    "Greedy": "oom", "Shouter": "ok", "Daemon": "ok", "Twin": "ok", "Thread": "ok",
    "Behaved": "ok",
}  # fmt: skip


@linux
def test_a_session_goes_on_whatever_a_mechanism_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every one keeps its row and status, and only those that are ok have a number."""
    pids = tmp_path / "pids"
    monkeypatch.setenv(PIDS, str(pids))
    given = [f"suites.harness.misbehaving:{name}" for name in MISBEHAVING]
    session = made_up(tmp_path / "results", seconds=0.01)
    session.profile = replace(session.profile, memory_blocks=0, limit_seconds=3)
    session.registry = Registry(given)
    session.margin_call = "harness.verify.margin:check_case"
    base = case("multi_head.sdpa", phase="training", heads=8)
    session.cases = [
        base, base.control(), *(case(f"{name}.module", phase="training") for name in MISBEHAVING)
    ]  # fmt: skip
    shown = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    with Display(shown, session) as display:
        session.run(display, {})
    left = [int(pid) for pid in pids.read_text().split()]
    assert len(left) >= 2
    assert all(gone(pid) for pid in left)
    (text,) = _on_disk(session.folder).values()
    times = [r for r in map(json.loads, text.splitlines()) if r["kind"] == "time"]
    assert all((r["status"] == "ok") == ("median" in r) == ("samples" in r) for r in times)
    rows = {row.case.partition(".")[0]: row for row in session.rows()}
    assert {name: row.status for name, row in rows.items()} == {**MISBEHAVING, "multi_head": "ok"}
    for name, status in MISBEHAVING.items():
        row = rows[name]
        if status == "ok":
            assert row.time is not None
            assert row.time.count == 2, "the others were measured in both blocks"
        else:
            assert (row.time, row.verdict) == (None, "")
            assert math.isnan(row.seconds)
            assert row.detail
