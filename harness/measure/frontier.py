"""The frontier: the longest sequence that a case can be run on within memory and time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.case import Case, size_of
from harness.errors import UsageError
from harness.isolate import Interpreter, Limits, Outcome, run
from harness.measure import call
from harness.measure import device as devices
from harness.measure.bisection import Frontier, next_length, stand
from harness.records import journal, schema
from harness.registry import Registry, code_hash

RESERVED_SHARE, SLACK_BYTES = 2.0, 96 * 2**20
"""The kernel refuses data beyond so many times the limit and a bit: threads' stacks and what is
reserved and never touched count there too. What was held in truth is judged by the measured peak.
"""
KILL_FACTOR = 4
"""A child is killed after so many times the limit on a pass, and `START_SECONDS` more."""
START_SECONDS = {False: 30.0, True: 300.0}
"""To import and build; longer where code is compiled."""
OPERATIONS_PER_SECOND = {"cpu": 2e10, "cuda": 2e13}
"""For the first guess alone."""
GUESSED_SHARE = 0.97
"""Of the memory limit, so that a good formula's guess fits."""
BLIND_GUESS = 256
DEVICE_MEMORY = "harness.measure.memory:device_memory"


@dataclass(frozen=True)
class Bounds:
    """What a pass may take, and the largest length that is tried."""

    memory_bytes: int
    seconds: float
    largest: int


@dataclass
class Result:
    """The frontier of one case, whose length means nothing, and the records by length."""

    case: Case
    probes: dict[int, Mapping[str, Any]]

    @property
    def frontier(self) -> Frontier:
        """Longest length that fits, and the next that does not."""
        return stand({n: r["status"] == "ok" for n, r in self.probes.items()})

    @property
    def longest(self) -> Mapping[str, Any] | None:
        """The record of the longest length that fits."""
        longest = self.frontier.longest
        return None if longest is None else self.probes[longest]

    @property
    def why(self) -> str:
        """Why the next length does not fit: its status, or that none was tried."""
        miss = self.frontier.first_miss
        return "largest length tried" if miss is None else str(self.probes[miss]["status"])

    @property
    def detail(self) -> str:
        """One line about the length that does not fit."""
        miss = self.frontier.first_miss
        return "" if miss is None else str(self.probes[miss].get("detail", ""))

    def failed(self) -> bool:
        """Whether the frontier is that of a crash or of a wrong result, not of a limit."""
        return self.why in ("crash", "wrong")


def judge(outcome: Outcome, bounds: Bounds) -> dict[str, Any]:
    """A probe's record, as far as its outcome decides: what it measured, status and detail.

    A pass that ended has fitted only if its measured peak and its time are within the bounds.
    """
    found = {"detail": "", **call.record(outcome)}
    if found["status"] == "ok" and found["peak_bytes"] > bounds.memory_bytes:
        peak, limit = (n / 2**20 for n in (found["peak_bytes"], bounds.memory_bytes))
        says = f"its peak is {peak:.1f} MiB, the limit {limit:.1f} MiB"
        found |= {"status": "oom", "detail": says}
    elif found["status"] == "ok" and found["pass_seconds"] > bounds.seconds:
        found |= {"status": "timeout", "detail": f"a pass takes {found['pass_seconds']:.3g} s"}
    return found


def first_guess(case: Case, registry: Registry, bounds: Bounds) -> int:
    """A length that the record's formulas hold for possible; it only saves probes."""
    mechanism, implementation = registry.find(f"{case.mechanism}.{case.implementation}")
    held = implementation.transient_bytes or mechanism.transient_bytes
    if held is None:
        return min(BLIND_GUESS, bounds.largest)
    operations = mechanism.operations
    rate = OPERATIONS_PER_SECOND[case.problem.device]

    def possible(length: int) -> bool:
        size = replace(size_of(case), length=length)
        weights = mechanism.parameters(size) if mechanism.parameters else 0
        resident = size.inputs + weights + (size.features if size.training else 0)
        bytes_held = held(size) + size.item_bytes * resident
        fits = bytes_held <= GUESSED_SHARE * bounds.memory_bytes
        return fits and (operations is None or operations(size) <= rate * bounds.seconds)

    lengths = range(1, bounds.largest + 1)
    return max(1, bisect_left(lengths, True, key=lambda length: not possible(length)))


