"""Many calls on a few interpreters: the only place that runs tasks side by side."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from harness.isolate.interpreter import Interpreter, Mode
from harness.isolate.outcome import Limits, Outcome

T = TypeVar("T")
POLL_SECONDS = 0.5
"""How often `Pool.run` tells what is under way."""


@dataclass(frozen=True)
class Call:
    """What one child is to do: see `Interpreter.run`."""

    function: str
    arguments: Mapping[str, Any]
    limits: Limits | None = None


class _Slot:
    """Room for one call at a time: an interpreter that starts when it is first needed."""

    def __init__(self, start: Callable[[], Interpreter]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._interpreter: Interpreter | None = None
        self._closed = False

    def run(self, call: Call) -> Outcome:
        """Do one call, in a thread of the pool; many interpreters start side by side so."""
        with self._lock:
            if self._closed:
                return Outcome("crash", None, "the pool was closed")
            if self._interpreter is None:
                self._interpreter = self._start()
        return self._interpreter.run(call.function, call.arguments, call.limits)

    def close(self) -> None:
        """Kill what runs here."""
        with self._lock:
            self._closed = True
            if self._interpreter is not None:
                self._interpreter.close()


class Pool:
    """Interpreters that do calls side by side; leaving it kills whatever runs.

    Parameters
    ----------
    slots : int or sequence of mapping
        How many calls at a time; or for each of them the environment variables of its interpreter.
    mode, preload, env
        Of all interpreters, see `Interpreter`.
    """

    def __init__(
        self,
        slots: int | Sequence[Mapping[str, str]],
        mode: Mode = "fork",
        *,
        preload: Sequence[str] = ("torch",),
        env: Mapping[str, str] | None = None,
    ) -> None:
        each = [{}] * slots if isinstance(slots, int) else slots
        self._slots = [
            _Slot(partial(Interpreter, mode, preload=preload, env={**(env or {}), **own}))
            for own in each
        ]

    @property
    def workers(self) -> int:
        """Calls at a time."""
        return len(self._slots)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._threads = ThreadPoolExecutor(self.workers)
            # Left in reverse: interpreters first, or after ctrl-C the threads would wait for them.
            stack.callback(self._threads.shutdown, cancel_futures=True)
            for slot in self._slots:
                stack.callback(slot.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(
        self,
        calls: Iterable[tuple[T, Call] | None],
        on_tick: Callable[[Sequence[tuple[T, float]]], None] = lambda under_way: None,
        ordered: bool = False,
    ) -> Iterator[tuple[T, Outcome]]:
        """Do all calls and yield what became of each as soon as it is known.

        Parameters
        ----------
        calls : iterable of (thing, Call) or None
            The next one is asked for when there is room for it, so that what is to be done can be
            decided as late as possible; None says that nothing can be begun at the moment.
        on_tick : callable
            Called about twice a second, and whenever a call ends, with what is under way: each
            thing, and for how many seconds.
        ordered : bool
            Whether to yield in the order of `calls`, each as soon as all before it are known.

        Raises
        ------
        StartError
            If an interpreter does not start.
        """
        upcoming = iter(calls)
        free = deque(self._slots)
        running: dict[Future[Outcome], tuple[int, T, _Slot, float]] = {}
        held: dict[int, tuple[T, Outcome]] = {}
        begun = yielded = 0
        more = True
        while more or running:
            while more and free:
                try:
                    wanted = next(upcoming)
                except StopIteration:
                    more = False
                    break
                if wanted is None:
                    break
                (thing, call), slot = wanted, free.popleft()
                future = self._threads.submit(slot.run, call)
                running[future] = begun, thing, slot, time.monotonic()
                begun += 1
            if not running and more:
                time.sleep(POLL_SECONDS)
            done, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                place, thing, slot, _ = running.pop(future)
                free.append(slot)
                if ordered:
                    held[place] = thing, future.result()
                else:
                    yield thing, future.result()
            while yielded in held:
                yield held.pop(yielded)
                yielded += 1
            now = time.monotonic()
            on_tick([(thing, now - began) for _, thing, _, began in running.values()])


def run_all(
    calls: Sequence[tuple[T, Call]],
    workers: int,
    mode: Mode = "fork",
    *,
    preload: Sequence[str] = ("torch",),
    env: Mapping[str, str] | None = None,
    ordered: bool = False,
) -> Iterator[tuple[T, Outcome]]:
    """Do calls in a `Pool` of at most so many interpreters; see `Pool.run`."""
    if calls:
        with Pool(min(workers, len(calls)), mode, preload=preload, env=env) as pool:
            yield from pool.run(calls, ordered=ordered)
