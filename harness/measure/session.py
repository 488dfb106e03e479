"""One measuring session: blocks of fresh interpreters, random order, resume, A/A control."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.case import Case, Profile, problem_of
from harness.isolate import Interpreter, Limits, Outcome
from harness.measure import device as devices
from harness.measure import memory
from harness.ratios import Row, summarise
from harness.records import journal, schema, table
from harness.registry import Registry, code_hash

TIME_CALL = "harness.measure.clock:time_case"
MEMORY_CALL = "harness.measure.memory:memory_case"
NOT_HERE = (
    "BadOption: ", "UsageError: ", "InductorError: InvalidCxxCompiler", "InvalidCxxCompiler: ",
)  # fmt: skip
"""Beginnings of errors that say what can't be, not that something broke."""
LEAST_BLOCKS = 3
"""Fewer give no interval worth the name; a time budget never cuts below."""
PRELOAD = (
    "torch",
    # torch.autograd imports it in the first backward pass: 0.2 s that are not the case's.
    "torch.fx.experimental.symbolic_shapes",
    "harness.measure.clock",
    "harness.measure.memory",
)


@dataclass(frozen=True)
class Task:
    """One measurement to do: what, of which case, in which block."""

    kind: str
    case: Case
    block: int
    key: str
    code: str


@dataclass(frozen=True)
class Progress:
    """Where a session stands, handed to the display after every task."""

    done: int
    total: int
    block: int
    blocks: int
    case: str
    seconds: float
    left_seconds: float | None
    block_ended: bool


