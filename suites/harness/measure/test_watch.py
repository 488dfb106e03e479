"""What keeps a time honest: around the samples, in the process, and from the driver's side."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from harness.case import parse
from harness.inputs import InputSource
from harness.isolate import Interpreter, Limits, Outcome, Wrong, untouched
from harness.measure import call, state, watch
from harness.measure.checks import Meddling, acting
from harness.measure.cpu_clock import Sampled, sample
from harness.measure.cuda_clock import events_in_turn
from harness.measure.run import prepare
from harness.measure.watch import LOOKS, Watch
from harness.stats import block_time
from suites.harness.measure.test_clock import FakeClock
from suites.harness.measure.test_cuda_clock import Simulated

ID = "multi_head.plain-B3-N4-D8-H2-f32-{}-cpu+1-thread"
ALL = acting(())


def watched(
    phase: str = "forward", calls: int = 1, once: float = 1e-4, on: frozenset[str] = ALL
) -> Watch:
    """Over samples of so many calls."""
    prepared = prepare(ID.format(phase))
    prepared.call()
    over = Watch(prepared, once, on)
    assert over.begin(calls) == calls
    return over


def take(over: Watch, calls: int) -> list[tuple[torch.Tensor, ...]]:
    """A sample, as the clock takes it; the inputs of its calls."""
    batch = list(over.before(calls))
    for inputs in batch:
        over.call(*inputs)
    over.after()
    return batch


def take_many(over: Watch, samples: int) -> None:
    for _ in range(samples):
        take(over, 1)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for."""
    monkeypatch.setattr(Watch, "_wait", lambda self: None)


@pytest.mark.parametrize("phase", ["forward", "training"])
def test_no_call_meets_an_input_again(soon: None, phase: str) -> None:
    over = watched(phase, 8)
    batches, contents = [], set()
    for _ in range(10):
        batches.append(take(over, 8))
        contents |= {tuple(x.detach().flatten().tolist()) for x, *_ in batches[-1]}
    assert len(contents) == sum(map(len, batches))
    assert len({tuple(id(x) for x, *_ in batch) for batch in batches}) > 5
    # None knows that it is the last one.
    assert {len(batch) for batch in batches} <= {4, 5, 6, 7, 8}
    assert len({len(batch) for batch in batches}) > 1


def test_without_fresh_inputs_every_call_meets_the_same() -> None:
    over = watched(calls=8, on=acting(["fresh-inputs", "late-values"]))
    assert len({id(x) for _ in range(5) for (x,) in take(over, 8)}) == 1


def test_a_check_has_one_of_these_names() -> None:
    with pytest.raises(ValueError, match="'clocks'"):
        acting(["clocks"])


def test_every_sample_may_be_one_that_is_looked_at(soon: None) -> None:
    """Also those beyond what was planned, which a module may reach that becomes lazy."""
    seen: set[int] = set()
    for _ in range(60):
        over = watched()
        take_many(over, 30)
        assert len({look.sample for look in over.looks}) == LOOKS
        seen |= {look.sample for look in over.looks}
    assert len(seen) > 25
    long = watched(once=1.0)
    take_many(long, 3)
    assert len(long.looks) == 1


def test_a_look_keeps_the_input_the_output_and_every_gradient(soon: None) -> None:
    over = watched("training", 3)
    take(over, 3)
    (look,) = over.looks
    weights = {name for name in look.values if name not in ("the input", "the output")}
    assert "the gradient of the input" in weights
    assert len(weights) > 4
    assert look.values["the output"][0] == [3, 4, 8]
    assert not look.moved


def test_what_arrives_after_the_clock_has_stopped_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def arrives(over: Watch) -> None:
        over._prepared.results()["the output"].add_(1)

    monkeypatch.setattr(Watch, "_wait", torch.inference_mode()(arrives))
    over = watched()
    with pytest.raises(Wrong, match="the output of sample 1 still changed") as raised:
        take(over, 1)
    assert raised.value.value == {"found_by": "late-values"}
    take(watched(on=acting(["late-values"])), 1)


def test_work_that_goes_on_behind_the_clock_is_wrong() -> None:
    over = watched()
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    worker = threading.Thread(target=spin)
    worker.start()
    try:
        with pytest.raises(Wrong, match="another thread still worked for"):
            take_many(over, 200)  # on a busy machine it may have no core just then
    finally:
        stop.set()
        worker.join()
    take_many(over, 20)


