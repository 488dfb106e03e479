"""The clock: in made-up time, on works of known length, and on modules that it must see through."""

from __future__ import annotations

import ast
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import harness
from harness import isolate
from harness.isolate import Wrong
from harness.measure.clock import time_prepared
from harness.measure.cpu_clock import (
    PATIENCE,
    SHORTEST_SAMPLE,
    Sampled,
    ratio,
    sample,
    waiting_of_this_thread,
)
from harness.measure.run import prepare
from harness.measure.state import ranges
from harness.measure.warm_up import warm_up
from harness.stats import block_time
from suites.support.clocked import case

TIME = "harness.measure.clock:time_case"
CLOCKED = "suites.support.clocked:"
TINY = "B2-N16-D24x24-H4-f32-{}-cpu+1-thread"
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs sched_setaffinity, schedstat")


class FakeClock:
    """Advances only when told, by the work."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> Callable[[], None]:
        """A call that takes so long."""

        def call() -> None:
            self.now += seconds

        return call


def one(
    call: Callable[[], object], rounds: int, seconds: float, once: float = 0.0, **more: Any
) -> Sampled:
    """Samples of one call, which takes so long, or is tried once to know."""
    return sample([call], rounds, seconds, [once] if once else None, **more)[0]


@pytest.mark.parametrize("cost", [1e-5, 1e-3, 0.02, 0.5])
def test_samples_are_seconds_per_call(cost: float) -> None:
    clock = FakeClock()
    found = one(clock.work(cost), 4, 0.1, clock=clock)
    assert found.samples == pytest.approx([cost] * len(found.samples), rel=1e-6)
    assert len(found.samples) >= 4
    assert found.inner * cost >= 0.5 * SHORTEST_SAMPLE
    calls = 1 + found.inner * len(found.samples)
    assert clock.now == pytest.approx(calls * cost)


def test_waiting_for_a_core_is_taken_off() -> None:
    clock = FakeClock()
    lost, calls = [0.0], [0]

    def work() -> None:
        calls[0] += 1
        clock.now += 0.004
        if calls[0] % 3 == 0:  # another process has the core
            clock.now += 0.05
            lost[0] += 0.05

    sampled = one(work, 6, 0.0, clock=clock, once=0.004, waited=lambda: lost[0])
    assert sampled.samples == pytest.approx([0.004] * 6)
    assert sampled.waited == pytest.approx([0.0, 0.0, 0.05] * 2)
    walls = one(work, 6, 0.0, clock=clock, once=0.004)
    assert walls.samples == pytest.approx([0.004, 0.004, 0.054] * 2)


# More than two readings of a clock are apart; longer than a call that only queues something.
@pytest.mark.parametrize(("cost", "lost"), [(0.004, 0.05), (1e-6, 2e-5)])
def test_waiting_that_may_lie_outside_a_sample_is_not_taken_off(cost: float, lost: float) -> None:
    clock = FakeClock()
    readings = 0

    def waited() -> float:
        nonlocal readings
        readings += 1
        if readings == 4:  # at the end of the second sample, its own time already read
            clock.now += lost
        return lost if readings >= 4 else 0.0

    sampled = one(clock.work(cost), 3, 0.0, clock=clock, once=0.004, waited=waited)
    assert sampled.samples == pytest.approx([cost] * 3)


@pytest.mark.parametrize(("share", "count"), [(0.5, 20), (0.01, PATIENCE)])
def test_a_case_gets_its_running_time_while_others_have_the_core_but_not_for_ever(
    share: float, count: int
) -> None:
    clock = FakeClock()
    work = clock.work(0.01 / share)
    waited = lambda: clock.now * (1 - share)  # noqa: E731
    sampled = one(work, 3, 0.2, clock=clock, once=0.01, waited=waited)
    assert sampled.samples == pytest.approx([0.01] * len(sampled.samples))
    assert len(sampled.samples) == pytest.approx(count, abs=1)


def test_samples_taken_in_turn_meet_the_same_machine() -> None:
    """A machine that takes 1.4 times as long in every other 35 ms."""
    clock = FakeClock()

    def on_two_speeds(seconds: float) -> Callable[[], None]:
        def work() -> None:
            clock.now += seconds * (1.4 if int(clock.now / 0.035) % 2 else 1.0)

        return work

    calls = [on_two_speeds(s) for s in (0.0021, 0.002)]
    mine, other = sample(calls, 20, 0.05, (0.0021, 0.002), clock)
    assert len(mine.samples) == len(other.samples) >= 20
    assert ratio(mine, other) == pytest.approx(1.05, rel=0.002)
    # Timed one after the other, each in 30 ms, they may not.
    clock.now = 0.036
    slow = one(calls[0], 10, 0.0, clock=clock, once=0.0021).samples
    clock.now = 0.0
    fast = one(calls[1], 10, 0.0, clock=clock, once=0.002).samples
    assert block_time(slow) / block_time(fast) > 1.3


def test_who_is_first_in_a_round_takes_turns() -> None:
    clock, order = FakeClock(), []

    def work(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            order.append(name)
            clock.now += seconds

        return call

    mine, other = sample([work("a", 0.004), work("b", 0.001)], 4, 0.0, (0.004, 0.001), clock)
    assert "".join(order) == "abb" + "bba" + "abb" + "bba"
    assert (mine.inner, other.inner) == (1, 2)
    assert ratio(mine, other) == pytest.approx(4)
    assert other.running_seconds == pytest.approx(0.008)


def test_a_slow_companion_does_not_end_the_sampling_early() -> None:
    clock = FakeClock()
    calls = [clock.work(0.002), clock.work(0.1)]
    assert len(sample(calls, 3, 0.02, (0.002, 0.1), clock)[0].samples) == 10


@pytest.mark.parametrize("at", range(1, 8))
def test_a_clock_set_back_gives_no_number(at: int) -> None:
    """Before, within and between the samples; nor does a try of minus an hour ask for millions."""
    calls, readings = [], itertools.count(1)

    def an_hour_behind() -> float:
        reading = next(readings)
        return reading / 100 - (3600.0 if reading > at else 0.0)

    with pytest.raises(Wrong, match="the clock went back by "):
        one(lambda: calls.append(1), 3, 0.0, clock=an_hour_behind)
    assert len(calls) < 10


def test_a_clock_that_stands_still_gives_no_number() -> None:
    with pytest.raises(Wrong, match="a sample of 0 s"):
        one(lambda: None, 3, 0.0, clock=lambda: 5.0)


def _looks_at_the_time_of_day(path: Path) -> list[int]:
    """Lines that ask what time it is, not how long something took."""
    lines = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and (
            node.attr in ("now", "utcnow", "today")
            or ast.unparse(node) in ("time.time", "time.time_ns")
        ):
            lines.append(node.lineno)
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            lines += [node.lineno for name in node.names if name.name in ("time", "time_ns", "*")]
    return lines


def test_no_duration_comes_from_the_time_of_day() -> None:
    root = Path(harness.__path__[0])
    # They stamp records, and say since when a folder is in use; nothing is computed from that.
    stamps = {root / "records" / name for name in ("journal.py", "sharing.py")}
    files = {*root.rglob("*.py")} - stamps
    assert len(files) > 40
    assert {str(p): found for p in files if (found := _looks_at_the_time_of_day(p))} == {}


def test_a_warm_call_that_lost_its_core_does_not_shorten_the_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, now = 0, 0.0

    def work() -> None:
        nonlocal calls, now
        calls += 1
        now += 0.15 if calls == 3 else 0.002

    monkeypatch.setattr("harness.measure.warm_up.perf_counter", lambda: now)
    assert warm_up(work, 0.0).once < 0.1
    assert calls == 3


@pytest.mark.alone
def test_a_very_long_call_is_warm_after_the_first_and_one_that_only_waited_is_not() -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        begun = time.process_time()
        while time.process_time() - begun < 0.35:
            pass

    assert warm_up(work, 0.0).once >= 0.35
    assert calls == 1

    def late() -> None:
        nonlocal calls
        calls += 1
        time.sleep(0.35 if calls == 1 else 0.001)

    calls = 0
    assert warm_up(late, 0.0).once < 0.1
    assert calls == 3


def crowded(seconds: float) -> dict[str, float]:
    """Time a fixed loop on one core shared with two others that spin. A task."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    waited = waiting_of_this_thread()
    own = []

    def work() -> None:
        # Far longer than a turn on the core: short samples would lie between two, since reading
        # the processor's clock before each lets the kernel hand the core on.
        began = time.thread_time()
        sum(range(500_000))
        own.append(time.thread_time() - began)

    try:
        time.sleep(0.3)
        sampled = one(work, 40, seconds, waited=waited)
    finally:
        for other in others:
            other.kill()
            other.wait()
    ran, lost = sum(sampled.samples), sum(sampled.waited)
    awake = one(lambda: time.sleep(0.01), 3, 0.0, waited=waited)
    return {
        "lost_share": lost / (ran + lost),
        "of_cpu_time": statistics.median(sampled.samples) / statistics.median(own),
        "sleep_kept": min(awake.samples),
    }


