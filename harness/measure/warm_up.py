"""The calls before the timed ones: what they took, and what torch.compile did of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any, Self

from reference_impls.mechanism import Unsupported

LEAST_CALLS = 3
LONG_CALL = 0.1
"""Seconds; a second call that takes longer than this has warmed everything up."""
VERY_LONG_CALL = 0.3
"""Seconds; so does a first one, whatever of it was paid for what is made once."""
MOST_COMPILING_CALLS = 4
"""What compiles in each of so many calls does not stop by itself; the clock will say so."""
GAVE_UP = (
    "torch.compile gives up on it: it is compiled anew more often than "
    "torch._dynamo.config.recompile_limit allows"
)


class Compilations:
    """Counts compilations, and their seconds, while it is entered.

    Every trace of a frame counts, with or without a result (a graph break, a limit), and so does a
    backward graph, which is compiled in the first backward pass. Nested ones count once.

    Its ``seconds`` are those of tracing and code generation; triton's autotuning at a kernel's
    first launch is not part. ``torch._dynamo`` costs a second to import, so a process that has not
    loaded it is not made to: nothing can have been compiled there.
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

    def __exit__(self, *error: object) -> None:
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
            self._began = perf_counter()

    def _end(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += perf_counter() - self._began


def _frames() -> int:
    """Frames that dynamo has tried to compile in this process."""
    if "torch._dynamo" not in sys.modules:
        return 0
    from torch._dynamo.utils import counters

    return int(counters["frames"]["total"])


def gave_up(error: BaseException) -> bool:
    """Whether torch.compile met its limit of recompilations (see `harness.build`)."""
    return type(error).__name__ == "FailOnRecompileLimitHit"


@dataclass(frozen=True)
class WarmUp:
    """What the first calls took: the shortest warm one, compiling, and all without compiling."""

    once: float
    compile_seconds: float
    seconds: float


def warm_up(
    call: Callable[[], object], least: float, synchronize: Callable[[], None] | None = None
) -> WarmUp:
    """Call until warm: once or twice if that takes long, else more; longer while it compiles.

    It goes on for at least so many seconds, compilation not counted.

    Raises
    ------
    Unsupported
        If torch.compile gives up.
    """
    begun = perf_counter()
    compile_seconds = 0.0
    warm_calls = compiling_calls = 0
    once = math.inf
    while True:
        ran, start = process_time(), perf_counter()
        with Compilations() as compilations:
            try:
                call()
            except Exception as error:
                if gave_up(error):
                    raise Unsupported(GAVE_UP) from error
                raise
            if synchronize is not None:
                synchronize()
        end = perf_counter()
        compile_seconds += compilations.seconds
        compiling_calls += compilations.count > 0
        spent = end - begun - compile_seconds
        if compiling_calls == MOST_COMPILING_CALLS:
            return WarmUp(end - start, compile_seconds, spent)
        if compilations.count:
            # Whatever it took says nothing of a warm call.
            warm_calls = 1
            continue
        warm_calls += 1
        # By its own time: one that only waited for a core, or for a GPU, says nothing.
        own = 0.0 if synchronize is not None else min(end - start, process_time() - ran)
        if warm_calls == 1 and own > VERY_LONG_CALL:
            return WarmUp(end - start, compile_seconds, spent)
        # The first call pays for what is made once; the second is the first that counts as warm.
        if warm_calls >= 2:
            once = min(once, end - start)
            if once > LONG_CALL or (warm_calls >= LEAST_CALLS and spent > least):
                return WarmUp(once, compile_seconds, spent)