def test_who_sets_the_seed_of_everybody_is_told_and_who_draws_is_not(soon: None) -> None:
    over = watched()
    run = over.call

    def draws(*inputs: torch.Tensor) -> None:
        run(*inputs)
        torch.rand(3)

    over.call = draws
    take_many(over, 5)
    assert all(look.moved for look in over.looks)

    def seeds(*inputs: torch.Tensor) -> None:
        torch.manual_seed(4)
        draws(*inputs)

    over.call = seeds
    with pytest.raises(Meddling, match="sets the seed of torch's random numbers"):
        take_many(over, 200)


def flag(owner: Any, name: str) -> Callable[[object], None]:
    return partial(setattr, owner, name)


CHANGES: dict[str, tuple[Callable[[Any], object], object, object]] = {
    "default dtype": (torch.set_default_dtype, torch.float64, torch.float32),
    "gradients on": (torch.set_grad_enabled, False, True),
    "precision of float32 products": (torch.set_float32_matmul_precision, "medium", "highest"),
    "deterministic algorithms": (torch.use_deterministic_algorithms, True, False),
    "denormals flushed": (torch.set_flush_denormal, True, False),
    "oneDNN": (flag(torch.backends.mkldnn, "enabled"), False, True),
    # Where torch's newer setting was used the older one is not read.
    "TF32 of products": (flag(torch.backends.cuda.matmul, "fp32_precision"), "tf32", "none"),
}
"""What sets each, what to, and what it was."""


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_for_the_whole_process_is_named(name: str) -> None:
    before = state.state()
    state.refuse_changed(before, state.state(), "when nothing was done")
    change, to, back = CHANGES[name]
    change(to)
    try:
        with pytest.raises(Meddling, match=f"changed .*{name}: .* -> ") as raised:
            state.refuse_changed(before, state.state(), "when it was called")
    finally:
        change(back)
    assert raised.value.value == {"found_by": "state"}
    state.refuse_changed(before, state.state(), "when it was put back")


def test_a_module_may_not_make_the_allocator_map_large_blocks() -> None:
    """But glibc itself may end that."""
    now = {state.MAPPING: True}
    with pytest.raises(Meddling, match=state.MAPPING):
        state.refuse_changed({state.MAPPING: False}, now, "when it was called")
    state.refuse_changed(now, {state.MAPPING: False}, "when it was called")


def test_of_an_allocator_that_nobody_set_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "ALLOCATOR", {})
    assert state.MAPPING not in state.state()
    monkeypatch.setattr(state, "ALLOCATOR", {"M_MMAP_THRESHOLD": 2**30})
    assert state.MAPPING in state.state()


def test_whoever_replaces_a_clock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = state.clocks()
    state.refuse_replaced(before)
    with monkeypatch.context() as patched:
        patched.setattr(time, "perf_counter", lambda: 0.0)
        with pytest.raises(Wrong, match=r"it replaced time\.perf_counter"):
            state.refuse_replaced(before)
    state.refuse_replaced(before)


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (watch, "process_time", time.time),
        (watch, "LOOKS", 0),
        (Watch, "after", lambda self: None),
        (sample, "__defaults__", (None, time.time, None, None, None)),
        (torch, "take", torch.add),
        (torch.Tensor, "detach", lambda self: self),
        (torch.nn.Linear, "forward", lambda self, x: x),
        (os, "pread", os.read),
    ],
)
def test_whoever_replaces_what_is_relied_on_is_told_and_it_is_put_back(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: object
) -> None:
    monkeypatch.setattr(untouched, "_KEPT", {})
    untouched.remember()
    untouched.refuse_replaced()
    true = getattr(owner, name)
    setattr(owner, name, value)
    with pytest.raises(Wrong, match=rf"it replaced [\w.]*{name}: nothing that this process says"):
        untouched.refuse_replaced()
    assert getattr(owner, name) == true
    untouched.refuse_replaced()


def test_a_task_in_which_something_was_replaced_gives_no_answer() -> None:
    with Interpreter("fork", preload=("statistics",)) as interpreter:
        outcome = interpreter.run("suites.support.isolated_tasks:replaces", {}, Limits(seconds=20))
    assert outcome.status == "wrong"
    assert outcome.detail.startswith("it replaced harness.isolate.processes.oom_kills")


