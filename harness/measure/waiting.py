"""How long this thread has waited for a core: what other processes add to a time. In children.

On a busy machine a wall clock says how often the scheduler took the core away, not what a call
costs. The kernel counts, per thread, the nanoseconds in which it could have run but had no core
(run-queue wait, second field of ``schedstat``). Taken off the wall time, what is left is the time
the call ran or slept: a call that waits for a disk, a lock or another thread still pays for it,
which a clock of CPU time would forgive.
"""

from __future__ import annotations

import os
from collections.abc import Callable

Waited = Callable[[], float]
"""Seconds that this thread has waited for a core since it began."""


def nothing() -> float:
    """No waiting is known of: wall time is taken as it is."""
    return 0.0


def of_this_thread() -> Waited:
    """Return a reader of this thread's waiting, or `nothing` where the kernel does not count it.

    The reader belongs to the thread that asked for it, and reads in about a microsecond.
    """
    try:
        descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return nothing  # not Linux, or a kernel without the count

    def waited() -> float:
        return int(os.pread(descriptor, 96, 0).split()[1]) * 1e-9

    return waited
