"""What torch.compile does while a case is called: how often, and for how long."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self


class Compilations:
    """Counts compilations, and their seconds, while it is entered.

    Every trace of a frame counts, with or without a result (a graph break, a limit), and so does a
    backward graph, which is compiled in the first backward pass. Nested ones count once.

    Attributes
    ----------
    count : int
    seconds : float
        Tracing and code generation; triton's autotuning at a kernel's first launch is not part.

    Notes
    -----
    ``torch._dynamo`` costs a second to import, so a process that has not loaded it is not made
    to: nothing can have been compiled there.
    """

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self._depth = 0
        self._began = 0.0
        self._frames = 0
        self._handler: Any = None

    def __enter__(self) -> Self:
        self._frames = _frames()
        if "torch._dynamo" in sys.modules:
            from torch._dynamo.callback import callback_handler

            self._handler = callback_handler
            self._handler.register_start_callback(self._start)
            self._handler.register_end_callback(self._end)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A frame on which dynamo gives up at once calls nobody, but it is in the counter.
        self.count = max(self.count, _frames() - self._frames)
        # torch.compiler.reset, called by a module, takes all callbacks away.
        if self._handler is not None and self._start in self._handler.start_callbacks:
            self._handler.remove_start_callback(self._start)
            self._handler.remove_end_callback(self._end)

    def _start(self, *_: object) -> None:
        self._depth += 1
        if self._depth == 1:
            self.count += 1
            self._began = time.perf_counter()

    def _end(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began


def _frames() -> int:
    """Frames that dynamo has tried to compile in this process."""
    if "torch._dynamo" not in sys.modules:
        return 0
    from torch._dynamo.utils import counters

    return int(counters["frames"]["total"])


def gave_up(error: BaseException) -> bool:
    """Whether torch.compile met its limit of recompilations (see `harness.build`)."""
    return type(error).__name__ == "FailOnRecompileLimitHit"
