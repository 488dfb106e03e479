"""The calls before the timed ones: what they took, compilation apart from the rest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from harness.measure.compiling import Compilations, gave_up
from reference_impls.mechanism import Unsupported

LEAST_CALLS = 3
LONG_CALL = 0.1
"""Seconds; a second call that takes longer than this has warmed everything up."""
VERY_LONG_CALL = 0.3
"""Seconds; so does a first one, whatever of it was paid for what is made once."""
MOST_COMPILING_CALLS = 4
"""What compiles in each of so many calls does not stop by itself; the clock will say so."""


@dataclass(frozen=True)
class WarmUp:
    """What the first calls took.

    Attributes
    ----------
    once : float
        Seconds of a warm call, the shortest.
    compile_seconds : float
    seconds : float
        All calls together, without `compile_seconds`.
    """

    once: float
    compile_seconds: float
    seconds: float


def warm_up(
    call: Callable[[], object], least: float, synchronize: Callable[[], None] | None = None
) -> WarmUp:
    """Call until warm: once or twice if that takes long, else more; longer while it compiles.

    Parameters
    ----------
    call : callable
    least : float
        Seconds to go on for, compilation not counted.
    synchronize : callable, optional
        Waits for what a call left to do.

    Raises
    ------
    Unsupported
        If torch.compile gives up.
    """
    begun = time.perf_counter()
    compile_seconds = 0.0
    warm_calls = compiling_calls = 0
    once = math.inf
    while True:
        ran, start = time.process_time(), time.perf_counter()
        with Compilations() as compilations:
            _call_compiled(call)
            if synchronize is not None:
                synchronize()
        end = time.perf_counter()
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
        own = 0.0 if synchronize is not None else min(end - start, time.process_time() - ran)
        if warm_calls == 1 and own > VERY_LONG_CALL:
            return WarmUp(end - start, compile_seconds, spent)
        # The first call pays for what is made once; the second is the first that counts as warm.
        if warm_calls >= 2:
            once = min(once, end - start)
            if once > LONG_CALL or (warm_calls >= LEAST_CALLS and spent > least):
                return WarmUp(once, compile_seconds, spent)


def _call_compiled(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception as error:
        if gave_up(error):
            raise Unsupported(
                "torch.compile gives up on it: it is compiled anew more often than "
                "torch._dynamo.config.recompile_limit allows"
            ) from error
        raise
