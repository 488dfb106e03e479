"""Faults that a session survives: kill -9, a full or read-only disk, children that misbehave."""

from __future__ import annotations

import io
import json
import math
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from harness.cli.display import Display
from harness.errors import UsageError
from harness.isolate import Interpreter, Outcome, StartError
from harness.isolate.processes import children
from harness.measure import blocks, call
from harness.records import journal
from harness.registry import Registry
from suites.harness.isolate.test_isolate import gone, linux
from suites.support.command_line import LITTLE, pytest_here
from suites.support.misbehaving.crashing import PIDS
from suites.support.sessions import Launcher, case, ignore, made_up
from suites.support.sessions_tasks import peaks_case


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
    found = [pid]
    for one in found:
        found += children(one)
    return found[1:]


KILLS = 10


@linux
def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
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
            with suppress(ProcessLookupError):  # it has ended: nobody was killed
                os.kill(target, signal.SIGKILL)
                killed[whom] += 1
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
    assert min(killed["driver"], killed["child"]) >= 1
    assert number >= 1, "no session came to its end"
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


MISBEHAVING = {
    **{"Hang": "timeout", "Segfault": "crash", "Unprintable": "crash", "Greedy": "oom"},
    **dict.fromkeys(("Nan", "LateNan", "NanGradient"), "wrong"),
    **dict.fromkeys(("Daemon", "Behaved"), "ok"),
}
TWIN = "Twin"
"""``unsupported`` where its other half got processor time while it was timed, else ``ok``."""


