"""Cores and threads of a sample: which they were, whether that held, and waiting for them.

On a busy machine a wall clock says how often the scheduler took the core away, not what a call
costs. The kernel counts, per thread, the nanoseconds in which it could have run but had no core
(run-queue wait, second field of ``schedstat``). Taken off the wall time, what is left is the time
the call ran or slept: a call that waits for a disk, a lock or another thread still pays for it,
which a clock of CPU time would forgive.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import torch

from harness.build import cores_available
from harness.isolate import Wrong

Waited = Callable[[], float]
"""Seconds that this thread has waited for a core since it began."""


def not_waiting() -> float:
    """No waiting is known of: wall time is taken as it is."""
    return 0.0


def waiting_of_this_thread() -> Waited:
    """Return a reader of this thread's waiting; `not_waiting` where the kernel counts none.

    The reader belongs to the thread that asked for it, and reads in about a microsecond.
    """
    try:
        descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return not_waiting  # not Linux, or a kernel without the count

    def waited() -> float:
        return int(os.pread(descriptor, 96, 0).split()[1]) * 1e-9

    return waited


def refuse_other_threads(wanted: int, cores: Sequence[int] | None) -> None:
    """Raise if what was set before the samples is not what stands after them.

    Parameters
    ----------
    wanted : int
        Threads that the case's settings ask for.
    cores : sequence of int or None
        From `harness.build.cores_available`, before the samples.

    Raises
    ------
    Wrong
    """
    threads = torch.get_num_threads()
    if threads != wanted:
        raise Wrong(f"ran with {threads} threads; {wanted} were set", {"threads": threads})
    now = cores_available()
    if now != cores:
        raise Wrong(f"ended on cores {ranges(now or ())}; began on {ranges(cores or ())}")


def ranges(numbers: Sequence[int]) -> str:
    """Write sorted numbers in short.

    >>> ranges([0, 1, 2, 3, 8])
    '0-3,8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
