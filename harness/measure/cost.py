"""What a session spends its time on, and how long the rest of it takes: from records alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.records.schema import MEASURED

PARTS = (
    *("timed", "warm_up", "building", "compiling"),
    *("memory", "margins", "checks", "ceilings", "failed"),
)
"""What a session's seconds are spent on, in the order in which it is told: inside the samples;
before them, reported apart because a user would pay for it as well (warm-up, building, compiling);
whole tasks, and timed calls computed again; tasks that gave no result because they ran out of time
or memory, say."""
LEAST_KNOWN = 0.5
"""Of the tasks left at least so many must have been seen once before anything is predicted."""


@dataclass(frozen=True)
class SessionCost:
    """Seconds of a session: of all its blocks, and by `PARTS` what they were spent on.

    What a front end adds around the blocks comes by `within`.
    """

    total: float
    spent: Mapping[str, float]

    @property
    def overhead(self) -> float:
        """What is left: interpreters started, forks, pipes, journal, display, replay."""
        return max(0.0, self.total - math.fsum(self.spent.values()))

    @property
    def overhead_share(self) -> float:
        """Overhead as a part of the total; nan of nothing."""
        return self.overhead / self.total if self.total else math.nan

    def within(self, total: float) -> SessionCost:
        """The same as part of a longer time: what is added is overhead."""
        return replace(self, total=max(total, self.total))

    def __str__(self) -> str:
        """``of 212 s: 61 % timed, 20 % warm-up, 9 % building, 6 % margins, 4 % overhead``."""
        parts = {**{name: s for name, s in self.spent.items() if s}, "overhead": self.overhead}
        share = 100 / self.total if self.total else 0.0
        said = [f"{share * s:.0f} % {name.replace('_', '-')}" for name, s in parts.items()]
        return f"of {self.total:.0f} s: {', '.join(said)}"

    def as_json(self) -> dict[str, float]:
        """All parts, and the overhead's share."""
        seconds = {"total": self.total, **self.spent, "overhead": self.overhead}
        found = {f"{name}_seconds": value for name, value in seconds.items()}
        return {**found, "overhead_share": self.overhead_share}


def session_cost(records: Iterable[Mapping[str, Any]]) -> SessionCost | None:
    """Add up the records of one session (one ``session`` id); None without a whole block.

    Blocks without an end record (killed in the middle) and their tasks are left out.
    """
    known = list(records)
    blocks = _whole_blocks(known)
    if not blocks:
        return None
    spent = dict.fromkeys(PARTS, 0.0)
    for r in known:
        if r["kind"] != "block" and r.get("interpreter") in blocks:
            for part, seconds in _parts(r).items():
                spent[part] += seconds
    return SessionCost(math.fsum(blocks.values()), spent)


def _whole_blocks(records: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds of the blocks that ended, by their interpreters; one that says less is left out."""
    return {
        r["interpreter"]: float(r["seconds"])
        for r in records
        if r["kind"] == "block" and r.get("interpreter") and r.get("seconds") is not None
    }


def _parts(record: Mapping[str, Any]) -> dict[str, float]:
    """Where the seconds of one task went; what is left of a timing is overhead."""
    kind, status = record["kind"], record["status"]
    if kind not in MEASURED:
        return {}
    seconds = float(record.get("task_seconds") or 0.0)
    if status != "ok" and not (kind == "margin" and status == "wrong"):
        return {} if kind == "peaks" else {"failed": seconds}
    if kind in ("memory", "margin", "peaks"):
        return {{"memory": "memory", "margin": "margins", "peaks": "ceilings"}[kind]: seconds}

    def told(name: str, otherwise: float = 0.0) -> float:
        return float(record.get(name) or otherwise)

    # Older records tell the time of each sample's calls.
    calls = math.fsum(record["samples"]) * int(record["inner"])
    return {
        "timed": told("timed_seconds", calls + told("waited_seconds")) + told("company_seconds"),
        "warm_up": told("warmup_seconds") + told("company_setup_seconds"),
        "building": told("build_seconds"),
        "compiling": told("compile_seconds"),
        "checks": told("check_seconds"),
    }


class Predictor:
    """Time left, from what the same tasks and whole blocks took before.

    A block costs more than its tasks: an interpreter starts and ends, forks and pipes are waited
    for, the journal and the display are written. That is learnt from finished blocks, and before
    there is one, from the start of the first. A task is known by its kind and its case; an anchor
    is a time by another name.
    """

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], list[float]] = {}
        self._overheads: list[float] = []
        self._start = 0.0

    def add(self, kind: str, case: str, seconds: float) -> None:
        """Note how long a task took."""
        self._tasks.setdefault((_same(kind), case), []).append(seconds)

    def started(self, seconds: float) -> None:
        """Note how long an interpreter took to start: what a block costs at least."""
        self._start = seconds

    def ended(self, seconds: float, tasks_seconds: float) -> None:
        """Note a finished block: its length, and that of its tasks alone."""
        self._overheads.append(max(0.0, seconds - tasks_seconds))

    def add_records(self, records: Iterable[Mapping[str, Any]], keys: Collection[str]) -> None:
        """Learn from a journal: the tasks with these keys, and the blocks they stand in."""
        known = list(records)
        sums: dict[str, float] = {}
        ours: set[str] = set()
        for r in known:
            if r["kind"] in MEASURED:
                seconds = float(r["task_seconds"])
                sums[r["interpreter"]] = sums.get(r["interpreter"], 0.0) + seconds
                if r["key"] in keys:
                    self.add(r["kind"], r["case"], seconds)
                    ours.add(r["interpreter"])
        for interpreter, seconds in _whole_blocks(known).items():
            if interpreter in ours:
                self.ended(seconds, sums[interpreter])

    def predict(self, left: Sequence[tuple[str, str]], blocks: int) -> float | None:
        """Seconds for the tasks that are left, each a kind and a case; None until most are known.

        So many blocks among them are still to be begun.
        """
        known = [self._tasks.get((_same(kind), case)) for kind, case in left]
        seen = [statistics.median(seconds) for seconds in known if seconds]
        if left and len(seen) < LEAST_KNOWN * len(left):
            return None
        mean = sum(seen) / len(seen) if seen else 0.0
        per_block = statistics.median(self._overheads) if self._overheads else self._start
        return sum(seen) + mean * (len(left) - len(seen)) + per_block * blocks


def _same(kind: str) -> str:
    return "time" if kind == "anchor" else kind