@dataclass
class Session:
    """Everything that decides what is measured and where it is recorded.

    Attributes
    ----------
    cases : sequence of Case
        In the order of the plan; baseline controls included.
    profile : Profile
    registry : Registry
    folder : Path
        The journal.
    fingerprint : mapping
        From `harness.measure.device.fingerprint`.
    margin_call : str
        Dotted function that returns the margin record of a case (``harness.verify`` gives it;
        measuring does not import verifying).
    margin_package : str
        Sub-package of the harness whose source is part of a margin's key.
    begun : float
        When the time budget of the profile began to run.
    stopped_after : int or None
        Blocks that were done when that budget ended a run.
    failure : str
        Why a front end had to end a run: the journal can't be written, say.
    """

    cases: Sequence[Case]
    profile: Profile
    registry: Registry
    folder: Path
    fingerprint: Mapping[str, Any]
    margin_call: str = "harness.verify.margin:check_case"
    margin_package: str = "verify"
    seed: int = 0
    begun: float = field(default_factory=time.monotonic)
    stopped_after: int | None = None
    failure: str = ""
    _codes: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def fingerprint_id(self) -> str:
        """Short hash of the fingerprint, as it stands in records."""
        return schema.digest(dict(self.fingerprint))

    def _code(self, case: Case, package: str) -> str:
        name = (case.mechanism, package)
        if name not in self._codes:
            self._codes[name] = code_hash(self.registry.mechanism(case.mechanism), package)
        return self._codes[name]

    def task(self, kind: str, case: Case, block: int) -> Task:
        """The task with its key."""
        code = self._code(case, self.margin_package if kind == "margin" else "measure")
        rule = f"{self.profile.min_rounds}-{self.profile.seconds}" if kind == "time" else ""
        key = schema.key(kind, case.id, block, code + rule, self.fingerprint)
        return Task(kind, case, block, key, code)

    def _anchor(self, case: Case, block: int, interpreter: str) -> Task:
        """A baseline measured again beside what an earlier session left to do in a block."""
        base = self.task("time", case, block)
        return Task("anchor", case, block, schema.digest([base.key, interpreter]), base.code)

    def _anchors(self, tasks: Sequence[Task], block: int, interpreter: str) -> list[Task]:
        """Anchors for the cases whose baseline another interpreter has measured.

        Ratios are formed inside an interpreter: without them a resumed block would divide today's
        time by yesterday's.
        """
        timed = {t.case for t in tasks if t.kind == "time"}
        needed = {problem_of(case) for case in timed}
        name, heads = self.profile.baseline, self.profile.reference["heads"]
        return [
            self._anchor(case, block, interpreter)
            for case in self.cases
            if case.name == name
            and case.problem.heads in (0, heads)
            and case not in timed
            and problem_of(case) in needed
        ]

    def tasks(self) -> list[list[Task]]:
        """All tasks, block by block.

        Margins are checked in the first block (the answer does not change), memory in the first
        few, time in all.
        """
        blocks = []
        for block in range(self.profile.blocks):
            tasks = [self.task("time", case, block) for case in self.cases]
            real = [case for case in self.cases if not case.is_control]
            if block < self.profile.memory_blocks:
                tasks += [self.task("memory", case, block) for case in real]
            if block == 0:
                tasks += [self.task("margin", case, 0) for case in real]
            blocks.append(tasks)
        return blocks

    def keys(self) -> set[str]:
        """Keys of all tasks: what of a journal belongs to this session's plan."""
        return {task.key for tasks in self.tasks() for task in tasks}

    def records(self) -> list[dict[str, Any]]:
        """Finished records of this plan, from any session."""
        keys = self.keys()
        cases = {case.id for case in self.cases}
        return [
            r
            for r in journal.read(self.folder).records
            if r.get("key") in keys or (r["kind"] == "anchor" and self._is_ours(r, cases))
        ]

    def _is_ours(self, anchor: Mapping[str, Any], cases: set[str]) -> bool:
        return anchor["fingerprint"] == self.fingerprint_id and anchor["case"] in cases

    def rows(self) -> list[Row]:
        """Every case against its baseline, as far as measured, in the order of the plan."""
        records = self.records()
        rows = summarise(
            table.times(records),
            table.memory(records),
            table.margins(records),
            self.profile.baseline,
            self.profile.reference["heads"],
        )
        position = {case.id: i for i, case in enumerate(self.cases)}
        problems: dict[tuple[Any, ...], int] = {}
        for case in self.cases:
            p = case.problem
            problems.setdefault((p.batch, p.length, p.d_in, p.dtype, p.phase), len(problems))

        def place(row: Row) -> tuple[int, int]:
            c = row.columns
            problem = (c["batch"], c["length"], c["d_in"], c["dtype"], c["phase"])
            return problems[problem], position[row.case]

        return sorted(rows, key=place)

    def _settles(self, record: Mapping[str, Any]) -> bool:
        """Whether a record of an earlier session is a result; a crash is tried again.

        So is a timeout under a shorter limit than today's.
        """
        if record["status"] == "timeout":
            return bool(record.get("limit_seconds", 0) >= self.profile.limit_seconds)
        return record["status"] != "crash"

    def missing(self) -> int:
        """Number of tasks that are still to be done."""
        finished = {r["key"]: r for r in self.records() if self._settles(r)}
        failed = _failed(finished.values())
        return sum(
            1
            for tasks in self.tasks()
            for t in tasks
            if t.key not in finished and not _settled(t, failed)
        )

    def run(
        self, on_progress: Callable[[Progress, dict[str, Any]], None], session: Mapping[str, Any]
    ) -> None:
        """Do what is missing, one interpreter per block, in random order.

        Parameters
        ----------
        on_progress : callable
            Called with a `Progress` and the record just written.
        session : mapping
            Environment for the journal's first line.
        """
        finished = {r["key"]: r for r in self.records() if self._settles(r)}
        failed = _failed(finished.values())
        todo = [
            [t for t in tasks if t.key not in finished and not _settled(t, failed)]
            for tasks in self.tasks()
        ]
        if not any(todo):
            return
        writer = journal.Writer(self.folder, {**session, "fingerprint": dict(self.fingerprint)})
        try:
            self._run_blocks(todo, failed, writer, on_progress)
        finally:
            writer.close()

    def _run_blocks(
        self, todo: list[list[Task]], failed: set[str], writer: journal.Writer,
        on_progress: Callable[[Progress, dict[str, Any]], None],
    ) -> None:  # fmt: skip
        started = time.monotonic()
        pending = [t for tasks in todo for t in tasks]
        clock = _Predictor()
        done = 0
        for block, tasks in enumerate(todo):
            tasks = [t for t in tasks if not _settled(t, failed)]
            if not tasks:
                continue
            if block >= LEAST_BLOCKS and self._too_late(clock.predict(tasks)):
                self.stopped_after = block
                return
            before = devices.machine_state()
            with self._interpreter() as interpreter:
                anchors = self._anchors(tasks, block, interpreter.id)
                pending += anchors
                tasks += anchors
                random.Random(f"{self.seed}-{block}-{writer.session}").shuffle(tasks)
                for position, task in enumerate(tasks):
                    pending.remove(task)
                    if _settled(task, failed):
                        continue
                    outcome = self._execute(interpreter, task)
                    if outcome.status == "unsupported" and task.case.run_settings().graphed:
                        # A capture that failed can leave CUDA's allocator in any state.
                        interpreter.restart()
                    record = writer.append(self._record(task, outcome, interpreter, position))
                    if _final(record):
                        failed.add(task.case.id)
                    done += 1
                    clock.add(task, outcome.seconds)
                    left = [t for t in pending if not _settled(t, failed)]
                    progress = Progress(
                        done=done,
                        total=done + len(left),
                        block=block,
                        blocks=len(todo),
                        case=task.case.id,
                        seconds=time.monotonic() - started,
                        left_seconds=clock.predict(left),
                        block_ended=not any(t.block == block for t in left),
                    )
                    on_progress(progress, record)
                writer.append(
                    {
                        "kind": "block",
                        "block": block,
                        "fingerprint": self.fingerprint_id,
                        "interpreter": interpreter.id,
                        "start_seconds": interpreter.start_seconds,
                        "before": before,
                        "after": devices.machine_state(),
                    }
                )

    def _too_late(self, seconds: float | None) -> bool:
        """Whether a block of so many seconds would end behind the profile's time budget."""
        budget = self.profile.budget_seconds
        return budget is not None and time.monotonic() - self.begun + (seconds or 0) > budget

    def _interpreter(self) -> Interpreter:
        # One context per block on a GPU, a fork per case on the CPU.
        cuda = self.fingerprint["device"] == "cuda"
        return Interpreter("persistent" if cuda else "fork", preload=PRELOAD)

    def _execute(self, interpreter: Interpreter, task: Task) -> Outcome:
        arguments: dict[str, Any] = {"case": task.case.id, "given": list(self.registry.extra)}
        limits = Limits(seconds=self.profile.limit_seconds, data_bytes=self._memory_limit())
        mallopt = None
        if task.kind in ("time", "anchor"):
            arguments |= {"rounds": self.profile.min_rounds, "seconds": self.profile.seconds}
            call = TIME_CALL
            mallopt = devices.TIME_ALLOCATOR
        elif task.kind == "memory":
            call = MEMORY_CALL
            mallopt = memory.ALLOCATOR
        else:
            call = self.margin_call
        if "M_TRIM_THRESHOLD" not in str(self.fingerprint["allocator"]):
            mallopt = None  # no glibc on this platform, or CUDA's own allocator
        return interpreter.run(call, arguments, limits, mallopt)

    def _memory_limit(self) -> int | None:
        """Bytes a child may take: nine tenths of what is free, so that the machine never swaps."""
        if self.fingerprint["device"] != "cpu":
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
            "fingerprint": self.fingerprint_id,
            "interpreter": interpreter.id,
            "generation": interpreter.generation,
            "order": position,
            "status": outcome.status,
            "task_seconds": outcome.seconds,
        }
        if outcome.status == "timeout":
            record["limit_seconds"] = self.profile.limit_seconds
        if outcome.status == "crash" and outcome.detail.startswith(NOT_HERE):
            record["status"] = "unsupported"
        if outcome.detail:
            record["detail"] = outcome.detail
        value = outcome.value if isinstance(outcome.value, dict) else {}
        record |= value
        if task.kind == "margin" and outcome.status == "ok" and value.get("verdict") == "wrong":
            record["status"] = "wrong"
            record["detail"] = (
                f"{value['what']}: error {value['error']:.2g} over budget {value['budget']:.2g}"
            )
        return record


