"""The clock and the memory reading, against work of known size."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from harness import isolate
from harness.measure import device as devices
from harness.measure import memory
from harness.measure.clock import time_prepared
from harness.measure.cpu_clock import (
    PATIENCE,
    SHORTEST_SAMPLE,
    TOGETHER,
    cpu_samples,
    ranges,
    sample_cpu,
    sample_pair,
    waiting_of_this_thread,
)
from harness.measure.run import prepare
from harness.measure.warm_up import warm_up
from harness.stats import block_time
from suites.support.clocked import case

MIB = 2**20
TIME = "harness.measure.clock:time_case"
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs sched_setaffinity")


class FakeClock:
    """Advances only when told, by the work."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("cost", [1e-5, 1e-3, 0.02, 0.5])
def test_samples_are_seconds_per_call(cost: float) -> None:
    clock = FakeClock()
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        clock.now += cost

    samples, inner = cpu_samples(work, rounds=4, seconds=0.1, clock=clock)
    assert samples == pytest.approx([cost] * len(samples), rel=1e-6)
    assert len(samples) >= 4
    assert inner * cost >= 0.5 * SHORTEST_SAMPLE
    assert calls == 1 + inner * len(samples)


def test_it_goes_on_for_the_time_it_was_given() -> None:
    clock = FakeClock()

    def work() -> None:
        clock.now += 0.01

    samples, _ = cpu_samples(work, rounds=3, seconds=0.5, clock=clock)
    assert len(samples) == pytest.approx(50, abs=1)


def test_waiting_for_a_core_is_taken_off() -> None:
    clock = FakeClock()
    lost = [0.0]
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        clock.now += 0.004
        if calls % 3 == 0:  # another process has the core
            clock.now += 0.05
            lost[0] += 0.05

    sampled = sample_cpu(work, 6, 0.0, clock, once=0.004, waited=lambda: lost[0])
    assert sampled.samples == pytest.approx([0.004] * 6)
    assert sampled.waited == pytest.approx([0.0, 0.0, 0.05] * 2)
    walls, _ = cpu_samples(work, 6, 0.0, clock, once=0.004)
    assert walls == pytest.approx([0.004, 0.004, 0.054] * 2)


def test_waiting_that_may_lie_outside_a_sample_is_not_taken_off() -> None:
    clock = FakeClock()
    readings = 0

    def waited() -> float:
        nonlocal readings
        readings += 1
        if readings == 4:  # at the end of the second sample, its own time already read
            clock.now += 0.05
        return 0.05 if readings >= 4 else 0.0

    def work() -> None:
        clock.now += 0.004

    sampled = sample_cpu(work, 3, 0.0, clock, once=0.004, waited=waited)
    assert TOGETHER < 0.05
    assert sampled.samples == pytest.approx([0.004] * 3)


def test_a_case_gets_its_running_time_while_others_have_the_core_but_not_for_ever() -> None:
    for share, count in ((0.5, 20), (0.01, PATIENCE)):
        clock = FakeClock()

        def work(clock: FakeClock = clock, share: float = share) -> None:
            clock.now += 0.01 / share

        def waited(clock: FakeClock = clock, share: float = share) -> float:
            return clock.now * (1 - share)

        sampled = sample_cpu(work, 3, 0.2, clock, once=0.01, waited=waited)
        assert sampled.samples == pytest.approx([0.01] * len(sampled.samples))
        assert len(sampled.samples) == pytest.approx(count, abs=1)


def test_a_warm_call_that_lost_its_core_does_not_shorten_the_samples() -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        time.sleep(0.15 if calls == 3 else 0.002)

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

    def work() -> int:
        return sum(range(20_000))

    try:
        time.sleep(0.3)
        began = time.thread_time()
        sampled = sample_cpu(work, 20, seconds, waited=waiting_of_this_thread())
        cpu = time.thread_time() - began
    finally:
        for other in others:
            other.kill()
            other.wait()
    ran, lost = sum(sampled.samples), sum(sampled.waited)
    awake = sample_cpu(lambda: time.sleep(0.01), 3, 0.0, waited=waiting_of_this_thread())
    return {
        "lost_share": lost / (ran + lost),
        "of_cpu_time": ran * sampled.inner / cpu,
        "sleep_kept": min(awake.samples),
    }


