"""Jobs in children of this process, on this machine's cores or GPUs."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from harness.errors import UsageError
from harness.experiments.executors import (
    LIMIT_SECONDS,
    POLL_SECONDS,
    PRELOAD,
    Job,
    Jobs,
    OnTick,
    Standing,
)
from harness.isolate import Interpreter, Limits, Outcome

VISIBLE = "CUDA_VISIBLE_DEVICES"


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


class _Slot:
    """Room for one job at a time: an interpreter that starts when it is first needed."""

    def __init__(self, environment: Mapping[str, str], preload: Sequence[str]) -> None:
        self._environment, self._preload = environment, preload
        self._lock = threading.Lock()
        self._interpreter: Interpreter | None = None
        self._closed = False

    def run(self, call: str, arguments: Mapping[str, Any], limits: Limits) -> Outcome:
        """Do one job, in a thread of the pool; many interpreters start side by side so."""
        with self._lock:
            if self._closed:
                return Outcome("crash", None, "the executor was closed")
            if self._interpreter is None:
                self._interpreter = Interpreter(
                    "fork", preload=self._preload, env=self._environment
                )
        return self._interpreter.run(call, arguments, limits)

    def close(self) -> None:
        """Kill what runs here."""
        with self._lock:
            self._closed = True
            if self._interpreter is not None:
                self._interpreter.close()


@dataclass
class _Begun:
    """A job under way."""

    job: Job
    slot: _Slot
    said: Path
    began: float = field(default_factory=time.monotonic)

    def standing(self) -> Standing:
        # Absent until the first epoch; half-written for a moment at most.
        words = self.said.read_text().split() if self.said.exists() else []
        epoch, epochs = (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)
        return Standing(time.monotonic() - self.began, epoch, epochs)


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
        self, slots: Sequence[Mapping[str, str]], data_bytes: int | None = None,
        preload: Sequence[str] = PRELOAD,
    ) -> None:  # fmt: skip
        self._limits = Limits(seconds=LIMIT_SECONDS, data_bytes=data_bytes)
        self._slots = [_Slot(environment, preload) for environment in slots]

    @property
    def workers(self) -> int:
        """Jobs at a time."""
        return len(self._slots)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = tempfile.TemporaryDirectory(prefix="attnbench-")
            self._places = Path(stack.enter_context(folder))
            self._pool = ThreadPoolExecutor(self.workers)
            # Left in reverse: interpreters first, or after ctrl-C the pool would wait for them.
            stack.callback(self._pool.shutdown, cancel_futures=True)
            for slot in self._slots:
                stack.callback(slot.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def run(self, jobs: Jobs, on_tick: OnTick) -> Iterator[tuple[Job, Outcome]]:
        """Do all jobs; see `harness.experiments.executors.Executor`."""
        free = deque(self._slots)
        running: dict[Future[Outcome], _Begun] = {}
        more = True
        while more or running:
            while more and free:
                try:
                    job = next(jobs)
                except StopIteration:
                    more = False
                    break
                if job is None:
                    break
                begun = _Begun(job, free.popleft(), self._places / job.key)
                running[self._submit(begun)] = begun
            if not running and more:
                time.sleep(POLL_SECONDS)
            done, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                begun = running.pop(future)
                free.append(begun.slot)
                yield begun.job, future.result()
            on_tick({begun.job.key: begun.standing() for begun in running.values()})

    def _submit(self, begun: _Begun) -> Future[Outcome]:
        arguments = dict(begun.job.arguments)
        if begun.job.reports:
            arguments["progress"] = str(begun.said)
        return self._pool.submit(begun.slot.run, begun.job.call, arguments, self._limits)
