"""Where runs are done: which executor, and how many at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harness.errors import UsageError
from harness.experiments.executors import Executor
from harness.experiments.executors.local import LocalExecutor, gpu_slots
from harness.options import SweepOptions

RETRIES = 3
GPU_WORKERS = 4
"""Runs at a time on a GPU: small models leave most of it idle."""


def workers_for(asked: int, fingerprint: Mapping[str, Any], per_gpu: int | None = None) -> int:
    """Runs at a time on this machine: as asked, else one per core, or a few on each GPU.

    A run on a GPU keeps a core busy too: there are no more than cores, unless `per_gpu` asks.

    Raises
    ------
    UsageError
        If GPUs can't be listed.
    """
    threads = int(fingerprint["threads"])
    if asked or fingerprint["device"] != "cuda":
        return asked or threads
    gpus = len(_gpus())
    return gpus * per_gpu if per_gpu else max(gpus, min(gpus * GPU_WORKERS, threads))


def local_executor(
    fingerprint: Mapping[str, Any], count: int, per_gpu: int | None = None
) -> LocalExecutor:
    """An executor of so many runs at a time on this machine, each of one core or on one GPU.

    Parameters
    ----------
    per_gpu : int, optional
        Most of them on one GPU.

    Raises
    ------
    UsageError
        If GPUs can't be listed, or are not alike.
    """
    if fingerprint["device"] != "cuda":
        return LocalExecutor([{}] * count, memory_share(fingerprint, count))
    devices = _gpus()
    return LocalExecutor(gpu_slots(devices, per_gpu or math.ceil(count / len(devices)))[:count])


def memory_share(fingerprint: Mapping[str, Any], jobs: int) -> int | None:
    """Bytes that each of so many jobs at a time may take; None on a GPU, or if unknown."""
    from harness.measure.device import available_memory

    if fingerprint["device"] != "cpu" or (available := available_memory()) is None:
        return None
    return int(0.9 * available / jobs)


def make_executor(options: SweepOptions, fingerprint: Mapping[str, Any], runs: int) -> Executor:
    """The executor of a sweep for so many runs; to be entered.

    Raises
    ------
    UsageError
        If the device has not got what was asked for.
    """
    cuda = fingerprint["device"] == "cuda"
    if options.executor == "ray":
        from harness.experiments.executors.ray import RayExecutor

        gpus = options.gpus_per_run
        return RayExecutor(
            fingerprint,
            address=options.address or "auto",
            cpus=options.cpus_per_run or 1.0,
            gpus=(1 / GPU_WORKERS if cuda else 0.0) if gpus is None else gpus,
            retries=RETRIES if options.retries is None else options.retries,
        )
    per_gpu = options.per_gpu
    if not cuda and per_gpu is not None:
        raise UsageError("--per-gpu: this sweep is on the CPU; --jobs says how many at a time")
    workers = workers_for(options.jobs or 0, fingerprint, per_gpu)
    return local_executor(fingerprint, max(1, min(workers, runs)), per_gpu)


def _gpus() -> list[tuple[str, str]]:
    from harness.measure.gpu import visible

    devices = visible()
    if not devices:
        raise UsageError("NVML lists none of this machine's GPUs; is its driver whole?")
    return devices
