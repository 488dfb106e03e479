"""Jobs in children of this process, on this machine's cores or GPUs."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from harness.errors import UsageError
from harness.experiments.executors import LIMIT_SECONDS, PRELOAD, Job, Jobs, OnTick, Standing
from harness.isolate import Call, Limits, Outcome, Pool
from harness.measure.device import available_memory
from harness.measure.gpu import visible

VISIBLE = "CUDA_VISIBLE_DEVICES"
GPU_WORKERS = 4
"""Runs at a time on a GPU: small models leave most of it idle."""


def gpu_slots(devices: Sequence[tuple[str, str]], per_gpu: int) -> list[dict[str, str]]:
    """The environment of each job at a time, so that neighbours are on different GPUs.

    Parameters
    ----------
    devices : sequence of (entry, name)
        From `harness.measure.gpu.visible`: what selects each GPU, and what it is.
    per_gpu : int
        Jobs at a time on one of them.

    Raises
    ------
    UsageError
        If the GPUs are of different kinds: the records of a sweep are of one.
    """
    kinds = sorted({name for _, name in devices})
    if len(kinds) > 1:
        raise UsageError(
            f"the GPUs of this machine are not alike ({', '.join(kinds)}); "
            f"choose some that are with {VISIBLE}"
        )
    return [{VISIBLE: entry} for _ in range(per_gpu) for entry, _ in devices]


class LocalExecutor:
    """Does jobs in children, each under limits.

    Parameters
    ----------
    slots : sequence of mapping
        One for each job at a time: environment variables of its interpreter.
    data_bytes : int or None
        Memory that one job may take beyond its start.
    preload : sequence of str
        Modules that an interpreter imports once.
    """

    def __init__(
        self,
        slots: Sequence[Mapping[str, str]],
        data_bytes: int | None = None,
        preload: Sequence[str] = PRELOAD,
    ) -> None:
        self._limits = Limits(seconds=LIMIT_SECONDS, data_bytes=data_bytes)
        self._pool = Pool(slots, preload=preload)

    @property
    def workers(self) -> int:
        """Jobs at a time."""
        return self._pool.workers

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="attnbench-")
        self._pool.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._pool.__exit__(*error)
        self._folder.cleanup()

    def run(self, jobs: Jobs, on_tick: OnTick) -> Iterator[tuple[Job, Outcome]]:
        """Do all jobs; see `harness.experiments.executors.Executor`."""

        def tick(under_way: Sequence[tuple[Job, float]]) -> None:
            on_tick({job.key: self._standing(job, seconds) for job, seconds in under_way})

        calls = (None if job is None else (job, self._call(job)) for job in jobs)
        return self._pool.run(calls, tick)

    def _call(self, job: Job) -> Call:
        said = {"progress": str(Path(self._folder.name, job.key))} if job.reports else {}
        return Call(job.call, {**job.arguments, **said}, self._limits)

    def _standing(self, job: Job, seconds: float) -> Standing:
        said = Path(self._folder.name, job.key)
        # Absent until the first epoch; half-written for a moment at most.
        words = said.read_text().split() if said.exists() else []
        epoch, epochs = (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)
        return Standing(seconds, epoch, epochs)


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
        memory = available_memory() if fingerprint["device"] == "cpu" else None
        return LocalExecutor([{}] * count, None if memory is None else int(0.9 * memory / count))
    devices = _gpus()
    return LocalExecutor(gpu_slots(devices, per_gpu or math.ceil(count / len(devices)))[:count])


def _gpus() -> list[tuple[str, str]]:
    devices = visible()
    if not devices:
        raise UsageError("NVML lists none of this machine's GPUs; is its driver whole?")
    return devices
