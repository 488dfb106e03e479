"""The blocks of a session: one fresh interpreter each, every case once, in random order."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError
from harness.isolate import Interpreter, Limits, Outcome, StartError
from harness.measure import call
from harness.measure import device as devices
from harness.measure.ceilings import work_of
from harness.measure.cost import Predictor
from harness.measure.session import Measurement, Session
from harness.records import journal
from harness.registry import Registry, builtins

below = random.SystemRandom().randrange
CHECKED = 4
"""Timed calls of a case are computed again in a session's first block, and in one of so many that
follow: which, is drawn when its times are there, and no child can know."""
LEAST_BLOCKS = 3
"""Fewer give no interval worth the name; a time budget never cuts below."""


@dataclass(frozen=True)
class Step:
    """Where a session stands, handed to the display after every task."""

    done: int
    total: int
    block: int
    blocks: int
    case: str
    seconds: float
    left_seconds: float | None
    block_ended: bool


def preload(tasks: Sequence[Measurement], registry: Registry) -> tuple[str, ...]:
    """Modules that the tasks' children would each import; a user's own code is left to them."""
    # Every child looks for its mechanism among all records.
    found = [*call.PRELOAD, *sorted({m.folder for m in builtins().values()})]
    names = {f"{t.case.mechanism}.{t.case.implementation}" for t in tasks
             if t.case.mechanism in builtins()}  # fmt: skip
    found += [registry.find(name)[1].factory.partition(":")[0] for name in sorted(names)]
    return tuple(dict.fromkeys(found))


@dataclass
class Runner:
    """Does tasks and writes their records; `predictor` knows what the journal holds already."""

    session: Session
    writer: journal.Writer
    on_progress: Callable[[Step, dict[str, Any]], None]
    predictor: Predictor
    _started: float = field(default_factory=lambda: time.monotonic())
    _pending: list[Measurement] = field(default_factory=list)
    _observed: set[str] = field(default_factory=set)
    _blocks: int = 0
    _done: int = 0

    def run(
        self, todo: Sequence[list[Measurement]], alone: Sequence[int], failed: set[str]
    ) -> int | None:
        """Run all blocks of tasks; `failed` grows by the cases that fail.

        A block in which the baseline of some cases, as many as `alone` says, was not reached before
        a kill is run even where nothing is left to do.

        Returns
        -------
        int or None
            The number of blocks after which the profile's time budget ended the run.
        """
        self._pending = [t for tasks in todo for t in tasks]
        self._blocks = len(todo)
        for block, tasks in enumerate(todo):
            tasks = [t for t in tasks if t.case.id not in failed]
            if not tasks and not alone[block]:
                continue
            if block >= LEAST_BLOCKS and self._too_late(self._predict(tasks, 1)):
                return block
            self._run_block(block, tasks, failed)
        return None

    def _run_block(self, block: int, tasks: list[Measurement], failed: set[str]) -> None:
        begun = time.monotonic()
        before = devices.machine_state()
        session = self.session
        with self._interpreter(tasks) as interpreter:
            anchors = session.anchors(tasks, block, interpreter.id)
            self._pending += anchors
            tasks = [*tasks, *anchors]
            predicted = self._predict(tasks, 1)
            self.predictor.started(interpreter.start_seconds)
            random.Random(f"{block}-{self.writer.session}").shuffle(tasks)
            spent = self._run_tasks(tasks, interpreter, failed)
        seconds = time.monotonic() - begun
        self.predictor.ended(seconds, spent)
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

    def _run_tasks(
        self, tasks: list[Measurement], interpreter: Interpreter, failed: set[str]
    ) -> float:
        """Run the tasks of a block in their order; returns what they took."""
        spent = 0.0
        for position, task in enumerate(tasks):
            self._pending.remove(task)
            if task.case.id in failed:
                continue
            outcome = self._execute(interpreter, task)
            record = self.writer.append(self._record(task, outcome, interpreter, position))
            if call.is_final(record):
                failed.add(task.case.id)
            self._done += 1
            spent += outcome.seconds
            self.predictor.add(task.kind, task.case.id, outcome.seconds)
            self.on_progress(self._progress(task, failed), record)
        return spent

    def _left(self, failed: set[str]) -> list[Measurement]:
        return [t for t in self._pending if t.case.id not in failed]

    def _left_seconds(self, block: int, failed: set[str]) -> float | None:
        """Predicted for all that is left, a fresh interpreter for each further block included."""
        left = self._left(failed)
        return self._predict(left, len({t.block for t in left} - {block}))

    def _predict(self, left: Sequence[Measurement], blocks: int) -> float | None:
        return self.predictor.predict([(t.kind, t.case.id) for t in left], blocks)

    def _progress(self, task: Measurement, failed: set[str]) -> Step:
        left = self._left(failed)
        return Step(
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

    def _interpreter(self, tasks: Sequence[Measurement]) -> Interpreter:
        of = self.session.fingerprint["device"], preload(tasks, self.session.registry)
        with suppress(StartError):
            return call.interpreter(*of)
        try:  # it was killed by chance (a full machine): once more
            return call.interpreter(*of)
        except StartError as error:
            raise UsageError(
                f"{error}; what is finished is kept: the same command goes on from there"
            ) from None

    def _execute(self, interpreter: Interpreter, task: Measurement) -> Outcome:
        session = self.session
        if task.kind != "peaks" and (known := call.without_room(task.case, session.registry)):
            return known
        arguments: dict[str, Any] = {"case": task.case.id, "given": list(session.registry.extra)}
        free = call.free_bytes(session.fingerprint["device"])
        limits = Limits(session.profile.limit_seconds, free)
        if task.kind in ("time", "anchor"):
            return self._time(interpreter, task, arguments, limits)
        name, allocator = {
            "memory": (call.MEMORY_CALL, devices.MEMORY_ALLOCATOR),
            "peaks": (call.PEAKS_CALL, devices.TIME_ALLOCATOR),
            "margin": (session.margin_call, None),
        }[task.kind]
        return call.ask(interpreter, name, arguments, limits, allocator, session.fingerprint)

    def _time(
        self, child: Interpreter, task: Measurement, arguments: dict[str, Any], limits: Limits
    ) -> Outcome:
        session = self.session
        # Once a session: within one the answers do not change.
        first = task.case.id not in self._observed
        self._observed.add(task.case.id)
        arguments |= {
            "rounds": session.profile.min_rounds,
            "seconds": session.profile.seconds,
            "observe": first,
            "evidence": True,
        }
        if task.beside is not None:
            arguments |= {"beside": task.beside, "beside_first": task.block % 2 == 1}
        if session.skip:
            arguments["skip"] = list(session.skip)
        mechanism = session.registry.mechanism(task.case.mechanism)
        count = first and math.isnan(work_of(mechanism, task.case).operations)
        check = first or below(CHECKED) == 0
        return call.time(child, arguments, limits, session.fingerprint, count, check)

    def _record(
        self, task: Measurement, outcome: Outcome, interpreter: Interpreter, position: int
    ) -> dict[str, Any]:
        record: dict[str, Any] = {
            "kind": task.kind,
            "key": task.key,
            "case": task.case.id,
            "block": task.block,
            "code": task.code,
            "fingerprint": self.session.fingerprint_id,
            "order": position,
            **call.measured(task.kind, outcome, interpreter),
        }
        if outcome.status == "timeout":
            record["limit_seconds"] = self.session.profile.limit_seconds
        return record


def run(
    session: Session,
    on_progress: Callable[[Step, dict[str, Any]], None],
    first: Mapping[str, Any],
) -> None:
    """Do what is missing of a session, one interpreter per block, in random order.

    Called on the way with a `Step` and the record just written; `first` is the environment for the
    journal's first line.
    """
    todo, alone, failed = session.todo()
    if not any(todo) and not any(alone):
        return
    predictor = session.predictor()
    head = {**first, "fingerprint": dict(session.fingerprint)}
    with journal.Writer(session.folder, head) as writer:
        session.written = writer.session
        runner = Runner(session, writer, on_progress, predictor)
        session.stopped_after = runner.run(todo, alone, failed)
