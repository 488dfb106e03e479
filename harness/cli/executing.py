"""Where runs are done: which executor, and how many at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harness.errors import UsageError
from harness.experiments.executors import Executor
from harness.experiments.executors.local import LocalExecutor, gpu_slots

EXECUTORS = ("local", "ray")
OF_RAY = ("address", "cpus_per_run", "gpus_per_run", "retries")
OF_LOCAL = ("jobs", "per_gpu")
RETRIES = 3
GPU_WORKERS = 4
"""Runs at a time on a GPU: small models leave most of it idle."""


def check_executor(values: Mapping[str, Any]) -> None:
    """Refuse options of another executor, before anything is done.

    Raises
    ------
    UsageError
    """
    name = values["executor"]
    if name not in EXECUTORS:
        raise UsageError(f"--executor: given {name!r}; expected {' or '.join(EXECUTORS)}")
    for option in OF_LOCAL if name == "ray" else OF_RAY:
        if values[option] is not None:
            other = "local" if name == "ray" else "ray"
            raise UsageError(f"{_flag(option)} is for --executor {other}; leave it out")
    for option, least in (("jobs", 0), ("per_gpu", 1), ("retries", 0), ("gpus_per_run", 0)):
        if values[option] is not None and values[option] < least:
            raise UsageError(f"{_flag(option)}: given {values[option]}; expected {least} or more")
    if values["cpus_per_run"] is not None and not values["cpus_per_run"] > 0:
        raise UsageError(f"--cpus-per-run: given {values['cpus_per_run']}; expected more than 0")


def workers_for(asked: int, fingerprint: Mapping[str, Any], per_gpu: int | None = None) -> int:
    """Runs at a time on this machine: as asked, else one per core, or a few on each GPU.

    A run on a GPU keeps a core busy too: there are no more than cores, unless `per_gpu` asks.

    Raises
    ------
    UsageError
        For a negative number, or GPUs that can't be listed.
    """
    if asked < 0:
        raise UsageError(f"--jobs: given {asked}; expected 0 (one per core) or more")
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


def make_executor(values: Mapping[str, Any], fingerprint: Mapping[str, Any], runs: int) -> Executor:
    """The executor of a sweep for so many runs; to be entered.

    Raises
    ------
    UsageError
        If the device has not got what was asked for.
    """
    cuda = fingerprint["device"] == "cuda"
    if values["executor"] == "ray":
        from harness.experiments.executors.ray import RayExecutor

        gpus = values["gpus_per_run"]
        return RayExecutor(
            fingerprint,
            address=values["address"] or "auto",
            cpus=values["cpus_per_run"] or 1.0,
            gpus=(1 / GPU_WORKERS if cuda else 0.0) if gpus is None else gpus,
            retries=RETRIES if values["retries"] is None else values["retries"],
        )
    per_gpu = values["per_gpu"]
    if not cuda and per_gpu is not None:
        raise UsageError("--per-gpu: this sweep is on the CPU; --jobs says how many at a time")
    workers = workers_for(values["jobs"] or 0, fingerprint, per_gpu)
    return local_executor(fingerprint, max(1, min(workers, runs)), per_gpu)


def _gpus() -> list[tuple[str, str]]:
    from harness.measure.gpu import visible

    devices = visible()
    if not devices:
        raise UsageError("NVML lists none of this machine's GPUs; is its driver whole?")
    return devices


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