@dataclass
class Search:
    """Finds frontiers, and records every probe.

    Attributes
    ----------
    cases : sequence of Case
        Each at any length.
    on_probe : callable
        Called with the case about to be probed and how many cases are done.
    """

    cases: Sequence[Case]
    bounds: Bounds
    registry: Registry
    folder: Path
    fingerprint: Mapping[str, Any]
    on_probe: Callable[[Case, int], None] = lambda case, done: None
    probed: int = 0
    _writer: journal.Writer | None = None
    _codes: dict[str, str] = field(default_factory=dict)

    def _key(self, case: Case) -> str:
        if case.mechanism not in self._codes:
            mechanism = self.registry.mechanism(case.mechanism)
            self._codes[case.mechanism] = code_hash(mechanism, "measure")
        rule = f"{self.bounds.memory_bytes}-{self.bounds.seconds}"
        code = self._codes[case.mechanism] + rule
        return schema.key("frontier", case.id, 0, code, self.fingerprint)

    def run(self, session: Mapping[str, Any]) -> list[Result]:
        """Probe what is not in the journal, case after case; `session` is for its first line.

        Raises
        ------
        UsageError
            If the journal can't be written, or the memory that was free is no longer.
        """
        known = {
            r["key"]: r
            for r in journal.read(self.folder).records
            if r["kind"] == "frontier" and r["status"] != "crash"
        }
        with call.interpreter(self.fingerprint["device"]) as interpreter:

            def probe(case: Case) -> Mapping[str, Any]:
                key = self._key(case)
                if key in known:
                    return known[key]
                record = self._probe(interpreter, case)
                if self._writer is None:
                    first = {**session, "fingerprint": dict(self.fingerprint)}
                    self._writer = journal.Writer(self.folder, first)
                self.probed += 1
                return self._writer.append({"kind": "frontier", "key": key, **record})

            try:
                return [self._search(case, done, probe) for done, case in enumerate(self.cases)]
            finally:
                if self._writer is not None:
                    self._writer.close()

    def _search(self, case: Case, done: int, probe: Callable[[Case], Mapping[str, Any]]) -> Result:
        guess = first_guess(case, self.registry, self.bounds)
        result = Result(case, {})
        while True:
            tried = {n: r["status"] == "ok" for n, r in result.probes.items()}
            length = next_length(tried, guess, self.bounds.largest)
            if length is None:
                return result
            here = replace(case, problem=replace(case.problem, length=length))
            self.on_probe(here, done)
            result.probes[length] = probe(here)
            if result.probes[length]["status"] == "unsupported":  # so it is at any other length
                return result

    def _probe(self, interpreter: Interpreter, case: Case) -> dict[str, Any]:
        cuda = self.fingerprint["device"] == "cuda"
        compiled = bool(case.run_settings().compile_mode)
        seconds = KILL_FACTOR * self.bounds.seconds + START_SECONDS[compiled]
        outcome = call.without_room(case, self.registry) or call.ask(
            interpreter,
            call.PROBE_CALL,
            {
                "case": case.id,
                "memory_bytes": self.bounds.memory_bytes,
                "given": list(self.registry.extra),
            },
            Limits(seconds, None if cuda else self._data_bytes()),
            devices.MEMORY_ALLOCATOR,
            self.fingerprint,
        )
        return {
            "case": case.id,
            "block": 0,
            "code": self._codes[case.mechanism],
            "fingerprint": schema.digest(dict(self.fingerprint)),
            "memory_limit_bytes": self.bounds.memory_bytes,
            "seconds_limit": self.bounds.seconds,
            **judge(outcome, self.bounds),
        }

    def _data_bytes(self) -> int:
        """The limit on a child's data, if the machine still has that much to give."""
        wanted = int(RESERVED_SHARE * self.bounds.memory_bytes) + SLACK_BYTES
        available = devices.available_memory()
        if available is None:
            return wanted
        refuse_beyond(self.bounds.memory_bytes, available)
        return min(wanted, int(call.SHARE * available))


def refuse_beyond(memory_bytes: int, free: int) -> None:
    """Raise `UsageError` for a limit above nine tenths of what is free."""
    if memory_bytes > call.SHARE * free:
        raise UsageError(
            f"the memory limit is {memory_bytes / 2**30:.2f} GiB, but {free / 2**30:.2f} GiB are "
            f"free and at most {call.SHARE:.0%} of them are used; give a smaller --memory"
        )


def memory_limit(asked: int | None, device: str) -> int:
    """Bytes that a probe may hold.

    By default half of the machine's memory, a number that does not change from one start to the
    next; on a GPU nine tenths of what is free, in whole GiB.

    Raises
    ------
    UsageError
        If it is more than nine tenths of what is free.
    """
    if device == "cuda":
        outcome = run(DEVICE_MEMORY, {}, Limits(seconds=120))
        if outcome.status != "ok":
            raise UsageError(f"the GPU's memory can't be read: {outcome.detail}")
        free = int(outcome.value["free"])
        default = int(call.SHARE * free) // 2**30 * 2**30
    elif (free := devices.available_memory() or 0) == 0:
        raise UsageError("how much memory is free can't be told here; needs Linux, or a GPU")
    else:
        default = (devices.machine_memory() or free) // 2
    limit = default if asked is None else asked
    refuse_beyond(limit, free)
    return limit
