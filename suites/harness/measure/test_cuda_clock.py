"""The clock of asynchronous devices: in made-up time, and on CUDA where it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from harness.isolate import Wrong
from harness.measure.clock import time_case, time_prepared
from harness.measure.cpu_clock import undisturbed
from harness.measure.cuda_clock import LEAST_BATCH, MAX_ROUNDS, Cuda, event_samples, flush_bytes
from harness.measure.run import prepare

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Event:
    """A mark in a device's queue, which tells its time when that has come so far."""

    def __init__(self, device: Simulated) -> None:
        self.device = device
        self.at: float | None = None

    def record(self) -> None:
        self.device.queued.append(("event", self._reach))

    def _reach(self) -> None:
        self.at = self.device.now

    def elapsed_time(self, end: Event) -> float:
        if self.at is None or end.at is None:
            raise RuntimeError("device not ready")
        return (end.at - self.at) * 1e3


class Simulated:
    """Costs what it is told, in seconds of its own, and does nothing before it is waited for."""

    def __init__(self, flush_cost: float = 0.0) -> None:
        self.flush_cost = flush_cost
        self.now = 0.0
        self.queued: list[tuple[str, Callable[[], None]]] = []
        self.done: list[str] = []

    def work(self, cost: float, name: str = "work") -> None:
        """Queue work of so many seconds."""
        self.queued.append((name, lambda: self._spend(cost)))

    def _spend(self, cost: float) -> None:
        self.now += cost

    def event(self) -> Event:
        return Event(self)

    def flush(self) -> None:
        self.work(self.flush_cost, "flush")

    def synchronize(self) -> None:
        for name, action in self.queued:
            action()
            self.done.append(name)
        self.queued.clear()
        self.done.append("synchronize")


@pytest.mark.parametrize("flush_cost", [0.0, 1.0, 2.0, 1000.0])
def test_a_cleared_cache_is_not_counted(flush_cost: float) -> None:
    device = Simulated(flush_cost)
    found = event_samples(lambda: device.work(0.25), 7, 0.0, device)
    samples = found.samples
    assert samples == pytest.approx([0.25] * len(samples))
    assert found.inner == 1
    # Before each sample, and waited for once per batch.
    one = ["flush", "event", "work", "event"]
    assert device.done == [*(one * len(samples)), "synchronize"]


@pytest.mark.parametrize(("rounds", "batch"), [(3, LEAST_BATCH), (20, 20)])
def test_it_goes_on_for_the_time_it_was_given_or_as_many_rounds_as_it_may(
    rounds: int, batch: int
) -> None:
    device = Simulated()
    # The host's clock moves by a second per look, and it is looked at once per batch.
    ticks = iter(range(1000))
    samples = event_samples(
        lambda: device.work(0.5), rounds, 4.5, device, clock=lambda: float(next(ticks))
    ).samples
    assert device.done.count("synchronize") == len(samples) / batch
    assert rounds < len(samples) < MAX_ROUNDS
    assert len(event_samples(lambda: device.work(0.5), 3, 3600.0, device).samples) == MAX_ROUNDS


def test_events_that_are_read_without_waiting_give_no_number() -> None:
    """A clock of the host would: it would time the queueing."""

    class Impatient(Simulated):
        def synchronize(self) -> None:
            pass

    device = Impatient()
    (host,) = undisturbed([lambda: device.work(0.25)], 5, 0.0)
    assert max(host.samples) < 0.1
    with pytest.raises(RuntimeError, match="not ready"):
        event_samples(lambda: device.work(0.25), 5, 0.0, device)


@pytest.mark.parametrize("lie", [0.0, -1.0, math.nan, math.inf])
def test_a_time_between_events_that_can_not_be_is_refused(lie: float) -> None:
    class Lying(Simulated):
        def event(self) -> Event:
            event = super().event()
            event.elapsed_time = lambda end: lie  # type: ignore[method-assign]
            return event

    device = Lying()
    with pytest.raises(Wrong, match="can't be trusted"):
        event_samples(lambda: device.work(1.0), 5, 0.0, device)


def test_the_median_is_the_median_and_not_the_greatest() -> None:
    device = Simulated(flush_cost=7.0)
    prepared = prepare("multi_head.plain-B1-N2-D4-H2-f32-forward-cpu+1-thread")
    run = prepared.call
    calls = 0

    def call(*inputs: torch.Tensor) -> None:
        nonlocal calls
        run(*inputs)
        device.work(9.0 if calls % 5 == 4 else 1.0 + calls % 5)
        calls += 1

    prepared.call = call
    prepared.eager = run
    record = time_prepared(prepared, 5, 0.0, device=device)
    # Of five calls in a row one each takes 1, 2, 3, 4 and 9 s.
    assert sorted(record["samples"]) == pytest.approx([1, 2, 3, 4, 9])
    assert record["median"] == pytest.approx(3)


def test_the_flush_is_sized_by_the_device() -> None:
    assert flush_bytes(SimpleNamespace(L2_cache_size=50 * 2**20)) == 100 * 2**20
    assert flush_bytes(SimpleNamespace(L2_cache_size=4 * 2**20)) == 8 * 2**20
    # An older torch does not tell: then more than any GPU's.
    assert flush_bytes(SimpleNamespace()) >= 128 * 2**20


def _spin(million_cycles: float) -> Callable[[], None]:
    """Work on the GPU of a length that its own clock counts; 0.5 to 1 ms per million cycles."""
    return lambda: torch.cuda._sleep(int(million_cycles * 1e6))


@cuda
class TestCuda:
    """On a real device."""

    def test_the_events_agree_with_a_clock_that_waits(self) -> None:
        call = _spin(5)
        samples = event_samples(call, 10, 0.0, Cuda()).samples

        def waited() -> None:
            call()
            torch.cuda.synchronize()

        (host,) = undisturbed([waited], 10, 0.0)
        assert statistics.median(samples) == pytest.approx(min(host.samples), rel=0.1)

    def test_the_flush_clears_the_cache(self) -> None:
        device = Cuda()
        size = device.flush_bytes // 4  # half of the cache
        a = torch.zeros(size // 4, device="cuda")

        def read() -> None:
            a.sum()

        class Warm(Cuda):
            def flush(self) -> None:
                super().flush()  # for as long as before, so that the host keeps ahead
                read()

        cold = statistics.median(event_samples(read, 50, 0.0, device).samples)
        warm = statistics.median(event_samples(read, 50, 0.0, Warm()).samples)
        assert cold > warm

    def test_it_agrees_with_tritons_do_bench(self) -> None:
        testing = pytest.importorskip("triton.testing")
        a = torch.randn(4096, 4096, device="cuda")
        out = torch.empty_like(a)

        def work() -> None:
            torch.mm(a, a, out=out)

        for _ in range(20):
            work()
        ours, theirs = [], []
        for _ in range(5):
            ours.append(statistics.median(event_samples(work, 20, 0.0, Cuda()).samples))
            theirs.append(testing.do_bench(work, return_mode="median") / 1e3)
        assert min(ours) == pytest.approx(min(theirs), rel=0.1)

    @pytest.mark.parametrize("settings", ["", "+graphed"])
    def test_a_case_has_its_samples_and_its_kernel(self, settings: str) -> None:
        case = f"multi_head.sdpa_flash-B4-N128-D256-H4-bf16-forward-cuda{settings}"
        record = time_case(case, rounds=5, seconds=0.0)
        assert len(record["samples"]) >= 5
        assert record["recompiles"] == 0
        assert "aten::_scaled_dot_product_flash_attention" in record["dispatched"]
        assert record["flush_bytes"] == Cuda().flush_bytes