@linux
@pytest.mark.alone
def test_two_others_on_our_core_are_not_our_time() -> None:
    outcome = isolate.run("suites.harness.measure.test_clock:crowded", {"seconds": 0.5})
    assert outcome.status == "ok", outcome.detail
    # Two thirds of the time belong to the others; a sleep is ours all the same.
    assert outcome.value["lost_share"] > 0.4
    assert outcome.value["of_cpu_time"] == pytest.approx(1, abs=0.05)
    assert outcome.value["sleep_kept"] >= 0.0099


def _products(calls: int) -> Callable[[], None]:
    """So many identical products, of a few microseconds each, on one thread."""
    a = torch.randn(64, 64)
    torch.set_num_threads(1)

    def work() -> None:
        for _ in range(calls):
            a @ a

    work()
    return work


@pytest.mark.alone
def test_it_agrees_with_torchs_own_timer_and_twice_the_calls_take_twice_the_time() -> None:
    from torch.utils.benchmark import Timer

    works = {20: _products(20), 40: _products(40)}
    timer = Timer("work()", globals={"work": works[20]})
    # Neighbours' ratios, not the least of each: the processor's speed changes by half for
    # moments, which only one of two may find, but seldom between one and the next.
    more: list[float] = []
    twice: list[float] = []
    for _ in range(40):
        found = {count: one(work, 5, 0.0, once=1.0) for count, work in works.items()}
        single, double = (statistics.median(found[count].samples) for count in (20, 40))
        theirs = [timer.timeit(found[20].inner).mean for _ in found[20].samples]
        more.append(single / statistics.median(theirs))
        twice.append(double / single)
    assert statistics.median(more) == pytest.approx(1, abs=0.2)
    assert statistics.median(twice) == pytest.approx(2, abs=0.3)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[isolate.Interpreter]:
    """Loads torch and dynamo once for all."""
    preload = ("torch", "torch._dynamo", "suites.support.clocked")
    with isolate.Interpreter(preload=preload) as loaded:
        yield loaded


