"""Where jobs are done: `local` (children of this process), `ray` (an existing Ray cluster).

An executor asks for the next job when it has room for one, so that what is to be done can be
decided as late as possible, and tells what became of each as soon as it is known. It writes no
record: that is the driver's, one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from harness.isolate import Outcome

PRELOAD = ("torch", "torch._dynamo", "harness.train.run")
"""What an interpreter imports once, for all jobs that are forked from it; torch's optimisers import
its compiler, which takes as long as torch itself."""
LIMIT_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Job:
    """A call to be made in a process of its own."""

    key: str  # unique among the jobs of an executor
    label: str  # for messages
    call: str  # ``"package.module:function"``.
    arguments: Mapping[str, Any]  # its keyword arguments, as JSON can hold them
    # Hash of the source that the call depends on; see `harness.experiments.design.run_code`.
    code: str = ""
    data: str = ""  # digest of the files that it reads; empty if none
    # Whether the function takes ``progress``, a file in which it says how far it is.
    reports: bool = True


@dataclass(frozen=True)
class Standing:
    """How far a job is."""

    seconds: float  # since it began
    # epoch, epochs: the current one, and how many there will be at most; 0 while it is loading.
    epoch: int = 0
    epochs: int = 0


Jobs = Iterator[Job | None]
"""What is to be done; None: nothing can be begun at the moment, ask again later."""
OnTick = Callable[[Mapping[str, Standing]], None]
"""Called about twice a second with what is known of the jobs under way, by key."""


class Executor(Protocol):
    """What does jobs; a context manager that leaves nothing running behind it."""

    @property
    def workers(self) -> int:
        """Jobs at a time."""

    def run(self, jobs: Jobs, on_tick: OnTick) -> Iterator[tuple[Job, Outcome]]:
        """Do all jobs, yielding each with its outcome, in the order in which they end."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *error: Any) -> None: ...
