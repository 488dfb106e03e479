"""The clock: samples of one case in one block. Runs in children."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.build import cores_available, threads_wanted
from harness.isolate import Wrong
from harness.measure.cpu_clock import (
    Sampled,
    ranges,
    ratio,
    refuse_other_threads,
    undisturbed,
    without_collector,
)
from harness.measure.cuda_clock import Cuda, Device, event_samples
from harness.measure.run import Prepared, dispatched, prepare
from harness.measure.warm_up import Compilations, gave_up, warm_up
from harness.stats import block_time

LEAST_WARM_UP = {"cpu": 0.0, "cuda": 0.2}
"""Seconds; a GPU's clock needs some to come up."""


def time_case(
    case: str,
    given: Sequence[str] = (),
    rounds: int = 3,
    seconds: float = 0.1,
    seed: int = 0,
    observe: bool = True,
    beside: str | None = None,
    beside_first: bool = False,
) -> dict[str, Any]:
    """Warm up, check that the result is finite, then time a case; see `time_prepared`.

    Parameters
    ----------
    beside : str, optional
        On the CPU: the case of the same problem that it is timed in turn with, so that both meet
        the same machine. If that one can't be made here, this one is timed alone.
    beside_first : bool
        Which of the two is made first. What lies where in memory depends on it, and can make a few
        per cent; turned about from block to block it favours neither.

    Raises
    ------
    Wrong, Unsupported
    """
    company = None
    if beside is not None and beside_first:
        company = Company.make(beside, given, seed)
    prepared = prepare(case, given, seed, forget=company is None)
    if beside is not None and not beside_first:
        company = Company.make(beside, given, seed, forget=False)
    return time_prepared(prepared, rounds, seconds, observe, company=company)


@dataclass
class Company:
    """The case beside which another is timed.

    Attributes
    ----------
    case : str
    prepared : Prepared or None
        None if it can't be made; `detail` then says why.
    setup_seconds : float
        Building and warming it up.
    once : float
        Seconds of a warm call.
    """

    case: str
    prepared: Prepared | None
    detail: str = ""
    setup_seconds: float = 0.0
    once: float = 0.0

    @staticmethod
    def make(case: str, given: Sequence[str], seed: int, forget: bool = True) -> Company:
        """Build and warm up; whatever keeps it from running is its own row's matter."""
        begun = time.perf_counter()
        try:
            prepared = prepare(case, given, seed, forget)
            once = warm_up(prepared.call, 0.0).once
        except Exception as error:
            return Company(case, None, f"{type(error).__name__}: {error}")
        return Company(case, prepared, "", time.perf_counter() - begun, once)

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
) -> dict[str, Any]:
    """Warm up, check that the result is finite, then time.

    Parameters
    ----------
    prepared : Prepared
    rounds, seconds : int, float
        At least so many samples, and so much time in all.
    observe : bool
        Whether to make one more call, behind the timed ones, to see where it goes.
    device : Device, optional
        Where the work is done asynchronously; CUDA for a case on CUDA, none for one on the CPU.
    company : Company, optional
        What it is timed in turn with.

    Returns
    -------
    dict
        ``samples``, their ``median`` and ``seconds``, by which the block is compared, per call;
        ``waited_seconds`` that were taken off all samples together; ``inner`` calls per sample;
        ``threads`` and ``affinity`` (cores, as in ``0-3,8``) under which they were taken, the
        latter None where the system does not tell; ``recompiles`` in the timed region, always 0;
        apart from all that ``build_seconds``, ``compile_seconds`` (0 for eager) and
        ``warmup_seconds`` (the rest of the first calls); with `observe` also ``dispatched``, the
        kernels' names; with `company` also ``beside``, its case, ``ratio`` to it,
        ``beside_samples``, and the ``company_seconds`` and ``company_setup_seconds`` it took.

    Raises
    ------
    Wrong
        If such a time is no result: the output or a gradient is not finite, before or after;
        something was compiled in the timed region; threads or cores are not what was set; the
        clock went backwards.
    Unsupported
        From the implementation, or if torch.compile gives up on it.
    """
    case = prepared.case
    if device is None and case.problem.device == "cuda":
        device = Cuda()
    wanted = threads_wanted(case)
    least = LEAST_WARM_UP[case.problem.device]
    warm = warm_up(prepared.call, least, None if device is None else device.synchronize)
    _refuse_not_finite(prepared)
    # Behind the warm-up: OpenMP binds threads, if told to, when it starts its first ones.
    cores = cores_available()
    with refusing_compilation():
        sampled, *others = _sampled(prepared.call, company, rounds, seconds, warm.once, device)
    _refuse_not_finite(prepared)
    if case.problem.device == "cpu":
        refuse_other_threads(wanted, cores)
    record = {
        "samples": sampled.samples,
        "median": statistics.median(sampled.samples),
        # Events on a GPU are disturbed to either side, and nobody has calibrated another rule.
        "seconds": (block_time if device is None else statistics.median)(sampled.samples),
        "waited_seconds": math.fsum(sampled.waited) * sampled.inner,
        "inner": sampled.inner,
        "threads": torch.get_num_threads(),
        "affinity": None if cores is None else ranges(cores),
        "recompiles": 0,
        "build_seconds": prepared.build_seconds,
        "compile_seconds": prepared.compile_seconds + warm.compile_seconds,
        "warmup_seconds": prepared.warmup_seconds + warm.seconds,
    }
    if company is not None:
        record |= company.record(sampled, others)
    if isinstance(device, Cuda):
        record["flush_bytes"] = device.flush_bytes
    if observe:
        prepared.drop_graph()  # a replay launches no operator that could be seen
        record["dispatched"] = dispatched(prepared.eager)
    return record


def _sampled(
    call: Callable[[], object],
    company: Company | None,
    rounds: int,
    seconds: float,
    once: float,
    device: Device | None,
) -> list[Sampled]:
    """Samples of a call, and of the company that it is timed in turn with, if there is any."""
    if device is not None:
        with without_collector():
            return [event_samples(call, rounds, seconds, device)]
    if company is None or company.prepared is None:
        return undisturbed([call], rounds, seconds, [once])
    calls = [call, company.prepared.call]
    return undisturbed(calls, rounds, seconds, [once, company.once])


def _refuse_not_finite(prepared: Prepared) -> None:
    if not prepared.finite():
        raise Wrong("output or a gradient is not finite")


@contextlib.contextmanager
def refusing_compilation() -> Iterator[None]:
    """Raise if anything is compiled meanwhile: its seconds would be among the samples.

    Raises
    ------
    Wrong
    """
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
