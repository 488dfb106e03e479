"""Limits and outcomes, and how an exception or a death is read as one."""

from __future__ import annotations

import math
import re
import signal
from dataclasses import dataclass
from typing import Any, Literal

from reference_impls.mechanism import Unsupported

Status = Literal["ok", "oom", "timeout", "unsupported", "wrong", "crash"]
USAGE = "usage"
"""`Outcome.error` of a mistake of the user's."""

TAIL = 2000
"""Characters of a traceback, or of what a dead task left on stderr, that are kept."""

_MEMORY = re.compile(
    r"out of memory|bad_alloc|DefaultCPUAllocator|MemoryError|_STATUS_ALLOC_FAILED"
    r"|(can't|cannot|could not|failed to) allocate",
    re.IGNORECASE,
)
# Under a limit on data a refused thread stack is a refusal of memory; without one it need not be.
_THREAD = re.compile(r"can't start new thread|Thread creation failed|pthread_create failed")
_NO_KERNEL = re.compile(r"not implemented for")
# By name: a child may run another revision's mechanisms, or a torch that has no such class.
_MISTAKES = {"UsageError", "BadOption"}
_NOT_COMPILED = {"InvalidCxxCompiler", "FailOnRecompileLimitHit"}
"""What can't be compiled here (no C++ compiler, more shapes than are allowed): nothing broke."""
_FATAL = "Fatal Python error"


@dataclass(frozen=True)
class Limits:
    """What a task may use.

    Raises
    ------
    ValueError
        If a limit is not positive and finite.
    """

    seconds: float = 60.0  # wall time, after which the task and all it started are killed
    # Head-room of RLIMIT_DATA above what the process has before the call; None is no limit. Linux
    # only; elsewhere a task with this limit is ``unsupported``.
    data_bytes: int | None = None

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise ValueError(f"given seconds={self.seconds}; expected a positive, finite number")
        if self.data_bytes is not None and self.data_bytes <= 0:
            raise ValueError(f"given data_bytes={self.data_bytes}; expected a positive number")


@dataclass(frozen=True)
class Outcome:
    """What became of a task."""

    status: Status  # ``ok``, ``oom``, ``timeout``, ``unsupported``, ``wrong`` or ``crash``
    # What the task returned (``ok``), or `value` of what it raised, where that is a `Wrong` or an
    # `Unsupported`; None otherwise.
    value: Any = None
    detail: str = ""  # one line; empty when ok
    # Wall time of the whole task, the fork included; neither a fresh interpreter's start is, nor
    # how long it takes to take apart what it held.
    seconds: float = 0.0
    traceback: str = ""  # end of the Python traceback, or of stderr where the process died
    # What was raised: ``usage`` for a mistake of the user's (`detail` is its message then), else
    # the name of the exception's class; empty where nothing was.
    error: str = ""


class Wrong(Exception):
    """A task found its result wrong: why, in one line, and what travels as `Outcome.value`."""

    def __init__(self, detail: str = "", value: Any = None) -> None:
        super().__init__(detail)
        self.value = value


def one_line(text: str) -> str:
    """First line with something in it, at most 300 characters, all of which can be printed."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]
    # A file name that is no UTF-8 holds half surrogate pairs, and no terminal takes them.
    return line.encode("utf-8", "replace").decode()


def kind_of(error: BaseException) -> str:
    """`Outcome.error` of what was raised."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return USAGE if names & _MISTAKES else type(error).__name__


def of_exception(error: BaseException, limited: bool) -> tuple[Status, str]:
    """Status and detail of a task that raised, perhaps while `Limits.data_bytes` was in force."""
    text = str(error)
    line = one_line(text)
    if isinstance(error, Wrong):
        return "wrong", line
    if isinstance(error, Unsupported):
        return "unsupported", line or "Unsupported"
    if kind_of(error) == USAGE:
        return "crash", line or type(error).__name__
    detail = f"{type(error).__name__}: {line}"
    # What torch's compiler raises wraps what it met.
    if type(getattr(error, "inner_exception", error)).__name__ in _NOT_COMPILED:
        return "unsupported", detail
    # By name and message, because torch may not be loaded and most of its allocators raise a
    # plain RuntimeError.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "oom", detail
    if isinstance(error, RuntimeError | OSError) and (
        _MEMORY.search(text) or (limited and _THREAD.search(text))
    ):
        return "oom", detail
    if isinstance(error, NotImplementedError) or (
        isinstance(error, RuntimeError) and _NO_KERNEL.search(text)
    ):
        return "unsupported", detail
    return "crash", detail


def of_death(code: int, stderr: str, limited: bool, oom_killed: bool) -> tuple[Status, str]:
    """Status and detail of a process that ended without an answer.

    By its exit code, or minus the signal's number, the end of what it said on stderr, whether
    `Limits.data_bytes` was in force, and whether the kernel killed for lack of memory meanwhile.
    """
    how = death(code)
    if code == -signal.SIGKILL and oom_killed:
        return "oom", f"{how}: the kernel ran out of memory"
    # faulthandler's frames belong in the traceback; and what a task said long before it died
    # says nothing of its death.
    said = stderr.partition(_FATAL)[0].strip().splitlines()[-3:]
    for line in said:
        if code != -signal.SIGKILL and (_MEMORY.search(line) or (limited and _THREAD.search(line))):
            return "oom", f"{how}: {one_line(line)}"
    return "crash", f"{how}: {one_line(said[-1])}" if said else how


def death(code: int) -> str:
    """Read an exit code as words, as in ``killed by SIGSEGV`` or ``ended with exit code 3``."""
    if code >= 0:
        return f"ended with exit code {code} and no result"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def tail(text: str) -> str:
    """End of a traceback or of stderr; of faulthandler's report the beginning."""
    before, fatal, report = text.partition(_FATAL)
    if not fatal:
        return text.strip()[-TAIL:]
    return (before[-TAIL // 2 :] + fatal + report).strip()[:TAIL]
