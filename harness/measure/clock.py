"""The clock: samples of one case in one block. Runs in children."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from harness.build import threads_wanted
from harness.case import parse
from harness.inputs import OUTPUT
from harness.isolate import Wrong
from harness.isolate.processes import elsewhere
from harness.measure import on_gpu
from harness.measure.checks import acting, wrong
from harness.measure.cpu_clock import (
    Sampled,
    ratio,
    raw_clock,
    undisturbed,
    without_collector,
)
from harness.measure.cuda_clock import Cuda, Device, events_in_turn
from harness.measure.gpu import Sensor, sensor
from harness.measure.run import Prepared, dispatched, prepare
from harness.measure.state import (
    clocks,
    refuse_changed,
    refuse_hidden_work,
    refuse_more_threads,
    refuse_replaced,
    state,
)
from harness.measure.warm_up import Compilations, WarmUp, gave_up, warm_up
from harness.measure.watch import Watch
from harness.stats import block_time
from reference_impls.mechanism import Unsupported

LEAST_WARM_UP = {"cpu": 0.0, "cuda": 0.2}
"""Seconds; a GPU's clock needs some to come up."""


def time_case(
    case: str,
    given: Sequence[str] = (),
    rounds: int = 3,
    seconds: float = 0.1,
    observe: bool = True,
    beside: str | None = None,
    beside_first: bool = False,
    evidence: bool = False,
    skip: Sequence[str] = (),
) -> dict[str, Any]:
    """Warm up, check that the result is finite, then time a case.

    Parameters
    ----------
    rounds, seconds : int, float
        At least so many samples, and so much time in all.
    observe : bool
        Whether to make one more call, behind the timed ones, to see where it goes; on a GPU also
        to capture one.
    beside : str, optional
        The case of the same problem that it is timed in turn with, so that both meet the same
        machine. If that one can't be made here, or a GPU has no room for both, this one is timed
        alone.
    beside_first : bool
        Which of the two is made first. What lies where in memory depends on it, and can make a few
        per cent; turned about from block to block it favours neither.
    evidence : bool
        Whether to look at what some timed calls gave: see `harness.verify.timed`.
    skip : sequence of str
        Names of `CHECKS` that are left out.

    Returns
    -------
    dict
        ``samples``, their ``median`` and ``seconds``, by which the block is compared, per call;
        ``waited_seconds`` that were taken off all samples together, ``timed_seconds`` with them;
        ``inner`` calls per sample;
        ``threads`` and ``affinity`` (cores, as in ``0-3,8``) under which they were taken, the
        latter None where the system does not tell; ``recompiles`` in the timed region, always 0;
        on a GPU ``gpu``: its clock, samples set aside, the time with a warm cache and that of the
        device alone, energy (see `on_gpu`);
        apart from all that ``build_seconds``, ``compile_seconds`` (0 for eager) and
        ``warmup_seconds`` (the rest of the first calls); ``clock_seconds``: what all of it took,
        by a clock that the driver's must agree with; with `evidence` also that, with `observe`
        ``dispatched``, the kernels' names; with `beside` its case, ``ratio`` to it,
        ``beside_samples``, and the ``company_seconds`` and ``company_setup_seconds`` it took.

    Raises
    ------
    Wrong
        If such a time is no result: the output or a gradient is not finite, before or after, or
        not there when the clock stops; something was compiled in the timed region; two clocks do
        not agree.
    Unsupported
        From the implementation, if torch.compile gives up on it, or if it changes what is set for
        the whole process.
    """
    begun = raw_clock()
    arguments = (case, given, rounds, seconds, observe, evidence, acting(skip))
    record = None
    try:
        record = _time_case(*arguments, beside, beside_first)
    except torch.OutOfMemoryError:
        if beside is None or parse(case).problem.device == "cpu":
            raise
    if record is None:  # out here: what was raised held on to the tensors of both
        record = {**_time_case(*arguments), "beside": beside, "beside_detail": NO_ROOM}
    return {**record, "clock_seconds": raw_clock() - begun}