def _timed(interpreter: isolate.Interpreter, given: str) -> isolate.Outcome:
    of = case(given.rpartition(":")[2], "+1-thread", "training")
    arguments = {"case": of, "given": [given]}
    return interpreter.run(TIME, {**arguments, "rounds": 5, "seconds": 0.0})


def _ok(outcome: isolate.Outcome) -> dict[str, Any]:
    assert outcome.status == "ok", outcome
    return dict(outcome.value)


def test_what_a_sample_was_taken_under_is_recorded(interpreter: isolate.Interpreter) -> None:
    """Threads and cores, the warm-up apart, and the time by which the block is compared."""
    value = _ok(_timed(interpreter, CLOCKED + "Sleepy"))
    assert value["threads"] == 1
    if hasattr(os, "sched_getaffinity"):
        assert value["affinity"] == ranges(sorted(os.sched_getaffinity(0)))
    assert value["seconds"] == block_time(value["samples"])
    assert value["median"] == statistics.median(value["samples"])
    assert value["waited_seconds"] >= 0
    assert (value["compile_seconds"], value["recompiles"]) == (0, 0)
    assert value["warmup_seconds"] >= 0.3
    assert max(value["samples"]) < 0.3


def test_cores_are_written_in_short() -> None:
    assert ranges([0]) == "0"
    assert ranges([0, 1, 2, 3, 8, 10, 11]) == "0-3,8,10-11"
    assert ranges([]) == ""


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        (CLOCKED + "Threadbare", "when it was called it changed threads: 1 -> 3 for the whole"),
        pytest.param(CLOCKED + "Mover", "when it was called it changed cores: ", marks=linux),
        ("suites.support.misbehaving.crashing:NanGradient", "output or a gradient is not finite"),
    ],
)
def test_what_spoils_its_own_samples_has_no_time(
    interpreter: isolate.Interpreter, given: str, detail: str
) -> None:
    if given.endswith("Mover") and os.cpu_count() == 1:
        pytest.skip("has no other core")
    outcome = _timed(interpreter, given)
    assert outcome.status == ("wrong" if given.endswith("NanGradient") else "unsupported"), outcome
    assert outcome.detail.startswith(detail)
    assert "samples" not in (outcome.value or {})