@pytest.mark.parametrize(
    ("install", "back"),
    [
        (lambda: sys.setprofile(lambda *_: None), partial(sys.setprofile, sys.getprofile())),
        (lambda: sys.settrace(lambda *_: None), partial(sys.settrace, sys.gettrace())),
        tuple(partial(signal.setitimer, signal.ITIMER_REAL, seconds) for seconds in (20, 0)),
    ],
    ids=["profile", "trace", "timer"],
)
def test_nothing_is_called_besides_while_it_is_timed(
    install: Callable[[], object], back: Callable[[], object]
) -> None:
    try:
        with pytest.raises(Meddling, match=r"called by the interpreter \(sys\.setprofile"):
            sample([install], 1, 0.0)
    finally:
        back()
    sample([lambda: None], 1, 0.0)


@pytest.mark.parametrize(
    ("own", "of", "fine"),
    [(0.002, 8, True), (0.00215, 8, True), (0.0025, 8, False), (9.0, 2, False), (9.0, 1, True)],
)
def test_a_sample_lasts_as_long_as_the_work_in_it(own: float, of: int, fine: bool) -> None:
    """Or its block has no time; what can't reach the lower quartile of eight is let be."""
    sampled = Sampled([], [], 1)
    for hidden in [True] * of + [False] * (8 - of):
        sampled.add(0.002, 0.001, own, own if hidden else 0.002, 1)
    told = f"in {of} of 8 samples it took more"
    with nullcontext() if fine else pytest.raises(Wrong, match=told):
        state.refuse_hidden_work(sampled)
    faked = [0.0] * sampled.hidden + [0.002] * (8 - sampled.hidden)
    assert (block_time(faked) == 0.002) == fine


def test_inputs_differ_by_more_than_a_number() -> None:
    """A product that was computed of one says nothing of another one, wherever that is cut."""
    case = parse("none.plain-B2-N8-D4-f32-forward-cpu")
    source = InputSource(case, "tokens", 5)
    (pieces,) = zip(*source.pieces(3, 200), strict=True)
    cuts = [view for ((view, _),) in source.cuts(3, 200)]
    ratios = {tuple((x / cut)[0, 0].tolist()) for x, cut in zip(pieces, cuts, strict=True)}
    assert len(ratios) == 200
    assert all(max(one) / min(one) > 1.001 for one in ratios)


@pytest.mark.parametrize(("speed", "fine"), [(1.0, True), (0.97, True), (0.9, False), (1.1, False)])
def test_two_clocks_must_agree_on_the_samples(speed: float, fine: bool) -> None:
    other = FakeClock()
    with nullcontext() if fine else pytest.raises(Wrong, match="one clock says") as raised:
        (found,) = sample(
            [other.work(0.01)], 5, 0.0, [0.01], lambda: speed * other.now, other=other
        )
        assert len(found.samples) == 5
    assert raised is None or raised.value.value == {"found_by": "clock"}


@pytest.mark.parametrize("reading", [1, 0], ids=["first", "last"])
def test_losing_the_core_between_two_readings_is_no_disagreement(reading: int) -> None:
    other, readings = FakeClock(), itertools.count()

    def clock() -> float:
        if next(readings) % 4 == reading:  # before this one of a sample's four, another one runs
            other.now += 0.5
        return other.now

    (found,) = sample([other.work(0.01)], 5, 0.0, [0.01], clock=clock, other=other)
    assert len(found.samples) == 5


@pytest.mark.parametrize(
    ("threads", "running", "processor", "own", "fine"),
    [
        (1, 1.0, 1.0, 1.0, True),
        (1, 1.0, 0.8, 0.5, False),  # on a busy machine, where both together had one core
        (2, 1.0, 1.9, 1.0, True),
        (2, 1.0, 2.3, 1.0, False),
        # Processor time of other cores is known by the tick.
        (2, 0.00269, 0.00672, 0.00269, True),
        (2, 0.00269, 0.0357, 0.00269, True),
        (2, 0.00269, 0.0457, 0.00269, False),
    ],
)
def test_more_processor_time_than_its_threads_can_take_is_told(
    threads: int, running: float, processor: float, own: float, fine: bool
) -> None:
    sampled = Sampled([running / 10] * 10, [0.0] * 10, 1, running, 0.0, processor, own)
    with nullcontext() if fine else pytest.raises(Meddling, match="threads of its own") as raised:
        state.refuse_more_threads(sampled, threads)
    assert raised is None or raised.value.value == {"found_by": "cpu-time"}