def _on_a_machine_of_two_speeds(clock: FakeClock, seconds: float) -> Callable[[], None]:
    """Work that takes 1.4 times as long in every other 35 ms."""

    def work() -> None:
        clock.now += seconds * (1.4 if int(clock.now / 0.035) % 2 else 1.0)

    return work


def test_samples_taken_in_turn_meet_the_same_machine() -> None:
    clock = FakeClock()
    mine, other = (_on_a_machine_of_two_speeds(clock, s) for s in (0.0021, 0.002))
    pair = sample_pair(mine, other, 20, 0.05, (0.0021, 0.002), clock)
    assert len(pair.mine.samples) == len(pair.other.samples) >= 20
    assert pair.ratio == pytest.approx(1.05, rel=0.002)
    # Timed one after the other, each in 30 ms, they may not.
    clock.now = 0.036
    slow = sample_cpu(mine, 10, 0.0, clock, once=0.0021).samples
    clock.now = 0.0
    fast = sample_cpu(other, 10, 0.0, clock, once=0.002).samples
    assert block_time(slow) / block_time(fast) > 1.3


def test_who_is_first_in_a_round_takes_turns() -> None:
    clock, order = FakeClock(), []

    def work(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            order.append(name)
            clock.now += seconds

        return call

    pair = sample_pair(work("a", 0.004), work("b", 0.001), 4, 0.0, (0.004, 0.001), clock)
    assert "".join(order) == "abb" + "bba" + "abb" + "bba"
    assert (pair.mine.inner, pair.other.inner) == (1, 2)
    assert pair.ratio == pytest.approx(4)
    assert pair.other.running_seconds == pytest.approx(0.008)


def test_a_slow_companion_does_not_end_the_sampling_early() -> None:
    clock = FakeClock()

    def work(seconds: float) -> Callable[[], None]:
        def call() -> None:
            clock.now += seconds

        return call

    pair = sample_pair(work(0.002), work(0.1), 3, 0.02, (0.002, 0.1), clock)
    assert len(pair.mine.samples) == 10


@pytest.mark.parametrize(("phase", "first"), [("forward", False), ("training", True)])
@pytest.mark.alone
def test_a_case_is_timed_in_turn_with_its_baseline(phase: str, first: bool) -> None:
    mine, base = (
        f"{n}-B2-N16-D24x24-H4-f32-{phase}-cpu+1-thread"
        for n in ("mtsa.algorithm1", "multi_head.sdpa")
    )
    arguments = {"case": mine, "seconds": 0.02, "beside": base, "beside_first": first}
    value = isolate.run(TIME, arguments).value
    assert value["beside"] == base
    assert len(value["beside_samples"]) == len(value["samples"]) >= 3
    assert value["ratio"] == pytest.approx(
        value["seconds"] / block_time(value["beside_samples"]), rel=0.7
    )
    assert min(value["company_seconds"], value["company_setup_seconds"]) > 0


def test_a_companion_that_cannot_be_made_is_told_and_the_case_timed_alone() -> None:
    mine, base = (
        f"{n}-B2-N16-D24x24-H4-f32-forward-cpu+1-thread"
        for n in ("mtsa.algorithm1", "multi_head.no_such")
    )
    outcome = isolate.run(TIME, {"case": mine, "seconds": 0.02, "beside": base})
    assert outcome.status == "ok", outcome
    assert len(outcome.value["samples"]) >= 3
    assert "ratio" not in outcome.value
    assert "no_such" in outcome.value["beside_detail"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts how long a thread waits")
@pytest.mark.alone
def test_two_others_on_our_core_are_not_our_time() -> None:
    outcome = isolate.run("suites.harness.measure.test_clock:crowded", {"seconds": 0.5})
    assert outcome.status == "ok", outcome.detail
    # Two thirds of the time belong to the others; a sleep is ours all the same.
    assert outcome.value["lost_share"] > 0.4
    assert outcome.value["of_cpu_time"] == pytest.approx(1, abs=0.15)
    assert outcome.value["sleep_kept"] >= 0.0099


@pytest.mark.alone
def test_a_case_is_compared_by_the_blocks_time_of_its_samples() -> None:
    case = "multi_head.sdpa-B1-N4-D16x16-H2-f32-forward-cpu+1-thread"
    outcome = isolate.run("harness.measure.clock:time_case", {"case": case, "seconds": 0.02})
    assert outcome.status == "ok", outcome.detail
    value = outcome.value
    assert value["seconds"] == block_time(value["samples"])
    assert value["median"] == statistics.median(value["samples"])
    assert value["threads"] == 1
    assert value["waited_seconds"] >= 0


@pytest.mark.alone
def test_a_sleep_is_timed_as_long_as_it_is() -> None:
    samples, _ = cpu_samples(lambda: time.sleep(0.02), rounds=5, seconds=0.0)
    assert min(samples) >= 0.02
    assert statistics.median(samples) < 0.06


def _products(calls: int) -> Callable[[], None]:
    """So many identical products, of a few microseconds each, on one thread."""
    a = torch.randn(64, 64)
    torch.set_num_threads(1)

    def work() -> None:
        for _ in range(calls):
            a @ a

    work()
    return work


def _shortest(work: Callable[[], None]) -> float:
    """The least of many short samples, each of one call: one of them has the core for itself."""
    return min(cpu_samples(work, rounds=20, seconds=0.0, once=1.0)[0])


@pytest.mark.alone
def test_it_agrees_with_torchs_own_timer() -> None:
    from torch.utils.benchmark import Timer

    work = _products(20)
    timer = Timer("work()", globals={"work": work})
    # Interleaved, the least of many: both must see the same work on a noisy machine.
    ours, theirs = [], []
    for _ in range(10):
        ours.append(_shortest(work))
        theirs.append(min(timer.timeit(1).mean for _ in range(20)))
    assert min(ours) == pytest.approx(min(theirs), rel=0.3)


@pytest.mark.alone
def test_twice_the_calls_take_twice_the_time() -> None:
    one, two = _products(20), _products(40)
    once, twice = [], []
    for _ in range(10):
        once.append(_shortest(one))
        twice.append(_shortest(two))
    assert 1.6 < min(twice) / min(once) < 2.5


@pytest.fixture(scope="module")
def interpreter() -> Iterator[isolate.Interpreter]:
    """Loads torch once for all."""
    with isolate.Interpreter(preload=("torch", "suites.support.clocked")) as one:
        yield one


def _timed(
    interpreter: isolate.Interpreter, name: str, settings: str = "", phase: str = "forward"
) -> isolate.Outcome:
    arguments = {"case": case(name, settings, phase), "given": [f"suites.support.clocked:{name}"]}
    return interpreter.run(TIME, {**arguments, "rounds": 5, "seconds": 0.0})


def test_threads_and_cores_are_recorded(interpreter: isolate.Interpreter) -> None:
    value = _timed(interpreter, "Plain", "+1-thread").value
    assert value["threads"] == 1
    if hasattr(os, "sched_getaffinity"):
        assert value["affinity"] == ranges(sorted(os.sched_getaffinity(0)))


def test_cores_are_written_in_short() -> None:
    assert ranges([0]) == "0"
    assert ranges([0, 1, 2, 3, 8, 10, 11]) == "0-3,8,10-11"
    assert ranges([]) == ""


def test_a_module_that_sets_the_threads_itself_is_wrong(interpreter: isolate.Interpreter) -> None:
    outcome = _timed(interpreter, "Threadbare", "+1-thread")
    assert (outcome.status, outcome.detail) == ("wrong", "ran with 3 threads; 1 were set")
    assert "samples" not in outcome.value


@linux
@pytest.mark.skipif(os.cpu_count() == 1, reason="has no other core")
def test_a_module_that_moves_the_process_is_wrong(interpreter: isolate.Interpreter) -> None:
    outcome = _timed(interpreter, "Mover", "+1-thread")
    assert outcome.status == "wrong", outcome
    assert outcome.detail.startswith("ended on cores")


@pytest.mark.parametrize(
    ("name", "phase"),
    [("NotANumber", "forward"), ("LateNotANumber", "forward"), ("Ungrateful", "training")],
)
def test_what_is_not_a_number_is_wrong_and_has_no_time(
    interpreter: isolate.Interpreter, name: str, phase: str
) -> None:
    outcome = _timed(interpreter, name, phase=phase)
    assert (outcome.status, outcome.value) == ("wrong", None)
    assert outcome.detail == "output or a gradient is not finite"


@pytest.mark.parametrize(
    ("implementation", "phase", "kernels"),
    [
        ("sdpa_math", "forward", ["_scaled_dot_product_attention_math"]),
        ("sdpa_flash", "forward", ["_scaled_dot_product_flash_attention_for_cpu"]),
        (
            "sdpa_flash",
            "training",
            [
                "_scaled_dot_product_flash_attention_for_cpu",
                "_scaled_dot_product_flash_attention_for_cpu_backward",
            ],
        ),
        ("matmul", "training", []),
    ],
)
def test_the_kernel_really_used_is_recorded(
    interpreter: isolate.Interpreter, implementation: str, phase: str, kernels: list[str]
) -> None:
    name = f"multi_head.{implementation}-B2-N16-D32-H4-f32-{phase}-cpu"
    outcome = interpreter.run(TIME, {"case": name, "seconds": 0.0})
    assert outcome.value["dispatched"] == [f"aten::{kernel}" for kernel in kernels]


def test_looking_for_the_kernel_is_no_sample() -> None:
    prepared = prepare("multi_head.plain-B1-N2-D4-H2-f32-forward-cpu+1-thread")
    run, counts = prepared.call, {"timed": 0, "observed": 0}

    def timed() -> None:
        counts["timed"] += 1
        run()

    def observed() -> None:
        counts["observed"] += 1
        run()

    prepared.call, prepared.eager = timed, observed
    record = time_prepared(prepared, 5, 0.0, observe=False)
    assert "dispatched" not in record
    assert counts["observed"] == 0
    prepared.call = timed
    time_prepared(prepared, 5, 0.0)
    assert counts["observed"] == 1


def hold(size: int) -> dict[str, int]:
    """Allocate `size` bytes twice, one after the other, then both halves at once. A task."""

    def one_after_the_other() -> None:
        for _ in range(2):
            torch.ones(size // 4)

    def both() -> None:
        first = torch.ones(size // 4)
        second = torch.ones(size // 4)
        del first, second

    for call in (one_after_the_other, both):
        call()
    peaks = {}
    for name, call in (("sequence", one_after_the_other), ("both", both)):
        before, peak = memory.cpu_peak(call)
        peaks[name] = peak - before
    return peaks


@pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark is the Linux kernel's")
@pytest.mark.parametrize("mib", [8, 64, 256])
def test_peak_memory_is_what_was_held_at_once(mib: int) -> None:
    outcome = isolate.run(
        "suites.harness.measure.test_clock:hold",
        {"size": mib * MIB},
        mallopt=devices.MEMORY_ALLOCATOR,
    )
    assert outcome.status == "ok", outcome.detail
    assert outcome.value["sequence"] == pytest.approx(mib * MIB, rel=0.08, abs=MIB)
    assert outcome.value["both"] == pytest.approx(2 * mib * MIB, rel=0.08, abs=MIB)
