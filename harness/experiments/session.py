"""Training runs in children, several at a time; finished ones are never trained again."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.experiments.design import Run
from harness.isolate import Interpreter, Limits, Outcome
from harness.records import journal, schema

CALL = "harness.train.run:train_run"
PRELOAD = ("torch", "torch.fx.experimental.symbolic_shapes", "harness.train.run")
SETTLED = ("ok", "diverged", "unsupported", "timeout")
"""Statuses that are results. A crash is tried again by the next command, and so is oom: how much
memory a run may take depends on what is free, and on how many run at a time."""
USER_MISTAKES = ("UsageError: ", "BadOption: ")
LIMIT_SECONDS = 24 * 3600.0
CHECKPOINTS = "checkpoints"
"""Folder, beside the journal's files, of the runs that are under way."""
POLL_SECONDS = 0.5
"""How often the display asks how far the runs are."""


@dataclass(frozen=True)
class Progress:
    """Where a session stands.

    Attributes
    ----------
    done, total : int
        Runs.
    parts : float
        Runs finished, those under way counted by their epochs.
    running : tuple of str
        What is under way, with its epoch.
    left_seconds : float or None
        Once something is known.
    """

    done: int
    total: int
    parts: float
    running: tuple[str, ...]
    left_seconds: float | None


def finished(folder: Path) -> dict[str, dict[str, Any]]:
    """Settled runs of a journal by key."""
    if not folder.exists():
        return {}
    return {
        r["key"]: r
        for r in journal.read(folder).records
        if r["kind"] == "run" and r["status"] in SETTLED
    }


def checkpoint_of(folder: Path, run: Run) -> Path:
    """The file in which a run under way is kept."""
    return folder / f"{run.key}.pt"


class RunSession:
    """Does runs and writes their records.

    Parameters
    ----------
    writer : journal.Writer or None
        None: the records are not kept (a run that is repeated for its attention scores).
    fingerprint : mapping
    workers : int
        Children at a time.
    data_bytes : int or None
        Memory that one child may take beyond its start.
    on_progress : callable
        Called with a `Progress` twice a second.
    checkpoints : Path, optional
        Folder in which runs under way are kept, so that one that is killed goes on where it was.
    checkpoint_seconds : float
        Least time between two writes of such a file.
    """

    def __init__(
        self,
        writer: journal.Writer | None,
        fingerprint: Mapping[str, Any],
        workers: int,
        data_bytes: int | None,
        on_progress: Callable[[Progress], None],
        checkpoints: Path | None = None,
        checkpoint_seconds: float = 60.0,
    ) -> None:
        self.writer, self.fingerprint = writer, fingerprint
        self.checkpoints, self.checkpoint_seconds = checkpoints, checkpoint_seconds
        self.workers, self.data_bytes, self.on_progress = workers, data_bytes, on_progress
        self._seconds: list[float] = []
        self._began = time.monotonic()

    def run(self, todo: Sequence[Run]) -> Iterator[dict[str, Any]]:
        """Train, yielding each record as it is written.

        Raises
        ------
        UsageError
            If a run can't be what was asked for: an option that does not exist, a bad file.
        """
        count = min(self.workers, len(todo))
        with ExitStack() as stack:
            places = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attnbench-")))
            pool = ThreadPoolExecutor(count)
            # Left in reverse: interpreters first, or after ctrl-C the pool would wait for them.
            stack.callback(pool.shutdown, cancel_futures=True)
            free = [stack.enter_context(Interpreter("fork", preload=PRELOAD)) for _ in range(count)]
            waiting = list(todo)
            running: dict[Future[Outcome], tuple[Run, Interpreter, Path]] = {}
            while waiting or running:
                while waiting and free:
                    run, interpreter = waiting.pop(0), free.pop()
                    said = places / run.key
                    future = pool.submit(self._one, interpreter, run, said)
                    running[future] = (run, interpreter, said)
                done, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                for future in done:
                    run, interpreter, _ = running.pop(future)
                    free.append(interpreter)
                    record = self._record(run, future.result())
                    if self.writer is not None:
                        record = self.writer.append(record)
                        self._forget(run, record)
                    yield record
                self.on_progress(self._progress(len(todo), waiting, running))

    def _one(self, interpreter: Interpreter, run: Run, said: Path) -> Outcome:
        limits = Limits(seconds=LIMIT_SECONDS, data_bytes=self.data_bytes)
        arguments = {**run.arguments, "progress": str(said)}
        if self.checkpoints is not None:
            arguments["checkpoint"] = str(checkpoint_of(self.checkpoints, run))
            arguments["checkpoint_seconds"] = self.checkpoint_seconds
        return interpreter.run(CALL, arguments, limits)

    def _forget(self, run: Run, record: Mapping[str, Any]) -> None:
        """Remove the checkpoint of a run whose result has been written down."""
        if self.checkpoints is None or record["status"] not in SETTLED:
            return
        checkpoint_of(self.checkpoints, run).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others are under way
            self.checkpoints.rmdir()

    def _record(self, run: Run, outcome: Outcome) -> dict[str, Any]:
        for kind in USER_MISTAKES:
            if outcome.detail.startswith(kind):
                raise UsageError(f"{run.label}: {outcome.detail.removeprefix(kind)}")
        value = outcome.value if isinstance(outcome.value, dict) else {}
        record = {
            "kind": "run",
            "key": run.key,
            "case": run.case,
            "model": str(run.model),
            "task": run.task,
            "recipe": run.recipe.as_dict(),
            "seed": run.seed,
            "fold": run.fold,
            "vectors": run.arguments["vectors"],
            "code": run.code,
            "fingerprint": schema.digest(dict(self.fingerprint)),
            "workers": self.workers,
            "status": outcome.status,
            "task_seconds": outcome.seconds,
            **value,
        }
        if value.get("diverged"):
            record |= {"status": "diverged", "detail": value["diverged"]}
        if outcome.detail:
            record["detail"] = outcome.detail
        if outcome.status == "ok":
            self._seconds.append(outcome.seconds)
        return record

    def _progress(
        self, total: int, waiting: Sequence[Run], running: Mapping[Any, tuple[Run, Any, Path]]
    ) -> Progress:
        done = total - len(waiting) - len(running)
        parts, shown = float(done), []
        for run, _, said in running.values():
            # Absent until the first epoch; half-written for a moment at most.
            words = said.read_text().split() if said.exists() else []
            if len(words) == 2:
                parts += (int(words[0]) - 1) / int(words[1])
                shown.append(f"{run.label}: epoch {words[0]} of at most {words[1]}")
            else:
                shown.append(f"{run.label}: loading")
        left = None
        if self._seconds:
            left = statistics.fmean(self._seconds) * (total - parts) / self.workers
        return Progress(done, total, parts, tuple(shown), left)
