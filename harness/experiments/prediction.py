"""How long runs will take, from what runs of their kind took."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from harness.experiments.costs import run_seconds
from harness.experiments.design import Run
from harness.records import schema
from harness.train.recipe import identity

DONE = ("ok", "diverged")
"""Statuses of runs whose time says something of others'."""

_Kind = tuple[str, str, str, str]


class Durations:
    """Times of finished runs, by model, task, recipe and vectors.

    Parameters
    ----------
    fingerprint : mapping
        Only times on this device count.
    workers : int
        Times with as many runs at a time count more than others: neighbours slow each other down.
    records : iterable of mapping
        Of a journal, of any kind.
    """

    def __init__(
        self, fingerprint: Mapping[str, Any], workers: int,
        records: Iterable[Mapping[str, Any]] = (),
    ) -> None:  # fmt: skip
        self._fingerprint = schema.digest(dict(fingerprint))
        self.workers = workers
        self._known: dict[_Kind, list[tuple[Any, float]]] = {}
        for record in records:
            self.add(record)

    def add(self, record: Mapping[str, Any]) -> None:
        """Note a run; what is none, or of another device, is passed over."""
        if record["kind"] != "run" or record["status"] not in DONE:
            return
        seconds = run_seconds(record)
        if record.get("fingerprint") != self._fingerprint or seconds is None:
            return
        kind = (
            record["model"], str(record.get("task")),
            schema.digest(identity(record.get("recipe") or {})), str(record.get("vectors")),
        )  # fmt: skip
        self._known.setdefault(kind, []).append((record.get("workers"), seconds))

    def of(self, run: Run) -> float | None:
        """Seconds that such a run takes; None while none is known."""
        return self._mean(self._known.get(_kind(run), []))

    def guess(self, run: Run) -> float | None:
        """The same; where none is known, what runs of its task take, or any."""
        found = self.of(run)
        if found is not None:
            return found
        like = [t for kind, times in self._known.items() if kind[1] == run.task for t in times]
        return self._mean(like or [t for times in self._known.values() for t in times])

    def _mean(self, times: list[tuple[Any, float]]) -> float | None:
        alike = [seconds for workers, seconds in times if workers == self.workers]
        chosen = alike or [seconds for _, seconds in times]
        return statistics.fmean(chosen) if chosen else None


def _kind(run: Run) -> _Kind:
    recipe = schema.digest(identity(run.recipe.as_dict()))
    return str(run.model), run.task, recipe, str(run.arguments["vectors"])


def wall_seconds(durations: Iterable[float], workers: int) -> float:
    """When the last of these runs ends, if each begins in its turn as soon as a worker is free."""
    free_at = [0.0] * workers
    for seconds in durations:
        heapq.heapreplace(free_at, free_at[0] + seconds)
    return max(free_at)
