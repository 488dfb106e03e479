"""One measuring session: what is to be done, what is there already, where ratios come from."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.case import Case, problem_of
from harness.measure.call import is_final, refuse_options
from harness.measure.ceilings import GAUGE, gauges, with_shares
from harness.measure.cost import Predictor, SessionCost, session_cost
from harness.measure.device import device_fingerprint
from harness.options.groups import Measuring
from harness.plan import make_plan
from harness.profile import Profile
from harness.records import journal, schema
from harness.records.drift import Drift, machine_drift
from harness.records.ratios import Row, refused_row, summarise, time_frame
from harness.registry import Registry, code_hash, harness_hash


@dataclass(frozen=True)
class Measurement:
    """One measurement to do: what, of which case, in which block."""

    kind: str
    case: Case
    block: int
    key: str
    code: str
    beside: str | None = None
    """Id of the case that it is timed in turn with."""


@dataclass
class Session:
    """Everything that decides what is measured and where it is recorded.

    Attributes
    ----------
    cases : sequence of Case
        In the order of the plan; baseline controls included.
    folder : Path
        The journal.
    fingerprint : mapping
        From `harness.measure.device.fingerprint`.
    margin_call : str
        Dotted function that returns the margin record of a case: measuring does not import
        verifying.
    pairs : sequence of (Case, Case), optional
        What is divided by what, where that is not every case by the profile's baseline. Both sides
        of a pair are measured in one interpreter, in a block that was interrupted too.
    skip : tuple of str
        Names of `harness.measure.checks.CHECKS` that are left out: only tests do that.
    begun, stopped_after : float, int or None
        When the time budget of the profile began to run; blocks that were done when it ended a run.
    failure, error : str, Exception or None
        Why a front end had to end a run, and what broke one inside a front end that would hide it.
    written : str or None
        Id of the journal's session that a run wrote; None while nothing was to be done.
    refused : dict of Case to (str, str)
        What is not measured, with verdict and reason; no part of `cases`.
    """

    cases: Sequence[Case]
    profile: Profile
    registry: Registry
    folder: Path
    fingerprint: Mapping[str, Any]
    margin_call: str = "harness.verify.margin:check_case"
    pairs: Sequence[tuple[Case, Case]] | None = None
    skip: tuple[str, ...] = ()
    begun: float = field(default_factory=time.monotonic)
    stopped_after: int | None = None
    failure: str = ""
    error: Exception | None = None
    written: str | None = None
    refused: dict[Case, tuple[str, str]] = field(default_factory=dict)
    _codes: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def fingerprint_id(self) -> str:
        """Short hash of the fingerprint, as it stands in records."""
        return schema.digest(dict(self.fingerprint))

    def _code(self, case: Case, package: str) -> str:
        if case.mechanism == GAUGE:
            return harness_hash(package)
        name = (case.mechanism, package)
        if name not in self._codes:
            self._codes[name] = code_hash(self.registry.mechanism(case.mechanism), package)
        return self._codes[name]

    def task(self, kind: str, case: Case, block: int) -> Measurement:
        """The task with its key."""
        code = self._code(case, "verify" if kind == "margin" else "measure")
        rule = f"{self.profile.min_rounds}-{self.profile.seconds}" if kind == "time" else ""
        key = schema.key(kind, case.id, block, code + rule, self.fingerprint)
        others = (c.id for c in self._partners.get(case, ()) if c.id != case.id)
        beside = next(others, None) if kind == "time" else None
        return Measurement(kind, case, block, key, code, beside)

    def _needs_company(self, task: Measurement) -> bool:
        """Whether one of its ratios is formed from times in one interpreter."""
        others = (c.id for c in self._partners.get(task.case, ()))
        return task.beside is None or any(other != task.beside for other in others)

    def keep(self, cases: Sequence[Case]) -> None:
        """Measure these of its cases: of the others none is run in their company either."""
        self.cases = cases
        if self.pairs is not None:
            self.pairs = [pair for pair in self.pairs if {*pair} <= {*cases}]
        self.__dict__.pop("_partners", None)

    @cached_property
    def _partners(self) -> dict[Case, list[Case]]:
        """What each case is divided by: the baseline of its problem, or as `pairs` says."""
        if self.pairs is not None:
            found: dict[Case, list[Case]] = {}
            for case, other in self.pairs:
                found.setdefault(case, []).append(other)
            return found
        name, heads = self.profile.baseline, self.profile.reference["heads"]
        bases = {
            problem_of(case): case
            for case in reversed(self.cases)
            if case.name == name and case.problem.heads in (0, heads) and not case.is_control
        }
        return {c: [bases[problem_of(c)]] for c in self.cases if problem_of(c) in bases}

    def anchors(
        self, tasks: Sequence[Measurement], block: int, interpreter: str
    ) -> list[Measurement]:
        """What must be measured again beside the tasks of a block that was interrupted.

        Ratios are formed inside an interpreter: without the baseline of each case that is left to
        do, a resumed block would divide today's time by yesterday's; and a case that was measured
        before the kill, but not its baseline, would have no ratio at all.
        """
        cases = {t.case for t in tasks if t.kind == "time" and self._needs_company(t)}
        again = [case for case in self._alone(block, self.records()) if case not in cases]
        needed = {other for case in {*cases, *again} for other in self._partners.get(case, ())}
        again += [base for base in needed if base not in cases and base not in again]
        tasks = [self.task("time", case, block) for case in self.cases if case in again]
        return [
            replace(t, kind="anchor", key=schema.digest([t.key, interpreter]), beside=None)
            for t in tasks
        ]

    def _alone(
        self, block: int, records: Sequence[Mapping[str, Any]], failed: Collection[str] = ()
    ) -> list[Case]:
        """Cases of a block that no interpreter has measured together with what they are divided by.

        Nothing waits for a partner that failed.
        """
        timed = [
            r
            for r in records
            if r["kind"] in ("time", "anchor") and r["block"] == block and r["status"] == "ok"
        ]
        where: dict[str, set[str]] = {}
        for r in timed:
            where.setdefault(r["case"], set()).add(r["interpreter"])
        in_turn = {(r["case"], r["beside"]) for r in timed if "ratio" in r}
        return [
            case
            for case in self.cases
            if case.id in where
            and any(
                (case.id, other.id) not in in_turn
                and not where[case.id] & where.get(other.id, set())
                for other in self._partners.get(case, ())
                if other.id not in failed
            )
        ]

    def todo(self) -> tuple[list[list[Measurement]], list[int], set[str]]:
        """Unfinished tasks by block, blocks with cases to measure again, cases that failed."""
        records = self.records()
        finished = {r["key"]: r for r in records if self._settles(r)}
        failed = {r["case"] for r in finished.values() if is_final(r)}
        todo = [
            [t for t in tasks if t.key not in finished and t.case.id not in failed]
            for tasks in self.tasks()
        ]
        by_block: dict[int, list[dict[str, Any]]] = {}
        for r in records:
            by_block.setdefault(r["block"], []).append(r)
        alone = [
            len([c for c in self._alone(b, by_block.get(b, []), failed) if c.id not in failed])
            for b in range(len(todo))
        ]
        return todo, alone, failed

    def tasks(self) -> list[list[Measurement]]:
        """All tasks, block by block.

        Margins are checked in the first block (the answer does not change), memory in the first
        few, time in all; so are the machine's ceilings, one task for each gauge of the cases.
        """
        blocks = []
        for block in range(self.profile.blocks):
            tasks = [self.task("time", case, block) for case in self.cases]
            tasks += [self.task("peaks", gauge, block) for gauge in gauges(self.cases)]
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
        today = {(case.id, self._code(case, "measure"), self.fingerprint_id) for case in self.cases}
        return [
            r
            for r in journal.read(self.folder).records
            if r.get("key") in keys
            or (r["kind"] == "anchor" and (r["case"], r.get("code"), r["fingerprint"]) in today)
        ]

    def rows(self) -> list[Row]:
        """Every case against its baseline, as far as measured, in the order of the plan.

        What was refused stands behind the others of its problem.
        """
        records = self.records()
        rows = summarise(records, self.profile.baseline, self.profile.reference["heads"])
        rows = with_shares(rows, records, self.registry.mechanisms, self.skip)
        rows += [refused_row(case, *why) for case, why in self.refused.items()]
        problems: dict[tuple[Any, ...], int] = {}
        places = {}
        for position, case in enumerate([*self.cases, *self.refused]):
            p = case.problem
            first = problems.setdefault((p.batch, p.length, p.d_in, p.dtype, p.phase), position)
            places[case.id] = first, position
        return sorted(rows, key=lambda row: places[row.case])

    def _settles(self, record: Mapping[str, Any]) -> bool:
        """Whether a record of an earlier session is a result; a crash is tried again.

        So is a timeout under a shorter limit than today's.
        """
        if record["status"] == "timeout":
            return bool(record.get("limit_seconds", 0) >= self.profile.limit_seconds)
        return record["status"] != "crash"

    def cost(self) -> SessionCost | None:
        """Where the time of the last run went; None if it measured no whole block."""
        if self.written is None:
            return None
        records = journal.read(self.folder).records
        return session_cost(r for r in records if r["session"] == self.written)

    def drift(self) -> list[Drift]:
        """Movements of the machine that the records of this plan show, largest first."""
        heads = self.profile.reference["heads"]
        return machine_drift(time_frame(self.records()), self.profile.baseline, heads)

    def missing(self) -> int:
        """Number of tasks that are still to be done."""
        todo, alone, _ = self.todo()
        return sum(len(tasks) for tasks in todo) + sum(alone)

    def predictor(self) -> Predictor:
        """What the journal tells of how long this plan takes."""
        predictor = Predictor()
        records = journal.read(self.folder).records
        ours = [r for r in records if r.get("fingerprint") == self.fingerprint_id]
        predictor.add_records(ours, self.keys())
        return predictor

    def predict(self) -> float | None:
        """Seconds that what is missing will take, from what the journal holds of this plan.

        None before the first block has been measured.
        """
        todo, alone, _ = self.todo()
        left = [(task.kind, task.case.id) for tasks in todo for task in tasks]
        blocks = sum(1 for tasks, count in zip(todo, alone, strict=True) if tasks or count)
        return self.predictor().predict(left, blocks)


def make_session(options: Measuring) -> Session:
    """Build the session that the options describe.

    Raises
    ------
    UsageError
        For any value that can't be.
    """
    registry = Registry(options.given)
    fingerprint = device_fingerprint(options.device)
    plan = make_plan(options.profile or "quick", fingerprint["device"], registry, options)
    refuse_options(plan.cases, registry)
    return Session(plan.cases, plan.profile, registry, options.journal, fingerprint)