@linux
def test_a_session_goes_on_whatever_a_mechanism_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every one keeps its row and status, and only those that are ok have a number."""
    pids = tmp_path / "pids"
    monkeypatch.setenv(PIDS, str(pids))
    names = (*MISBEHAVING, TWIN)
    given = [f"suites.support.misbehaving.crashing:{name}" for name in names]
    session = made_up(tmp_path / "results", seconds=0.01)
    session.profile = replace(session.profile, memory_blocks=0, limit_seconds=3)
    session.registry = Registry(given)
    session.margin_call = "harness.verify.margin:check_case"
    base = case("multi_head.sdpa", phase="training", heads=8)
    session.cases = [
        base,
        base.control(),
        *(case(f"{name}.module", phase="training") for name in names),
    ]
    shown = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    with Display(shown, session) as display:
        blocks.run(session, display, {})
    left = [int(pid) for pid in pids.read_text().split()]
    assert len(left) >= 2
    assert all(gone(pid) for pid in left)
    (text,) = _on_disk(session.folder).values()
    times = [r for r in map(json.loads, text.splitlines()) if r["kind"] == "time"]
    assert all((r["status"] == "ok") == ("median" in r) == ("samples" in r) for r in times)
    rows = {row.case.partition(".")[0]: row for row in session.rows()}
    statuses = {**MISBEHAVING, "multi_head": "ok"}
    timed = {r["case"].partition(".")[0]: r["status"] for r in times}
    # Its answer, or its twin's, which asks how long its parent has waited for a core.
    assert {rows.pop(TWIN).status, timed.pop(TWIN)} <= {"ok", "unsupported", "wrong"}
    assert timed == {name: statuses[name] for name in timed}
    # In an order that the session draws: what a margin shows to be wrong before is not timed.
    assert timed.keys() >= statuses.keys() - {"Nan", "NanGradient", "LateNan"}
    assert {name: row.status for name, row in rows.items()} == statuses
    for name, status in MISBEHAVING.items():
        row = rows[name]
        if status == "ok":
            assert row.time is not None
            assert row.time.count == 2, "the others were measured in both blocks"
        else:
            assert (row.time, row.verdict) == (None, "")
            assert math.isnan(row.seconds)
            assert row.detail


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ({"samples": [0.1, math.nan], "median": 0.1}, "wrong"),
        ({"samples": [0.1], "median": math.inf}, "wrong"),
        ({"samples": [], "median": 0.1}, "crash"),
        ({"samples": [0.1], "median": "0.1"}, "crash"),
        ({"samples": [0.1, -0.1], "median": 0.1}, "crash"),
        ({}, "crash"),
    ],
)
def test_an_answer_without_a_time_is_no_result(value: dict[str, Any], status: str) -> None:
    """Whatever a child says of itself: only positive, finite numbers become a time."""
    child: Any = SimpleNamespace(id="i", generation=0)
    for kind in ("time", "anchor"):
        found = call.measured(kind, Outcome("ok", value), child)
        assert found["status"] == status
        assert not {"median", "samples"} & {*found}
        assert call.is_final({"kind": kind, **found})


def test_every_session_looks_once_at_what_a_case_runs_by(tmp_path: Path, quick: None) -> None:
    blocks.run(made_up(tmp_path, count=1), ignore, {})
    blocks.run(made_up(tmp_path, count=3), ignore, {})
    times = [r for r in journal.read(tmp_path).records if r["kind"] == "time"]
    assert len({r["session"] for r in times}) == 2
    looked = {(r["case"], r["block"]) for r in times if "dispatched" in r}
    assert looked == {(r["case"], block) for r in times for block in (0, 1)}


def test_an_interpreter_that_is_killed_at_its_start_costs_nothing(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []

    def start(*arguments: Any, **options: Any) -> Interpreter:
        starts.append(1)
        if len(starts) == 1:
            raise StartError("the interpreter killed by SIGKILL at its start")
        return Interpreter(*arguments, **options)

    monkeypatch.setattr(call, "Interpreter", start)
    session = made_up(tmp_path)
    blocks.run(session, ignore, {})
    assert len(starts) == 3
    assert session.missing() == 0


def test_an_interpreter_that_never_starts_is_one_line(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "preload", lambda tasks, registry: ("no_such_module",))
    with pytest.raises(UsageError, match=r"no_such_module.*the same command goes on") as raised:
        blocks.run(made_up(tmp_path), ignore, {})
    assert "\n" not in str(raised.value)
    assert journal.read(tmp_path).warnings == []


@linux
def test_a_full_disk_ends_a_session_in_one_line_and_it_goes_on_later(
    tmp_path: Path, quick: None
) -> None:
    """The limit on a file's size stands in for the disk: it too takes a part of a line."""
    import resource

    session = made_up(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
    try:
        with pytest.raises(UsageError, match="finished measurements are kept"):
            blocks.run(session, ignore, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    before = _on_disk(tmp_path)
    assert [len(text) for text in before.values()] == [3000]
    finished = _finished(before)
    assert len(finished) > 2
    blocks.run(session, ignore, {})
    assert session.missing() == 0
    after = _on_disk(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(_finished(after)) == len(set(_finished(after)))
    assert set(finished) < set(_finished(after))
    (warning,) = journal.read(tmp_path).warnings
    assert "torn" in warning


def test_a_failed_case_fails_its_test_and_oom_is_no_success(tmp_path: Path) -> None:
    """Pytest as front end: skipped with the reason or failed with it, in no case passed."""
    names = ("Greedy", "Segfault", "Nan", "Behaved")
    given = [f"--with=suites.support.misbehaving.crashing:{name}" for name in names]
    done = pytest_here(
        *given,
        "--with=suites.support.mutants:WRONG",
        *(f"--only={name}" for name in (*names, "wrong_cnn.shifted")),
        *LITTLE,
        "--blocks=1",
        "--passes=forward",
        "--benchmark-json=out.json",
        "-rA",
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    told = [line for line in done.stdout.splitlines() if re.match("PASS|FAIL|ERROR|SKIP", line)]
    counts = Counter(line[:4].replace("ERRO", "FAIL") for line in told)
    assert counts == {"PASS": 3, "FAIL": 3, "SKIP": 1}
    (skipped,) = (line for line in told if line.startswith("SKIP"))
    assert "oom: " in skipped
    assert "Segfault.module" in done.stdout
    assert "crash: killed by SIGSEGV" in done.stdout
    assert re.search("wrong: output (or a gradient )?is not finite", done.stdout)
    assert "wrong: output: error" in done.stdout, "a margin over budget"
    written = json.loads((tmp_path / "out.json").read_text())["benchmarks"]
    timed = sorted(b["extra_info"]["case"].partition(".")[0] for b in written)
    assert timed == ["Behaved", "multi_head", "multi_head"]


@pytest.mark.parametrize(
    ("count", "blocks", "lengths"),
    [(5_000, 2, 2), pytest.param(40_000, 15, 20, marks=pytest.mark.nightly)],
)
def test_many_records_are_summed_up_in_little_more_than_reading_them_takes(
    tmp_path: Path, count: int, blocks: int, lengths: int
) -> None:
    """Of a year of code versions one is today's; against JSON alone, whatever the machine."""
    session = made_up(tmp_path, count=blocks, lengths=lengths)
    samples = [0.001 * (1 + number / 100) for number in range(20)]
    shared = {
        **{"status": "ok", "samples": samples, "median": 0.001, "interpreter": "i", "order": 1},
        **{"code": "0123456789abcdef", "fingerprint": session.fingerprint_id},
        **{"verdict": "ok", "peak_bytes": 1, "transient_bytes": 1, **peaks_case("", ())},
    }
    plan = [task for tasks in session.tasks() for task in tasks]
    with journal.Writer(tmp_path, {"fingerprint": dict(session.fingerprint)}) as writer:
        for version in range(count // len(plan) + 1):
            for t in plan:
                key = f"{t.key}{version or ''}"
                own = {"kind": t.kind, "key": key, "case": t.case.id, "block": t.block}
                writer.append({**own, **shared})
    assert len(session.rows()) == 2 * lengths
    assert session.missing() == 0
    lines = writer.path.read_text().splitlines()
    alone = min(_seconds(lambda: [json.loads(line) for line in lines]) for _ in range(2))
    assert min(_seconds(session.rows) for _ in range(4)) < 3 * alone


def _seconds(step: Callable[[], object]) -> float:
    began = time.process_time()
    step()
    return time.process_time() - began
