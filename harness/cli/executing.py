"""Which executor a sweep has, from its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.cli.running import GPU_WORKERS, memory_share, workers_for
from harness.errors import UsageError
from harness.experiments.executors import Executor
from harness.experiments.executors.local import LocalExecutor, gpu_slots

EXECUTORS = ("local", "ray")
OF_RAY = ("address", "cpus_per_run", "gpus_per_run", "retries")
OF_LOCAL = ("jobs", "per_gpu")
RETRIES = 3


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


def make_executor(
    values: Mapping[str, Any], fingerprint: Mapping[str, Any], runs: int
) -> Executor:
    """The executor for so many runs; to be entered.

    On a CPU a run has one thread, and there are as many at a time as cores. GPUs have a few runs
    each, for small models leave most of one idle.

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
    if not cuda:
        if values["per_gpu"] is not None:
            raise UsageError("--per-gpu: this sweep is on the CPU; --jobs says how many at a time")
        workers = workers_for(values["jobs"] or 0, fingerprint)
        count = max(1, min(workers, runs))
        return LocalExecutor([{}] * count, memory_share(fingerprint, count))
    return LocalExecutor(_slots(values, fingerprint, runs))


def _slots(
    values: Mapping[str, Any], fingerprint: Mapping[str, Any], runs: int
) -> list[dict[str, str]]:
    from harness.measure.gpu import visible

    devices = visible()
    if not devices:
        raise UsageError("NVML lists none of this machine's GPUs; is its driver whole?")
    slots = gpu_slots(devices, values["per_gpu"] or GPU_WORKERS)
    if values["jobs"]:
        slots = slots[: values["jobs"]]
    elif values["per_gpu"] is None:
        # A run keeps a core busy too.
        slots = slots[: max(len(devices), int(fingerprint["threads"]))]
    return slots[: max(1, runs)]


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
