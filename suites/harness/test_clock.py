"""The clock and the memory reading, against work of known size."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from harness import isolate
from harness.measure import memory
from harness.measure.clock import SHORTEST_SAMPLE, cpu_samples, time_prepared
from harness.measure.run import prepare
from harness.measure.threads import ranges
from suites.harness.clocked import case

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
    with isolate.Interpreter(preload=("torch", "suites.harness.clocked")) as one:
        yield one


def _timed(
    interpreter: isolate.Interpreter, name: str, settings: str = "", phase: str = "forward"
) -> isolate.Outcome:
    arguments = {"case": case(name, settings, phase), "given": [f"suites.harness.clocked:{name}"]}
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
            "sdpa_flash", "training",
            [
                "_scaled_dot_product_flash_attention_for_cpu",
                "_scaled_dot_product_flash_attention_for_cpu_backward",
            ],
        ),
        ("matmul", "training", []),
    ],
)  # fmt: skip
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
        "suites.harness.test_clock:hold", {"size": mib * MIB}, mallopt=memory.ALLOCATOR
    )
    assert outcome.status == "ok", outcome.detail
    assert outcome.value["sequence"] == pytest.approx(mib * MIB, rel=0.08, abs=MIB)
    assert outcome.value["both"] == pytest.approx(2 * mib * MIB, rel=0.08, abs=MIB)
