"""A clock that jumps backwards gives no number, and the time of day decides nothing."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.isolate import Interpreter, Wrong
from harness.measure.cpu_clock import cpu_samples
from harness.measure.session import Session
from harness.options import Selection
from harness.plan import make_plan
from harness.records import journal
from harness.registry import Registry
from suites.support.clocked import backwards
from suites.support.sessions_tasks import peaks_case

TASKS = "suites.support.clocked:"


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    """Loads torch once for all."""
    with Interpreter(preload=("torch", "suites.support.clocked")) as one:
        yield one


class Ticking:
    """A clock that goes on by a hundredth of a second per look."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.looks / 100


@pytest.mark.parametrize("at", range(1, 8))
def test_a_clock_set_back_gives_no_number(at: int) -> None:
    """Before, within and between the samples."""
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1

    with pytest.raises(Wrong, match="the clock went back by "):
        cpu_samples(work, 3, 0.0, clock=backwards(Ticking(), at))
    # Nor does a try that took minus an hour ask for millions of calls.
    assert calls < 10


def test_a_small_step_back_between_samples_is_seen() -> None:
    # Each sample is a whole second; only the step between two of them tells.
    readings = iter([0.0, 0.0, 1.0, 0.9, 1.9, 1.8, 2.8])
    with pytest.raises(Wrong, match=r"went back by 0\.1 s"):
        cpu_samples(lambda: None, 3, 0.0, clock=lambda: next(readings), once=1.0)


def test_a_clock_that_stands_still_gives_no_number() -> None:
    with pytest.raises(Wrong, match="a sample of 0 s"):
        cpu_samples(lambda: None, 3, 0.0, clock=lambda: 5.0)


def test_a_case_timed_by_a_clock_set_back_is_wrong(interpreter: Interpreter) -> None:
    outcome = interpreter.run(TASKS + "time_by_a_clock_set_back", {"at": 4})
    assert (outcome.status, outcome.value) == ("wrong", None)
    assert "went back" in outcome.detail


def test_the_time_of_day_is_in_no_sample(interpreter: Interpreter) -> None:
    outcome = interpreter.run(TASKS + "time_while_the_wall_clock_runs_backwards", {})
    assert outcome.status == "ok", outcome
    assert len(outcome.value["samples"]) >= 5
    assert all(0 < sample < 60 for sample in outcome.value["samples"])
    assert 0 < outcome.value["warmup_seconds"] < 60


def _looks_at_the_time_of_day(path: Path) -> list[int]:
    """Lines that ask what time it is, not how long something took."""
    lines = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in ("now", "utcnow", "today"):
            lines.append(node.lineno)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "time.time_ns"):
            lines.append(node.lineno)
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            lines.append(node.lineno)
    return lines


def test_no_duration_comes_from_the_time_of_day(tmp_path: Path) -> None:
    root = Path(harness.__path__[0])
    # It stamps the records; nothing is computed from that.
    files = {p for p in root.rglob("*.py") if p != root / "records" / "journal.py"}
    assert len(files) > 40
    assert {str(p): found for p in files if (found := _looks_at_the_time_of_day(p))} == {}
    (tmp_path / "wrong.py").write_text("import time\nstart = time.time()\n")
    assert _looks_at_the_time_of_day(tmp_path / "wrong.py") == [2]


FINGERPRINT = {"device": "cpu", "torch": "2.13", "threads": 2, "allocator": {"cpu": "default"}}


@pytest.fixture
def clock_running_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stamp of the journal is an hour before the one before it."""
    hours = itertools.count()

    class Backwards:
        @staticmethod
        def now(zone: Any) -> datetime:
            return datetime(2026, 1, 1, tzinfo=UTC) - timedelta(hours=next(hours))

    monkeypatch.setattr(journal, "datetime", Backwards)


def _session(folder: Path) -> Session:
    chosen = Selection(only=("multi_cnn.conv",), lengths=(4,), batch=2, width=(24, 24), blocks=2)
    plan = make_plan("quick", "cpu", Registry(), chosen)
    return Session(plan.cases, plan.profile, Registry(), folder, FINGERPRINT)


def _write(session: Session, tasks: list, status: str = "ok") -> None:
    """One session of the journal, which finishes these tasks."""
    writer = journal.Writer(session.folder, {"fingerprint": FINGERPRINT})
    for task in tasks:
        record = {
            "kind": task.kind,
            "key": task.key,
            "case": task.case.id,
            "block": task.block,
            "code": task.code,
            "fingerprint": session.fingerprint_id,
            "interpreter": "i",
            "status": status,
        }
        if status == "ok":
            record |= {"samples": [0.5], "median": 0.5, "peak_bytes": 8, "transient_bytes": 4}
            record |= {"error": 0.1, "budget": 0.4, "margin": 0.25}
            if task.kind == "peaks":
                record |= peaks_case("", ())
        writer.append(record)
    writer.close()


@pytest.mark.usefixtures("clock_running_backwards")
def test_a_journal_whose_stamps_go_back_is_read_and_gone_on_with(tmp_path: Path) -> None:
    session = _session(tmp_path)
    tasks = [task for block in session.tasks() for task in block]
    _write(session, tasks[:5])
    _write(session, tasks[5:7], status="crash")
    assert session.missing() == len(tasks) - 5
    _write(session, tasks[5:])
    # What was written last has the earliest name, and is read first.
    names = sorted(p.name for p in tmp_path.iterdir())
    first = journal.read(tmp_path).records[0]
    assert first["session"].startswith(names[0].partition("-")[2].removesuffix(".jsonl"))
    assert first["key"] == tasks[5].key
    read = journal.read(tmp_path)
    stamps = [r["at"] for r in read.records if r["session"] == first["session"]]
    assert stamps == sorted(stamps, reverse=True)
    assert read.warnings == []
    assert sorted(r["key"] for r in read.records) == sorted(t.key for t in tasks)
    assert {r["status"] for r in read.records} == {"ok"}
    assert session.missing() == 0
    assert {row.status for row in session.rows()} == {"ok"}
