"""`harness.isolate.pool`: many calls, a few interpreters, each answer to its own call."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.isolate import Call, Limits, Pool, StartError, run_all
from harness.isolate.pool import POLL_SECONDS
from suites.harness.isolate.test_isolate import gone, linux, noted
from suites.support.command_line import started

HERE = "suites.support.isolated_tasks:"


def sleep_and_say(seconds: float, says: object) -> Call:
    """A call that takes a while and answers."""
    return Call(HERE + "sleep_and_say", {"seconds": seconds, "says": says}, Limits(seconds=30))


def test_answers_come_as_they_are_known_or_in_order() -> None:
    calls = [(name, sleep_and_say(seconds, name)) for name, seconds in (("slow", 0.5), ("fast", 0))]
    for ordered, expected in ((False, ["fast", "slow"]), (True, ["slow", "fast"])):
        found = list(run_all(calls, 2, preload=(), ordered=ordered))
        assert [name for name, _ in found] == expected
        assert all(outcome.value == name for name, outcome in found)


def test_no_more_run_at_a_time_than_there_is_room_for() -> None:
    most = 0
    with Pool(2, preload=()) as pool:
        assert pool.workers == 2
        ticks: list[list[int]] = []
        for _ in pool.run(
            ((n, sleep_and_say(0.05, n)) for n in range(6)),
            lambda under_way: ticks.append([n for n, seconds in under_way if seconds >= 0]),
        ):
            most = max(most, max(map(len, ticks), default=0))
    assert 1 <= most <= 2
    assert ticks[-1] == []
    assert list(run_all([], 3)) == []


def test_what_breaks_is_one_outcome_and_the_others_go_on() -> None:
    calls = [
        (0, Call(HERE + "end_by_code", {"code": 3})),
        (1, Call(HERE + "hang", {"how": "sleep"}, Limits(seconds=0.2))),
        (2, Call(HERE + "add", {"a": 1, "b": 1})),
    ]
    found = list(run_all(calls, 1, preload=(), ordered=True))
    assert [outcome.status for _, outcome in found] == ["crash", "timeout", "ok"]


def test_the_next_call_is_asked_for_when_there_is_room_for_it() -> None:
    known: list[int] = []

    def upcoming() -> Iterator[tuple[int, Call] | None]:
        yield 0, sleep_and_say(0, 0)
        while not known:  # nothing can be begun before the first is known
            yield None
        yield 1, sleep_and_say(0, 1)

    began = time.monotonic()
    with Pool(1, preload=()) as pool:
        for number, _ in pool.run(upcoming()):
            known.append(number)
    assert known == [0, 1]
    assert time.monotonic() - began < 20 * POLL_SECONDS


def test_every_slot_has_its_own_environment() -> None:
    with Pool([{"OMP_NUM_THREADS": n} for n in "34"], preload=(), env={"OTHER": "1"}) as pool:
        calls = ((n, Call(HERE + "state", {})) for n in range(2))
        threads = {outcome.value["threads"] for _, outcome in pool.run(calls)}
    assert threads <= {"3", "4"}


def test_an_interpreter_that_does_not_start_is_an_error() -> None:
    with pytest.raises(StartError, match="no_such_module"):
        list(run_all([(0, sleep_and_say(0, 0))], 1, preload=("no_such_module",)))


DRIVER = """
import sys
from harness.isolate import Call, run_all
calls = [
    (n, Call("suites.support.isolated_tasks:hang", {"how": "c", "pid_file": f"{sys.argv[1]}{n}"}))
    for n in range(3)
]
list(run_all(calls, 2, preload=()))
"""


@linux
def test_an_interrupted_pool_leaves_nothing_behind(tmp_path: Path) -> None:
    begun = started("-c", DRIVER, tmp_path / "pids")
    pids = [pid for n in range(2) for pid in noted(tmp_path / f"pids{n}")]
    began = time.monotonic()
    os.killpg(begun.pid, signal.SIGINT)
    _, stderr = begun.communicate(timeout=20)
    assert time.monotonic() - began < 10
    assert "KeyboardInterrupt" in stderr
    assert not (tmp_path / "pids2").exists()
    assert all(map(gone, pids))
