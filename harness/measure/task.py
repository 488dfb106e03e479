"""One measurement to do, how far a session is, and when a case is settled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.case import Case
from harness.records.schema import CEILINGS

NUMBERS = (
    "samples", "median", "seconds", "ratio", "beside_samples", "transient_bytes", "peak_bytes",
    *CEILINGS,
)  # fmt: skip
"""What a measurement is; none of it stays where one of them is no number."""

_NEEDED = {
    "memory": ("transient_bytes", "peak_bytes"),
    "peaks": CEILINGS,
}
_NEEDED_OF_TIMES = ("median",)


@dataclass(frozen=True)
class Task:
    """One measurement to do: what, of which case, in which block."""

    kind: str
    case: Case
    block: int
    key: str
    code: str
    beside: str | None = None
    """Id of the case that it is timed in turn with."""


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


def is_settled(task: Task, failed: set[str]) -> bool:
    """Whether nothing more is to be measured of a task's case."""
    return task.case.id in failed