@pytest.mark.parametrize(
    ("phase", "first", "beside"),
    [
        ("forward", False, "multi_head.sdpa"),
        ("training", True, "multi_head.sdpa"),
        ("forward", False, "multi_head.no_such"),
    ],
)
def test_a_case_is_timed_in_turn_with_its_baseline_or_alone_where_that_cannot_be_made(
    interpreter: isolate.Interpreter, phase: str, first: bool, beside: str
) -> None:
    mine, base = (f"{name}-{TINY.format(phase)}" for name in ("mtsa.algorithm1", beside))
    arguments = {"case": mine, "seconds": 0.02, "beside": base, "beside_first": first}
    value = _ok(interpreter.run(TIME, arguments))
    assert value["beside"] == base
    assert len(value["samples"]) >= 3
    if beside.endswith("no_such"):
        assert "ratio" not in value
        assert "no_such" in value["beside_detail"]
        return
    assert len(value["beside_samples"]) == len(value["samples"])
    halves = sorted(a / b for a, b in zip(value["samples"], value["beside_samples"], strict=True))
    assert halves[0] <= value["ratio"] <= halves[-1]
    assert min(value["company_seconds"], value["company_setup_seconds"]) > 0


FLASH = "_scaled_dot_product_flash_attention_for_cpu"


@pytest.mark.parametrize(
    ("implementation", "phase", "kernels"),
    [
        ("sdpa_math", "forward", ["_scaled_dot_product_attention_math"]),
        ("sdpa_flash", "training", [FLASH, f"{FLASH}_backward"]),
        ("matmul", "training", []),
    ],
)
def test_the_kernel_really_used_is_recorded(
    interpreter: isolate.Interpreter, implementation: str, phase: str, kernels: list[str]
) -> None:
    name = f"multi_head.{implementation}-B2-N16-D32-H4-f32-{phase}-cpu"
    value = _ok(interpreter.run(TIME, {"case": name, "seconds": 0.0}))
    assert value["dispatched"] == [f"aten::{kernel}" for kernel in kernels]


def test_looking_for_the_kernel_is_no_sample() -> None:
    prepared = prepare("multi_head.plain-B1-N2-D4-H2-f32-forward-cpu+1-thread")
    run = prepared.call
    observed: list[None] = []
    prepared.eager = lambda *inputs: observed.append(run(*inputs))
    assert "dispatched" not in time_prepared(prepared, 5, 0.0, observe=False)
    assert len(observed) == 0
    prepared.call = run
    time_prepared(prepared, 5, 0.0)
    assert len(observed) == 1


def _compiled(interpreter: isolate.Interpreter, name: str, **more: bool | str) -> isolate.Outcome:
    limits = isolate.Limits(seconds=300)
    return interpreter.run(CLOCKED + "time_compiled", {"name": name, **more}, limits)


@pytest.mark.parametrize(
    ("name", "status", "detail"),
    [
        ("Changing", "wrong", "recompilations in the timed region"),
        # Going on eager where compiling gave up is not taken for compiled.
        ("Forgetful", "unsupported", "torch.compile gives up"),
    ],
)
def test_what_is_compiled_anew_all_the_time_has_no_time(
    interpreter: isolate.Interpreter, name: str, status: str, detail: str
) -> None:
    outcome = _compiled(interpreter, name)
    assert outcome.status == status, outcome
    assert detail in outcome.detail
    assert not {"samples", "median"} & {*(outcome.value or {})}
    assert status != "wrong" or outcome.value["recompiles"] >= 2


def test_one_recompilation_in_the_timed_region_is_wrong(interpreter: isolate.Interpreter) -> None:
    once = interpreter.run(CLOCKED + "time_compiled_once_more", {})
    assert (once.status, once.value) == ("wrong", {"recompiles": 1})
    assert once.detail == "1 recompilation in the timed region"


def test_compiling_is_recorded_apart_from_warming_up(interpreter: isolate.Interpreter) -> None:
    value = _ok(_compiled(interpreter, "Plain", slow=True))
    # The compiler sleeps for a second; the calls take microseconds.
    assert value["compile_seconds"] >= 1.0
    assert 0 < value["warmup_seconds"] < 1.0


@pytest.mark.parametrize(
    ("name", "beside", "first"),
    [("Settling", "", False), ("Plain", "Plain", False), ("Plain", "Scaled", True)],
)
def test_what_settles_while_warming_up_is_timed_and_two_in_turn_are_compiled_once_each(
    interpreter: isolate.Interpreter, name: str, beside: str, first: bool
) -> None:
    """Whichever is made first: the other must not throw its code away."""
    value = _ok(_compiled(interpreter, name, beside=beside, beside_first=first))
    assert value["recompiles"] == 0
    assert len(value["samples"]) >= 5
    if beside:
        assert value["ratio"] > 0
        assert value["beside"].startswith(beside)
