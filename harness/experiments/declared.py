"""What was declared, and what had happened before: the order of a journal's records.

Inside one session file the order of the lines is the order of things. Between sessions there are
only stamps of wall clocks, which can be set back, and differ between machines: an order that rests
on such a clock is told as unsure. What no record shows can't be known: results that were looked at
outside of ``attnbench compare``, and records that were removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]


def designs(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Every declared design of two models: by itself, or as one of several declared together.

    Those of a family carry its session and time, and its key as ``family``.
    """
    for record in records:
        if record["kind"] == "design":
            yield dict(record)
        elif record["kind"] == "family":
            when = {name: record.get(name) for name in ("session", "at")}
            yield from ({**design, **when, "family": record["key"]} for design in record["designs"])


def run_keys(record: Record) -> set[str]:
    """Keys of all runs that a record of a design, of a family or of a sweep asks for."""
    found: set[str] = set()
    designs = record["designs"] if record["kind"] == "family" else ()
    waiting: list[Any] = [record.get("runs"), *(design["runs"] for design in designs)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, Sequence):
            waiting += value
    return found


@dataclass(frozen=True)
class _Place:
    session: str
    line: int
    stamp: str


class Order:
    """Which of two records is the older one.

    Parameters
    ----------
    records : iterable of mapping
        A whole journal, as `harness.records.journal.read` gives it: those of one session in the
        order of its lines.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._places: dict[str, _Place] = {}
        self._turned: set[str] = set()
        latest: dict[str, str] = {}
        for line, record in enumerate(records):
            session, stamp = str(record.get("session")), str(record.get("at") or "")
            if stamp < latest.get(session, "") or not stamp:
                self._turned.add(session)
            # A clock that was set back has not undone what was written before.
            latest[session] = max(stamp, latest.get(session, ""))
            if "key" in record:
                place = _Place(session, line, latest[session])
                self._add(str(record["key"]), place)
                for design in record.get("designs", ()) if record["kind"] == "family" else ():
                    self._add(str(design["key"]), place)

    def _add(self, key: str, place: _Place) -> None:
        """A design may be declared by itself and in a family: the older declaration counts."""
        known = self._places.get(key)
        if known is None or self._older(place, known):
            self._places[key] = place

    def before(self, first: Record, second: Record) -> bool:
        """Whether the first record is older, as far as is known."""
        one, other = self._place(first), self._place(second)
        return one is not None and other is not None and self._older(one, other)

    def unsure(self, first: Record, second: Record) -> bool:
        """Whether the order of two records rests on a clock that went back, or on none."""
        one, other = self._place(first), self._place(second)
        if one is None or other is None:
            return False
        return one.session != other.session and bool({one.session, other.session} & self._turned)

    def oldest_first(self, records: Iterable[Record]) -> list[Record]:
        """Records in the order in which they were written, as far as is known."""

        def when(record: Record) -> tuple[str, int]:
            place = self._place(record)
            return (place.stamp, place.line) if place is not None else ("", -1)

        return sorted(records, key=when)

    def _place(self, record: Record) -> _Place | None:
        return self._places.get(str(record["key"]))

    @staticmethod
    def _older(one: _Place, other: _Place) -> bool:
        if one.session == other.session:
            return one.line < other.line
        return one.stamp < other.stamp