def test_on_a_device_inputs_are_queued_before_the_first_event_and_looked_at_behind_the_last(
    soon: None,
) -> None:
    """By the fake device: what a graph reads is written where it reads it."""
    device = Simulated()
    prepared = prepare(ID.format("forward"))
    prepared.call()
    static = torch.zeros(3, 4, 8)
    prepared.graphed = (static,)
    read: list[float] = []

    def replay(*_: torch.Tensor) -> None:
        read.append(float(static.sum()))
        device.work(0.5)

    prepared.call = replay
    over = Watch(prepared, 0.5, ALL, synchronize=device.synchronize)
    (found,), _ = events_in_turn([over.call], 5, 0.0, device, around=[over])
    assert found.samples == pytest.approx([0.5] * len(found.samples))
    assert len(set(read)) == len(read) == len(found.samples)
    assert over.looks
    assert all(look.calls == 1 for look in over.looks)


def child(*answers: Outcome) -> Any:
    """An interpreter that answers so, in order, and can do nothing else."""
    return SimpleNamespace(run=Mock(side_effect=answers))


def timing(seconds: float = 1.0, **value: Any) -> Outcome:
    told = {"samples": [0.1], "median": 0.1, "clock_seconds": 1.0, "evidence": {"looks": [1]}}
    return Outcome("ok", {**told, **value}, "", seconds)


def asked(interpreter: Any, **more: Any) -> Outcome:
    arguments = {"case": ID.format("forward"), "given": [], **more}
    return call.time(interpreter, arguments, Limits(), {"allocator": ""})


def test_what_was_timed_is_computed_again_elsewhere() -> None:
    interpreter = child(timing(), Outcome("ok", {"checked": 3}, "", 0.25))
    found = asked(interpreter)
    assert (found.status, found.seconds) == ("ok", 1.25)
    assert found.value["checked"] == 3
    assert found.value["check_seconds"] == 0.25
    assert "evidence" not in found.value
    first, second = (ran.args for ran in interpreter.run.call_args_list)
    assert (first[0], second[0]) == (call.TIME_CALL, call.CHECK_CALL)
    assert second[1]["evidence"] == {"looks": [1]}
    assert asked(child(timing()), skip=["timed-values"]).status == "ok"


@pytest.mark.parametrize(
    ("status", "detail", "says"),
    [
        ("wrong", "timed call 3 differs", "timed call 3 differs"),
        ("crash", "KeyError: 3", "a timed call can't be computed again: crash: KeyError: 3"),
        ("unsupported", "not here", "a timed call can't be computed again: unsupported: not here"),
        # Too little memory or time to compute it again is no fault of the case.
        ("oom", "why", ""),
        ("timeout", "why", ""),
    ],
)
def test_a_time_whose_values_are_not_right_is_none(status: Any, detail: str, says: str) -> None:
    error = "KeyError" if status == "crash" else ""
    found = asked(child(timing(), Outcome(status, None, detail, error=error)))
    assert (found.status, found.detail) == ("wrong" if says else "ok", says)
    if says:
        assert found.value == {"found_by": "timed-values"}
    else:
        assert found.value["unchecked"] == f"{status}: why"


def test_a_check_that_was_killed_says_nothing_and_is_tried_again() -> None:
    found = asked(child(timing(), Outcome("crash", None, "the server was killed by SIGKILL")))
    assert (found.status, found.value) == ("crash", None)
    assert found.detail.endswith("computed again: the server was killed by SIGKILL")


@pytest.mark.parametrize(
    ("told", "seconds", "fine"),
    [(1.0, 1.4, True), (100.0, 104.0, True), (1.0, 3.0, False), (3.0, 1.0, False)],
)
def test_a_childs_clock_must_agree_with_the_drivers(
    told: float, seconds: float, fine: bool
) -> None:
    answers = timing(seconds, clock_seconds=told), Outcome("ok", {"checked": 1})
    found = asked(child(*answers))
    assert found.status == ("ok" if fine else "wrong")
    if not fine:
        assert found.value == {"found_by": "clock"}
        assert f"its clock says {told:.3g} s, the driver's {seconds:.3g} s" in found.detail
        assert asked(child(*answers), skip=["clock"]).status == "ok"
