"""Interpreters that the commands of one test process share: to import torch takes each 2 s.

A task still is a child of its own. Who begins interpreters in earnest are measured blocks, commands
in processes of their own, and the tests of `harness.isolate`.
"""

from __future__ import annotations

import atexit
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self
from unittest import mock

from harness.experiments import buildable, executors, look
from harness.isolate import Interpreter, Limits, Outcome, interpreter, pool
from harness.isolate.processes import MARKER
from harness.verify import run

PRELOAD = (
    *executors.PRELOAD,
    "scipy.stats",
    "harness.verify.check",
    "reference_impls.mtsa.fused",  # with it and the next one all kernels
    "reference_impls.msmsa.windowed",
)
_idle: list[Interpreter] = []


class Lent:
    """In an `Interpreter`'s place: an idle one, or a new one that is kept when this is closed."""

    def __init__(
        self, mode: str, *, preload: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        assert (mode, bool(env)) == ("fork", False), "that wants an interpreter of its own"
        self._busy = False
        try:
            self._own = _idle.pop()  # not looked at first: threads of a pool begin theirs at once
        except IndexError:
            self._own = Interpreter("fork", preload=PRELOAD)
            atexit.register(self._own.close)

    def run(
        self,
        call: str,
        arguments: Mapping[str, Any],
        limits: Limits | None = None,
        mallopt: None = None,
    ) -> Outcome:
        """Run a task as if the interpreter had been begun now, and here."""
        now = {"folder": str(Path.cwd()), "path": sys.path, "environment": dict(os.environ)}
        told = {"call": call, "given": dict(arguments), **now}
        self._busy = True
        outcome = self._own.run(f"{__name__}:at", told, limits)
        self._busy = False
        return outcome

    def close(self) -> None:
        """Leave it to others; where it is at work, or what it did was interrupted, kill it."""
        if self._busy:
            self._own.close()
        elif self._own not in _idle:
            _idle.append(self._own)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def at(
    call: str,
    given: Mapping[str, Any],
    folder: str,
    path: Sequence[str],
    environment: Mapping[str, str],
) -> Any:
    """Do a call where and as the driver stands. Runs in a child."""
    os.chdir(folder)
    sys.path[:] = path
    marker = os.environ[MARKER]  # by which what it starts is found
    os.environ.clear()
    os.environ.update({**environment, MARKER: marker})
    return pkgutil.resolve_name(call)(**given)


def _for_one_task(**options: Any) -> Lent | Interpreter:
    """What `harness.isolate.run` begins: one for another revision or Python is its own."""
    return Interpreter(**options) if options else Lent("fork")


@contextmanager
def interpreters() -> Iterator[None]:
    """Meanwhile all but measured blocks borrow theirs."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(interpreter, "Interpreter", _for_one_task))
        for module in (buildable, look, pool, run):
            stack.enter_context(mock.patch.object(module, "Interpreter", Lent))
        yield