class _Predictor:
    """Time left, from what the same task took before."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], float] = {}

    def add(self, task: Task, seconds: float) -> None:
        """Note how long a task took."""
        self._known[task.kind, task.case.id] = seconds

    def predict(self, left: Sequence[Task]) -> float | None:
        """Seconds for the tasks left; None until most of them have been seen once."""
        known = [self._known.get((t.kind, t.case.id)) for t in left]
        seen = [seconds for seconds in known if seconds is not None]
        if left and len(seen) < 0.5 * len(left):
            return None
        mean = sum(seen) / len(seen) if seen else 0.0
        return sum(seen) + mean * (len(left) - len(seen))


def _final(record: Mapping[str, Any]) -> bool:
    """Whether a record settles its case: a time that failed, or an error over budget.

    A margin or a memory reading that could not be taken does not stop the clock; it is missing,
    and without a margin there is no headline.
    """
    if record["kind"] in ("time", "anchor"):
        return bool(record["status"] != "ok")
    return record["kind"] == "margin" and record["status"] == "wrong"


def _failed(records: Iterable[Mapping[str, Any]]) -> set[str]:
    return {r["case"] for r in records if _final(r)}


def _settled(task: Task, failed: set[str]) -> bool:
    """Whether nothing more is to be measured of a task's case."""
    return task.case.id in failed
