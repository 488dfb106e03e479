"""Devices that work asynchronously, without a GPU: one in made-up time, one in a thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable


class SimulatedEvent:
    """A mark in the queue of a `Simulated`; reached when that has come so far."""

    def __init__(self, device: Simulated) -> None:
        self.device = device
        self.at: float | None = None

    def record(self) -> None:
        self.device.queued.append(("event", self._reach))

    def _reach(self) -> None:
        self.at = self.device.now

    def elapsed_time(self, end: SimulatedEvent) -> float:
        if self.at is None or end.at is None:
            raise RuntimeError("device not ready")
        return (end.at - self.at) * 1e3


class Simulated:
    """Costs what it is told, in time of its own, and does nothing before it is waited for.

    Parameters
    ----------
    flush_cost : float
        Seconds that a flush of the cache takes.
    """

    def __init__(self, flush_cost: float = 0.0) -> None:
        self.flush_cost = flush_cost
        self.now = 0.0
        self.queued: list[tuple[str, Callable[[], None]]] = []
        self.done: list[str] = []

    def work(self, cost: float, name: str = "work") -> None:
        """Queue work of so many seconds."""
        self.queued.append((name, lambda: self._spend(cost)))

    def _spend(self, cost: float) -> None:
        self.now += cost

    def event(self) -> SimulatedEvent:
        return SimulatedEvent(self)

    def flush(self) -> None:
        self.work(self.flush_cost, "flush")

    def synchronize(self) -> None:
        for name, action in self.queued:
            action()
            self.done.append(name)
        self.queued.clear()
        self.done.append("synchronize")


class ThreadEvent:
    """A mark in the queue of a `Threaded`, stamped by the thread that works there."""

    def __init__(self, device: Threaded) -> None:
        self.device = device
        self.at: float | None = None

    def record(self) -> None:
        self.device.put(self._reach)

    def _reach(self) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: ThreadEvent) -> float:
        if self.at is None or end.at is None:
            raise RuntimeError("device not ready")
        return (end.at - self.at) * 1e3


class Threaded:
    """Work in real time, in a thread; `put` returns at once, as the launch of a kernel does."""

    def __init__(self, flush_seconds: float = 0.0) -> None:
        self.flush_seconds = flush_seconds
        self._work: queue.Queue[Callable[[], object]] = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            action = self._work.get()
            action()
            self._work.task_done()

    def put(self, action: Callable[[], object]) -> None:
        """Queue something to do."""
        self._work.put(action)

    def event(self) -> ThreadEvent:
        return ThreadEvent(self)

    def flush(self) -> None:
        self.put(lambda: time.sleep(self.flush_seconds))

    def synchronize(self) -> None:
        self._work.join()
