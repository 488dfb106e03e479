"""What is said of a case on a GPU beside its time: on a device in made-up time, read by no NVML."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from harness.isolate import Limits, Outcome
from harness.measure import call, clock, gpu, on_gpu
from harness.measure.cuda_clock import LEAST_BATCH, PATIENCE, events_in_turn
from harness.measure.gpu import REASONS, Sensed, Sensor, sensor
from harness.measure.on_gpu import LEAST_STEPS, energy_record
from harness.measure.run import Prepared, prepare
from suites.harness.measure.test_cuda_clock import Simulated

CAP, HOT, IDLE = 0x04, 0x20, 0x01
CASE = "multi_head.plain-B1-N2-D4-H2-f32-forward-cpu+1-thread"


class Readings(Sensor):
    """A GPU that says so of itself, reading after reading; the last one goes on."""

    def __init__(self, *reasons: int | None, mhz: float | None = 1980.0) -> None:
        self._reasons, self._mhz = list(reasons), mhz
        self.spent: Callable[[], int | None] = lambda: None

    def mhz(self) -> float | None:
        return self._mhz

    def reasons(self) -> int | None:
        return self._reasons.pop(0) if len(self._reasons) > 1 else self._reasons[0]

    def millijoules(self) -> int | None:
        return self.spent()


# In turn


def test_a_case_and_its_baseline_are_timed_in_turn() -> None:
    device = Simulated(flush_cost=3.0)
    calls = [lambda: device.work(0.25, "mine"), lambda: device.work(0.5, "base")]
    (mine, base), sensed = events_in_turn(calls, 4, 0.0, device)
    assert mine.samples == pytest.approx([0.25] * LEAST_BATCH)
    assert base.samples == pytest.approx([0.5] * LEAST_BATCH)
    order = [name for name in device.done if name in ("mine", "base")]
    assert order[:6] == ["mine", "base", "base", "mine", "mine", "base"]
    assert device.done.count("flush") == 2 * LEAST_BATCH
    assert sensed.record() == {"taken": LEAST_BATCH, "throttled": 0}


def test_a_machine_that_drifts_leaves_their_ratio_as_it_is() -> None:
    device = Simulated()
    slower = itertools.count()

    def work(cost: float) -> None:
        device.work(cost * 1.05 ** next(slower))

    (mine, base), _ = events_in_turn([lambda: work(0.2), lambda: work(0.1)], 20, 0.0, device)
    assert clock.ratio(mine, base) == pytest.approx(2, rel=0.01)


# Clocks that are lowered


def drifting(device: Simulated, *seconds: float) -> Callable[[], None]:
    """A call that takes so long in one batch after another."""
    batches = itertools.chain.from_iterable([one] * (LEAST_BATCH + 1) for one in seconds)
    return lambda: device.work(next(batches))


def test_samples_of_a_lowered_clock_are_set_aside_and_counted() -> None:
    device, readings = Simulated(), Readings(CAP, 0, HOT | IDLE, 0)
    host = itertools.count()

    def ticks() -> float:  # looked at behind the second batch and each later one
        return 2.0 * next(host)

    (found,), sensed = events_in_turn(
        [drifting(device, 9.0, 1.0, 8.0, 2.0)], LEAST_BATCH + 1, 4.5, device, ticks, sensor=readings
    )
    assert found.samples == pytest.approx([*[1.0] * 6, *[2.0] * 6])
    assert sensed.record() == {
        "taken": 24,
        "throttled": 12,
        "throttle_reasons": [REASONS[CAP], REASONS[HOT]],
        "sm_mhz": 1980.0,
    }


def test_the_clock_is_that_of_the_samples_that_count() -> None:
    sensed = Sensed()
    for bits, mhz in ((CAP, 900.0), (HOT, 1000.0), (HOT, 1100.0), (0, 1900.0), (IDLE, 1800.0)):
        sensed.look(Readings(bits, mhz=mhz), 5)
    assert (sensed.throttled, sensed.record()["sm_mhz"]) == (15, 1850.0)
    slow = Sensed()
    slow.look(Readings(CAP, mhz=900.0), 5)
    assert slow.record()["sm_mhz"] == 900.0, "of a clock that is lowered throughout"


def test_where_every_clock_is_lowered_all_samples_count_and_that_is_said() -> None:
    device = Simulated()
    (found,), sensed = events_in_turn(
        [lambda: device.work(1.0)], 5, 0.0, device, sensor=Readings(CAP)
    )
    assert len(found.samples) == sensed.taken == sensed.throttled == PATIENCE * 5


@pytest.mark.parametrize("reasons", [0, IDLE, 0x02, 0x100, None])
def test_what_slows_nothing_down_sets_nothing_aside(reasons: int | None) -> None:
    sensed = Sensed()
    for mhz in (1000.0, 1900.0, 1800.0, None):
        assert not sensed.look(Readings(reasons, mhz=mhz), 5)
    sensed.look(None, 5)
    assert sensed.record() == {"taken": 25, "throttled": 0, "sm_mhz": 1800.0}


def test_nvml_is_asked_and_what_it_refuses_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def refused(*_: Any) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    with monkeypatch.context() as patch:
        patch.setattr(pynvml, "nvmlInit", lambda: None)
        patch.setattr(pynvml, "nvmlShutdown", lambda: None)
        patch.setattr(gpu, "_find", lambda _: "handle")
        patch.setattr(pynvml, "nvmlDeviceGetClockInfo", lambda *_: 1755)
        patch.setattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda _: CAP)
        patch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", refused)
        with sensor() as found:
            assert found is not None
            assert (found.mhz(), found.reasons(), found.millijoules()) == (1755, CAP, None)
    monkeypatch.setattr(pynvml, "nvmlInit", refused)
    with sensor() as found:
        assert found is None


# Energy


class Powered:
    """A GPU that spends watts and counts them in steps of so many seconds."""

    def __init__(self, step: float = 0.05, idle: float = 70.0) -> None:
        self.now, self.spent, self.step, self.idle = 0.0, 0.0, step, idle
        self.seen, self.at = 0, 0.0

    def work(self, seconds: float, watts: float) -> None:
        self.now += seconds
        self.spent += seconds * watts
        if self.now - self.at >= self.step:
            self.at, self.seen = self.now, int(1e3 * self.spent)

    def record(
        self, calls: Sequence[Callable[[], None]], *once: float, **more: Any
    ) -> dict[str, Any]:
        """What is said of calls that take so long, by a turn of a second."""
        readings = Readings(*more.get("reasons", (0,)))
        readings.spent = more.get("counter", lambda: self.seen)
        return energy_record(calls, once, readings, lambda: None, 1.0, lambda: self.now)


def test_joules_are_watts_by_seconds_of_a_pass() -> None:
    powered = Powered()
    found = powered.record([lambda: powered.work(0.002, 500.0)], 0.002)
    assert found == {"joules": pytest.approx(1.0, rel=0.01)}


def test_energy_is_compared_in_turn_and_what_warms_up_cancels() -> None:
    powered = Powered()
    order: list[str] = []

    def work(name: str, seconds: float) -> None:
        if order[-1:] != [name]:
            order.append(name)
        powered.work(seconds, 300.0 * (1 + 0.05 * powered.now))

    calls = [partial(work, "mine", 0.002), partial(work, "base", 0.004)]
    found = powered.record(calls, 0.002, 0.004)
    assert order == ["mine", "base", "mine"]
    assert found["energy_ratio"] == pytest.approx(0.5, rel=0.02)
    assert found["joules"] / found["beside_joules"] == pytest.approx(found["energy_ratio"])


def test_a_counter_that_is_absent_too_slow_or_runs_backwards_is_no_reading() -> None:
    slow = Powered(step=1.0 / LEAST_STEPS)
    calls = [lambda: slow.work(0.01, 300.0)]
    seldom = {"energy_detail": "the counter of energy moved too seldom in 1 s"}
    assert slow.record(calls, 0.01) == seldom
    backwards = itertools.count(10**9, -1000)
    assert slow.record(calls, 0.01, counter=lambda: next(backwards)) == seldom
    assert "no counter" in slow.record(calls, 0.01, counter=lambda: None)["energy_detail"]


def test_energy_at_a_lowered_clock_says_so() -> None:
    powered = Powered()
    calls = [lambda: powered.work(0.002, 500.0)]
    found = powered.record(calls, 0.002, reasons=(0, 0, CAP, 0))
    assert found["energy_lowered"] == [REASONS[CAP]]
    assert found["joules"] == pytest.approx(1.0, rel=0.01)
    assert "energy_lowered" not in powered.record(calls, 0.002, reasons=(IDLE,))


# A case


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> tuple[Simulated, Prepared]:
    """A case whose passes take a second on a device that says nothing of its energy."""
    device, prepared = Simulated(flush_cost=7.0), prepare(CASE)
    run = prepared.call

    def passing(*inputs: torch.Tensor) -> None:
        run(*inputs)
        device.work(1.0)

    prepared.call = passing
    monkeypatch.setattr(on_gpu, "captured", lambda _: lambda *_: device.work(0.5, "replay"))
    return device, prepared


@pytest.mark.parametrize(
    ("least", "detail"),
    [
        (0.0, "NVML has no counter of energy for this GPU"),
        (0.1, "a case has 0 s in this profile, and its energy takes two: --profile full has it"),
    ],
)
def test_a_case_says_what_the_gpu_said(
    simulated: tuple[Simulated, Prepared],
    least: float,
    detail: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(on_gpu, "ENERGY_FROM", least)
    device, prepared = simulated
    record = clock.time_prepared(prepared, 5, 0.0, device=device, readings=Readings(0))
    assert record["seconds"] == pytest.approx(1.0)
    assert record["gpu"] == {
        "taken": 5,
        "throttled": 0,
        "sm_mhz": 1980.0,
        "hot_seconds": pytest.approx(1.0),
        "device_seconds": pytest.approx(0.5),
        "energy_detail": detail,
    }
    assert "spoiled" not in record
    assert device.done.count("flush") == 2 * 5, "for the samples and the replays, not the warm ones"


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        # A look for each batch: the ratio's own; hot, until no more are taken; of a graph, whose
        # first batch is set aside.
        ((0, *[HOT] * PATIENCE, CAP, 0), {"hot_lowered": [REASONS[HOT]]}),
        ((0, 0, CAP), {"device_lowered": [REASONS[CAP]]}),
    ],
)
def test_every_other_reading_says_that_the_clock_was_lowered_too(
    simulated: tuple[Simulated, Prepared], reasons: tuple[int, ...], told: dict[str, Any]
) -> None:
    device, prepared = simulated
    readings = Readings(*reasons)
    found = clock.time_prepared(prepared, 5, 0.0, device=device, readings=readings)["gpu"]
    assert (found["taken"], found["throttled"]) == (5, 0)
    assert {name: why for name, why in found.items() if name.endswith("_lowered")} == told
    assert found["device_seconds"] == pytest.approx(0.5)


def test_a_capture_that_fails_costs_the_reading_and_the_interpreter(
    simulated: tuple[Simulated, Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = RuntimeError("operation not permitted\nwhen stream is capturing")
    monkeypatch.setattr(on_gpu, "captured", Mock(side_effect=failed))
    device, prepared = simulated
    record = clock.time_prepared(
        prepared, 5, 0.0, True, device, None, False, clock.acting(()), None
    )
    assert record["gpu"]["device_detail"] == "RuntimeError: operation not permitted"
    assert record["gpu"]["energy_detail"] == "NVML can't be begun"
    assert record["spoiled"]


def test_an_interpreter_whose_capture_failed_is_replaced() -> None:
    told = {"samples": [0.1], "median": 0.1, "clock_seconds": 1.0, "spoiled": True}
    child = Mock(**{"run.return_value": Outcome("ok", told, "", 1.0)})
    found = call.time(child, {"case": CASE, "given": []}, Limits(), {"allocator": ""})
    assert child.restart.call_count == 1
    assert "spoiled" not in found.value


def test_where_there_is_no_room_for_two_a_case_is_timed_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = torch.OutOfMemoryError("CUDA out of memory")
    timed = Mock(side_effect=[full, {"median": 1.0}])
    monkeypatch.setattr(clock, "_time_case", timed)
    on_cuda = CASE.replace("-cpu+1-thread", "-cuda")
    record = clock.time_case(on_cuda, beside="base", beside_first=True)
    assert [one.args[7:] for one in timed.call_args_list] == [("base", True), ()]
    assert record["median"] == 1.0
    assert (record["beside"], record["beside_detail"]) == ("base", clock.NO_ROOM)
    for case, beside in ((on_cuda, None), (CASE, "base")):
        timed.side_effect = [full, {"median": 1.0}]
        with pytest.raises(torch.OutOfMemoryError):
            clock.time_case(case, beside=beside)
