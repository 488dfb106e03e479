"""How long the rest of a session takes, from what its blocks took so far."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from harness.measure.task import Task

LEAST_KNOWN = 0.5
"""Of the tasks left at least so many must have been seen once before anything is predicted."""

KINDS = ("time", "anchor", "memory", "margin", "peaks")
"""Records of tasks that run inside blocks."""


class Predictor:
    """Time left, from what the same tasks and whole blocks took before.

    A block costs more than its tasks: an interpreter starts and ends, forks and pipes are waited
    for, the journal and the display are written. That is learnt from finished blocks, and before
    there is one, from the start of the first.
    """

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], list[float]] = {}
        self._overheads: list[float] = []
        self._start = 0.0

    def add(self, kind: str, case: str, seconds: float) -> None:
        """Note how long a task took; ``anchor`` is a ``time`` by another name."""
        self._tasks.setdefault((_same(kind), case), []).append(seconds)

    def started(self, seconds: float) -> None:
        """Note how long an interpreter took to start: what a block costs at least."""
        self._start = seconds

    def ended(self, seconds: float, tasks_seconds: float) -> None:
        """Note a finished block: its length, and that of its tasks alone."""
        self._overheads.append(max(0.0, seconds - tasks_seconds))

    def add_records(self, records: Iterable[Mapping[str, Any]], keys: Collection[str]) -> None:
        """Learn from a journal: the tasks with these keys, and the blocks they stand in."""
        sums: dict[str, float] = {}
        ours: set[str] = set()
        blocks = []
        for r in records:
            if r["kind"] == "block":
                blocks.append(r)
            elif r["kind"] in KINDS:
                seconds = float(r["task_seconds"])
                if r["key"] in keys:
                    self.add(r["kind"], r["case"], seconds)
                    ours.add(r["interpreter"])
                sums[r["interpreter"]] = sums.get(r["interpreter"], 0.0) + seconds
        for r in blocks:
            if r.get("seconds") is not None and r["interpreter"] in ours:
                self.ended(float(r["seconds"]), sums[r["interpreter"]])

    def predict(self, left: Sequence[Task], blocks: int) -> float | None:
        """Seconds for what is left.

        Parameters
        ----------
        left : sequence of Task
        blocks : int
            Blocks among them that are still to be begun.

        Returns
        -------
        float or None
            None until most of the tasks have been seen once.
        """
        known = [self._tasks.get((_same(t.kind), t.case.id)) for t in left]
        seen = [statistics.median(seconds) for seconds in known if seconds]
        if left and len(seen) < LEAST_KNOWN * len(left):
            return None
        mean = sum(seen) / len(seen) if seen else 0.0
        per_block = statistics.median(self._overheads) if self._overheads else self._start
        return sum(seen) + mean * (len(left) - len(seen)) + per_block * blocks


def _same(kind: str) -> str:
    return "time" if kind == "anchor" else kind
