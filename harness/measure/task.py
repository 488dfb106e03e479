"""One measurement to do, when its case is settled, and how long the rest of a session takes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.case import Case
from harness.records.schema import CEILINGS, MEASURED

NUMBERS = (
    "samples", "median", "seconds", "ratio", "beside_samples", "transient_bytes", "peak_bytes",
    *CEILINGS,
)  # fmt: skip
"""What a measurement is; none of it stays where one of them is no number."""

LEAST_KNOWN = 0.5
"""Of the tasks left at least so many must have been seen once before anything is predicted."""
_NEEDED = {
    "memory": ("transient_bytes", "peak_bytes"),
    "peaks": CEILINGS,
}
_NEEDED_OF_TIMES = ("median",)


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


def is_final(record: Mapping[str, Any]) -> bool:
    """Whether a record settles its case: a time that failed, or an error over budget.

    A margin or a memory reading that could not be taken does not stop the clock; it is missing,
    and without a margin there is no headline.
    """
    if record["kind"] in ("time", "anchor"):
        return bool(record["status"] != "ok")
    return record["kind"] == "margin" and record["status"] == "wrong"


def unusable(record: Mapping[str, Any]) -> dict[str, str]:
    """Status and detail of a record that says ok and holds no measurement; empty if it does."""
    if record["kind"] == "margin":
        return {} if "verdict" in record else {"status": "crash", "detail": "no verdict came back"}
    numbers = [record.get(name) for name in _NEEDED.get(record["kind"], _NEEDED_OF_TIMES)]
    if record["kind"] not in _NEEDED:
        # Times recorded before blocks had a time of their own are compared by the median.
        numbers += [*(record.get("samples") or [None]), record.get("seconds", record.get("median"))]
        if "ratio" in record:
            numbers.append(record["ratio"])
    for value in numbers:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return {"status": "crash", "detail": f"{value!r} came back, not a number"}
        if not math.isfinite(value):
            return {"status": "wrong", "detail": f"{value} came back, not a finite number"}
        if value < 0 or (value == 0 and record["kind"] != "memory"):
            return {"status": "crash", "detail": f"{value} came back, which can't be"}
    return {}


def failed_cases(records: Iterable[Mapping[str, Any]]) -> set[str]:
    """Ids of the cases that the records settle."""
    return {r["case"] for r in records if is_final(r)}


def is_settled(task: Measurement, failed: set[str]) -> bool:
    """Whether nothing more is to be measured of a task's case."""
    return task.case.id in failed


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
            elif r["kind"] in MEASURED:
                seconds = float(r["task_seconds"])
                if r["key"] in keys:
                    self.add(r["kind"], r["case"], seconds)
                    ours.add(r["interpreter"])
                sums[r["interpreter"]] = sums.get(r["interpreter"], 0.0) + seconds
        for r in blocks:
            if r.get("seconds") is not None and r["interpreter"] in ours:
                self.ended(float(r["seconds"]), sums[r["interpreter"]])

    def predict(self, left: Sequence[Measurement], blocks: int) -> float | None:
        """Seconds for what is left.

        Parameters
        ----------
        left : sequence of Measurement
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