NO_ROOM = "the GPU has no room for both at once"


def _time_case(
    case: str,
    given: Sequence[str],
    rounds: int,
    seconds: float,
    observe: bool,
    evidence: bool,
    on: Collection[str],
    beside: str | None = None,
    beside_first: bool = False,
) -> dict[str, Any]:
    """`time_case`, in company if there is room."""
    company = None
    if beside is not None and beside_first:
        company = Company.make(beside, given)
    prepared = prepare(case, given, forget=company is None)
    if "state" in on:
        # At once: what is prepared next sets the process anew.
        refuse_changed(prepared.before, state(prepared.on_cpu), "when it was built")
    if beside is not None and not beside_first:
        company = Company.make(beside, given, forget=False)
    with contextlib.nullcontext() if prepared.on_cpu else sensor() as readings:
        device = None if prepared.on_cpu else Cuda()
        return time_prepared(
            prepared, rounds, seconds, observe, device, company, evidence, on, readings
        )


@dataclass
class Company:
    """The case beside which another is timed; why, where it can't be made.

    Building and warming it up takes ``setup_seconds``, a warm call ``once``.
    """

    case: str
    prepared: Prepared | None
    detail: str = ""
    setup_seconds: float = 0.0
    once: float = 0.0

    @staticmethod
    def make(case: str, given: Sequence[str], forget: bool = True) -> Company:
        """Build and warm up; whatever keeps it from running is its own row's matter."""
        begun = perf_counter()
        try:
            prepared = prepare(case, given, forget)
            once = warm_up(prepared.call, 0.0).once
        except Exception as error:
            return Company(case, None, f"{type(error).__name__}: {error}")
        return Company(case, prepared, "", perf_counter() - begun, once)

    def record(self, mine: Sampled, sampled: Sequence[Sampled]) -> dict[str, Any]:
        """What a time record says of it; `sampled` is what was timed in turn with `mine`."""
        if not sampled:
            return {"beside": self.case, "beside_detail": self.detail}
        (own,) = sampled
        return {
            "beside": self.case,
            "ratio": ratio(mine, own),
            "beside_samples": own.samples,
            "company_seconds": own.running_seconds,
            "company_setup_seconds": self.setup_seconds,
        }


def time_prepared(
    prepared: Prepared,
    rounds: int,
    seconds: float,
    observe: bool = True,
    device: Device | None = None,
    company: Company | None = None,
    evidence: bool = False,
    on: Collection[str] = acting(()),
    readings: Sensor | None = None,
) -> dict[str, Any]:
    """`time_case` of a case that is built, by the checks that act.

    Work is asynchronous where there is a `device`, which tells of itself by its `readings`.
    """
    synchronize = None if device is None else device.synchronize
    warm = warm_up(prepared.call, LEAST_WARM_UP[prepared.case.problem.device], synchronize)
    _refuse_no_result(prepared, on)
    watch = Watch(prepared, warm.once, on, evidence, synchronize)
    before = elsewhere()
    try:
        with refusing_compilation():
            (sampled, *others), sensed = _sampled(
                watch, company, rounds, seconds, device, on, readings
            )
    except Wrong:
        _refuse_tampering(prepared, on)  # else it would be told what came of that
        raise
    _refuse_tampering(prepared, on)
    _refuse_no_result(prepared, on)
    if "clock" in on and device is None:
        refuse_hidden_work(sampled)
    if "cpu-time" in on and device is None:
        refuse_more_threads(sampled, threads_wanted(prepared.case), elsewhere() - before)
    record = _numbers(prepared, sampled, warm, device)
    if evidence:
        record["evidence"] = watch.evidence()
    if company is not None:
        record |= company.record(sampled, others)
    if device is not None:
        record["gpu"] = sensed
    if device is not None and (observe or company is not None):
        calls = [prepared.call]
        if company is not None and company.prepared is not None:
            calls.append(company.prepared.call)
        once = [statistics.median(one.samples) for one in (sampled, *others)]
        record["gpu"] |= on_gpu.hot(prepared, warm.once, rounds, seconds, device, on, readings)
        record["gpu"] |= on_gpu.spent(calls, once, readings, device, seconds)
    if observe:
        graphed = prepared.graphed is not None
        prepared.drop_graph()  # a replay launches no operator that could be seen
        record["dispatched"] = dispatched(prepared.eager)
        if device is not None and not graphed:
            # Last: what fails in it can leave anything behind.
            alone = on_gpu.alone_on_device(prepared, rounds, seconds, device, readings)
            record |= {name: alone.pop(name) for name in ("spoiled",) if name in alone}
            record["gpu"] |= alone
    return record


