"""The clock: samples of one case in one block. Runs in children."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness.build import cores_available, threads_wanted
from harness.isolate import Wrong
from harness.measure.compiling import Compilations, gave_up
from harness.measure.cuda_clock import MAX_ROUNDS, Cuda, Device, event_samples
from harness.measure.dispatch import dispatched
from harness.measure.run import Prepared, prepare
from harness.measure.samples import checked, refuse_backwards
from harness.measure.threads import ranges, refuse_other_threads
from harness.measure.warm_up import warm_up

LEAST_WARM_UP = {"cpu": 0.0, "cuda": 0.2}
"""Seconds; a GPU's clock needs some to come up."""
SHORTEST_SAMPLE = 2e-3
"""Seconds; shorter calls are repeated inside one sample: the timer's step must not count."""
LEAST_CALL = 1e-7
"""Seconds; no call from Python is shorter, whatever a coarse timer says."""


def cpu_samples(
    call: Callable[[], object],
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    once: float | None = None,
) -> tuple[list[float], int]:
    """Time a synchronous call.

    Parameters
    ----------
    call : callable
        Already warm.
    rounds, seconds : int, float
        At least so many samples, and so much time in all.
    clock : callable
        Seconds, monotonic.
    once : float, optional
        About how long a call takes; tried out if not given.

    Returns
    -------
    samples : list of float
        Seconds per call.
    inner : int
        Calls per sample.

    Raises
    ------
    Wrong
        If the clock went backwards, within a sample or between two, or stood still.
    """
    last = clock()
    if once is None:
        call()
        now = clock()
        # Checked here too: a negative time would ask for millions of calls.
        refuse_backwards(last, now)
        once, last = now - last, now
    inner = max(1, round(SHORTEST_SAMPLE / max(once, LEAST_CALL)))
    samples: list[float] = []
    begun = last
    while len(samples) < rounds or (last - begun < seconds and len(samples) < MAX_ROUNDS):
        start = clock()
        for _ in range(inner):
            call()
        end = clock()
        # Between two samples too, where no difference would tell.
        refuse_backwards(last, start, end)
        samples.append((end - start) / inner)
        last = end
    return checked(samples), inner


def cuda_samples(
    call: Callable[[], object], rounds: int, seconds: float
) -> tuple[list[float], int]:
    """`harness.measure.cuda_clock.event_samples` on the current CUDA device."""
    return event_samples(call, rounds, seconds, Cuda())


def time_case(
    case: str,
    given: Sequence[str] = (),
    rounds: int = 3,
    seconds: float = 0.1,
    seed: int = 0,
    observe: bool = True,
) -> dict[str, Any]:
    """Warm up, check that the result is finite, then time a case; see `time_prepared`.

    Raises
    ------
    Wrong, Unsupported
    """
    return time_prepared(prepare(case, given, seed), rounds, seconds, observe)


def time_prepared(
    prepared: Prepared,
    rounds: int,
    seconds: float,
    observe: bool = True,
    device: Device | None = None,
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

    Returns
    -------
    dict
        ``samples`` and ``median`` in seconds per call, ``inner`` calls per sample; ``threads`` and
        ``affinity`` (cores, as in ``0-3,8``) under which they were taken, the latter None where
        the system does not tell; ``recompiles`` in the timed region, always 0; apart from all that
        ``build_seconds``, ``compile_seconds`` (0 for eager) and ``warmup_seconds`` (the rest of
        the first calls); with `observe` also ``dispatched``, the kernels' names.

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
    gc.collect()
    gc.disable()
    timed = Compilations()
    try:
        with timed:
            if device is None:
                samples, inner = cpu_samples(prepared.call, rounds, seconds, once=warm.once)
            else:
                samples, inner = event_samples(prepared.call, rounds, seconds, device)
    except Exception as error:
        if gave_up(error):
            raise _recompiled(timed.count) from error
        raise
    finally:
        gc.enable()
    if timed.count:
        raise _recompiled(timed.count)
    _refuse_not_finite(prepared)
    if case.problem.device == "cpu":
        refuse_other_threads(wanted, cores)
    record = {
        "samples": samples,
        "median": statistics.median(samples),
        "inner": inner,
        "threads": torch.get_num_threads(),
        "affinity": None if cores is None else ranges(cores),
        "recompiles": timed.count,
        "build_seconds": prepared.build_seconds,
        "compile_seconds": prepared.compile_seconds + warm.compile_seconds,
        "warmup_seconds": prepared.warmup_seconds + warm.seconds,
    }
    if isinstance(device, Cuda):
        record["flush_bytes"] = device.flush_bytes
    if observe:
        prepared.drop_graph()  # a replay launches no operator that could be seen
        record["dispatched"] = dispatched(prepared.eager)
    return record


def _refuse_not_finite(prepared: Prepared) -> None:
    if not prepared.finite():
        raise Wrong("output or a gradient is not finite")


def _recompiled(count: int) -> Wrong:
    plural = "" if count == 1 else "s"
    return Wrong(f"{count} recompilation{plural} in the timed region", {"recompiles": count})
