"""The clock and the memory reading, against work of known size."""

from __future__ import annotations

import statistics
import sys
import time

import pytest
import torch

from harness import isolate
from harness.measure import memory
from harness.measure.clock import SHORTEST_SAMPLE, cpu_samples

MIB = 2**20


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
    assert statistics.median(samples) < 0.03


def test_it_agrees_with_torchs_own_timer() -> None:
    from torch.utils.benchmark import Timer

    a = torch.randn(384, 384)

    def work() -> torch.Tensor:
        return a @ a

    torch.set_num_threads(1)
    work()
    # Interleaved, the smallest of several: both must see the same work on a noisy machine.
    ours, theirs = [], []
    for _ in range(7):
        ours.append(min(cpu_samples(work, rounds=5, seconds=0.02)[0]))
        theirs.append(Timer("work()", globals={"work": work}).timeit(20).mean)
    assert min(ours) == pytest.approx(min(theirs), rel=0.3)


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