def _numbers(
    prepared: Prepared, sampled: Sampled, warm: WarmUp, device: Device | None
) -> dict[str, Any]:
    """What is recorded of every case."""
    found = {
        "samples": sampled.samples,
        "median": statistics.median(sampled.samples),
        # Events on a GPU are disturbed to either side, and nobody has calibrated another rule.
        "seconds": (block_time if device is None else statistics.median)(sampled.samples),
        "waited_seconds": sampled.waited_seconds,
        "timed_seconds": sampled.running_seconds,
        "inner": sampled.inner,
        "threads": torch.get_num_threads(),
        "affinity": prepared.before.get("cores"),
        "recompiles": 0,
        "build_seconds": prepared.build_seconds,
        "compile_seconds": prepared.compile_seconds + warm.compile_seconds,
        "warmup_seconds": prepared.warmup_seconds + warm.seconds,
    }
    return found | ({"flush_bytes": device.flush_bytes} if isinstance(device, Cuda) else {})


def _sampled(
    watch: Watch,
    company: Company | None,
    rounds: int,
    seconds: float,
    device: Device | None,
    on: Collection[str],
    readings: Sensor | None,
) -> tuple[list[Sampled], dict[str, Any]]:
    """Samples of a case, and of the company that it is timed in turn with, if there is any.

    And what a GPU said of itself meanwhile.
    """
    watches = [watch]
    if company is not None and company.prepared is not None:
        watches.append(Watch(company.prepared, company.once, on, looking=False))
    calls, once = [one.call for one in watches], [one.once for one in watches]
    if device is None:
        return undisturbed(calls, rounds, seconds, once, watches, "clock" in on), {}
    with without_collector():
        found, sensed = events_in_turn(
            calls, rounds, seconds, device, around=watches, sensor=readings
        )
    return found, sensed.record()


_CLOCKS = clocks()
"""As they are before any foreign code is imported."""


def _refuse_tampering(prepared: Prepared, on: Collection[str]) -> None:
    """Raise if what was set for the whole process is not what stands there."""
    if "clock" in on:
        refuse_replaced(_CLOCKS)
    if "state" in on:
        refuse_changed(prepared.before, state(prepared.on_cpu), "when it was called")


def _refuse_no_result(prepared: Prepared, on: Collection[str]) -> None:
    """Raise if what the last call gave is not there, or not finite."""
    kind = type(prepared.results()[OUTPUT])
    if not issubclass(kind, torch.Tensor):
        raise Unsupported(f"returned a {kind.__name__}; expected a torch.Tensor")
    if "plain-tensors" in on and kind is not torch.Tensor:
        raise wrong(
            "plain-tensors",
            f"returned a {kind.__name__}, which may compute when it is read; expected a "
            "torch.Tensor and nothing below it",
        )
    if not prepared.finite():
        raise Wrong("output or a gradient is not finite")


@contextlib.contextmanager
def refusing_compilation() -> Iterator[None]:
    """Raise `Wrong` if anything is compiled meanwhile: that would be among the samples."""
    timed = Compilations()
    try:
        with timed:
            yield
    except Exception as error:
        if gave_up(error):
            raise _recompiled(timed.count) from error
        raise
    if timed.count:
        raise _recompiled(timed.count)


def _recompiled(count: int) -> Wrong:
    plural = "" if count == 1 else "s"
    return Wrong(f"{count} recompilation{plural} in the timed region", {"recompiles": count})
