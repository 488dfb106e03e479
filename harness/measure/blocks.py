"""The blocks of a session: one fresh interpreter each, every case once, in random order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal

from harness.errors import UsageError
from harness.isolate import USAGE, Interpreter, Limits, Outcome, StartError
from harness.measure import device as devices
from harness.measure.task import NUMBERS, Predictor, Progress, Task, is_final, is_settled, unusable
from harness.records import journal
from harness.registry import Registry, builtins

if TYPE_CHECKING:
    from harness.measure.session import Session

TIME_CALL = "harness.measure.clock:time_case"
MEMORY_CALL = "harness.measure.memory:memory_case"
PEAKS_CALL = "harness.measure.roofline:peaks_case"
LEAST_BLOCKS = 3
"""Fewer give no interval worth the name; a time budget never cuts below."""
PRELOAD = (
    "torch",
    # torch.autograd imports it in the first backward pass: 0.2 s that are not the case's.
    "torch.fx.experimental.symbolic_shapes",
    # The first call of an operator of our own imports it, so does counting launches: 1.4 s.
    "torch._dynamo",
    "harness.measure.clock",
    "harness.measure.memory",
    "harness.measure.roofline",
)


def preload(tasks: Sequence[Task], registry: Registry) -> tuple[str, ...]:
    """Modules that the tasks' children would each import; a user's own code is left to them."""
    found = list(PRELOAD)
    names = {f"{t.case.mechanism}.{t.case.implementation}" for t in tasks
             if t.case.mechanism in builtins()}  # fmt: skip
    found += [registry.find(name)[1].factory.partition(":")[0] for name in sorted(names)]
    return tuple(dict.fromkeys(found))


class Runner:
    """Does tasks and writes their records.

    Parameters
    ----------
    session : Session
        What is measured, and how.
    writer : journal.Writer
    on_progress : callable
        Called with a `Progress` and the record just written.
    predictor : Predictor
        Knows what the journal holds already.
    """

    def __init__(
        self,
        session: Session,
        writer: journal.Writer,
        on_progress: Callable[[Progress, dict[str, Any]], None],
        predictor: Predictor,
    ) -> None:
        self.session = session
        self.writer = writer
        self.on_progress = on_progress
        self._predictor = predictor
        self._started = time.monotonic()
        self._pending: list[Task] = []
        self._observed: set[str] = set()
        self._blocks = 0
        self._done = 0

    def run(
        self, todo: Sequence[list[Task]], unpaired: Collection[int], failed: set[str]
    ) -> int | None:
        """Run all blocks; `failed` grows by the cases that fail.

        Parameters
        ----------
        todo : sequence of list of Task
            By block.
        unpaired : collection of int
            Blocks that hold cases whose baseline was not reached before a kill; they are run even
            where nothing is left to do.
        failed : set of str

        Returns
        -------
        int or None
            The number of blocks after which the profile's time budget ended the run.
        """
        self._pending = [t for tasks in todo for t in tasks]
        self._blocks = len(todo)
        for block, tasks in enumerate(todo):
            tasks = [t for t in tasks if not is_settled(t, failed)]
            if not tasks and block not in unpaired:
                continue
            if block >= LEAST_BLOCKS and self._too_late(self._predictor.predict(tasks, 1)):
                return block
            self._run_block(block, tasks, failed)
        return None

    def _run_block(self, block: int, tasks: list[Task], failed: set[str]) -> None:
        begun = time.monotonic()
        before = devices.machine_state()
        session = self.session
        with self._interpreter(tasks) as interpreter:
            anchors = session.anchors(tasks, block, interpreter.id)
            self._pending += anchors
            tasks = [*tasks, *anchors]
            predicted = self._predictor.predict(tasks, 1)
            self._predictor.started(interpreter.start_seconds)
            random.Random(f"{session.seed}-{block}-{self.writer.session}").shuffle(tasks)
            spent = self._run_tasks(tasks, interpreter, failed)
        seconds = time.monotonic() - begun
        self._predictor.ended(seconds, spent)
        self.writer.append(
            {
                "kind": "block",
                "block": block,
                "fingerprint": session.fingerprint_id,
                "interpreter": interpreter.id,
                "start_seconds": interpreter.start_seconds,
                "seconds": seconds,
                "predicted_seconds": predicted,
                "left_seconds": self._left_seconds(block, failed),
                "before": before,
                "after": devices.machine_state(),
            }
        )

    def _run_tasks(self, tasks: list[Task], interpreter: Interpreter, failed: set[str]) -> float:
        """Run the tasks of a block in their order; returns what they took."""
        spent = 0.0
        for position, task in enumerate(tasks):
            self._pending.remove(task)
            if is_settled(task, failed):
                continue
            outcome = self._execute(interpreter, task)
            if outcome.status == "unsupported" and task.case.run_settings().graphed:
                # A capture that failed can leave CUDA's allocator in any state.
                interpreter.restart()
            record = self.writer.append(self._record(task, outcome, interpreter, position))
            if is_final(record):
                failed.add(task.case.id)
            self._done += 1
            spent += outcome.seconds
            self._predictor.add(task.kind, task.case.id, outcome.seconds)
            self.on_progress(self._progress(task, failed), record)
        return spent

    def _left(self, failed: set[str]) -> list[Task]:
        return [t for t in self._pending if not is_settled(t, failed)]

    def _left_seconds(self, block: int, failed: set[str]) -> float | None:
        """Predicted for all that is left, a fresh interpreter for each further block included."""
        left = self._left(failed)
        return self._predictor.predict(left, len({t.block for t in left} - {block}))

    def _progress(self, task: Task, failed: set[str]) -> Progress:
        left = self._left(failed)
        return Progress(
            done=self._done,
            total=self._done + len(left),
            block=task.block,
            blocks=self._blocks,
            case=task.case.id,
            seconds=time.monotonic() - self._started,
            left_seconds=self._left_seconds(task.block, failed),
            block_ended=not any(t.block == task.block for t in left),
        )

    def _too_late(self, seconds: float | None) -> bool:
        """Whether a block of so many seconds would end behind the profile's time budget."""
        budget = self.session.profile.budget_seconds
        return (
            budget is not None and time.monotonic() - self.session.begun + (seconds or 0) > budget
        )

    def _interpreter(self, tasks: Sequence[Task]) -> Interpreter:
        # One context per block on a GPU, a fork per case on the CPU.
        cuda = self.session.fingerprint["device"] == "cuda"
        mode: Literal["fork", "persistent"] = "persistent" if cuda else "fork"
        loaded = preload(tasks, self.session.registry)
        try:
            return Interpreter(mode, preload=loaded)
        except StartError:
            pass  # killed by chance (a full machine): once more
        try:
            return Interpreter(mode, preload=loaded)
        except StartError as error:
            raise UsageError(
                f"{error}; what is finished is kept: the same command goes on from there"
            ) from None

    def _execute(self, interpreter: Interpreter, task: Task) -> Outcome:
        arguments: dict[str, Any] = {
            "case": task.case.id,
            "given": list(self.session.registry.extra),
        }
        limits = Limits(seconds=self.session.profile.limit_seconds, data_bytes=self._memory_limit())
        mallopt = None
        if task.kind in ("time", "anchor"):
            arguments |= {
                "rounds": self.session.profile.min_rounds,
                "seconds": self.session.profile.seconds,
                # One more call, once a session: within one the answer does not change.
                "observe": task.case.id not in self._observed,
            }
            if task.beside is not None:
                arguments |= {"beside": task.beside, "beside_first": task.block % 2 == 1}
            self._observed.add(task.case.id)
            call = TIME_CALL
            mallopt = devices.TIME_ALLOCATOR
        elif task.kind == "memory":
            call = MEMORY_CALL
            mallopt = devices.MEMORY_ALLOCATOR
        elif task.kind == "peaks":
            call = PEAKS_CALL
            mallopt = devices.TIME_ALLOCATOR
        else:
            call = self.session.margin_call
        if "M_TRIM_THRESHOLD" not in str(self.session.fingerprint["allocator"]):
            mallopt = None  # no glibc on this platform, or CUDA's own allocator
        return interpreter.run(call, arguments, limits, mallopt)

    def _memory_limit(self) -> int | None:
        """Bytes a child may take: nine tenths of what is free, so that the machine never swaps."""
        if self.session.fingerprint["device"] != "cpu":
            return None
        available = devices.available_memory()
        return None if available is None else int(0.9 * available)

    def _record(
        self, task: Task, outcome: Outcome, interpreter: Interpreter, position: int
    ) -> dict[str, Any]:
        record: dict[str, Any] = {
            "kind": task.kind,
            "key": task.key,
            "case": task.case.id,
            "block": task.block,
            "code": task.code,
            "fingerprint": self.session.fingerprint_id,
            "interpreter": interpreter.id,
            "generation": interpreter.generation,
            "order": position,
            "status": outcome.status,
            "task_seconds": outcome.seconds,
        }
        if outcome.status == "timeout":
            record["limit_seconds"] = self.session.profile.limit_seconds
        if outcome.error == USAGE:  # what can't be, not something that broke
            record["status"] = "unsupported"
        if outcome.detail:
            record["detail"] = outcome.detail
        value = outcome.value if isinstance(outcome.value, dict) else {}
        record |= value
        if record["status"] == "ok" and (refused := unusable(record)):
            record = {k: v for k, v in record.items() if k not in NUMBERS} | refused
        if task.kind == "margin" and outcome.status == "ok" and value.get("verdict") == "wrong":
            record["status"] = "wrong"
            record["detail"] = (
                f"{value['what']}: error {value['error']:.2g} over budget {value['budget']:.2g}"
            )
        return record
