"""Sessions of made-up measurements, real in all else, and a process that runs them to be killed.

``python -m suites.support.sessions`` loads everything once, then forks a driver for every journal
folder that it reads from stdin; it prints the driver's process id, and how it ended. With arguments
it is ``attnbench`` with them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from harness.case import Case, Problem
from harness.measure import blocks, call, session
from harness.measure.session import Session
from harness.profile import load_profile
from harness.registry import Registry
from suites.support.command_line import ROOT, environment

HERE = "suites.support.sessions_tasks:"
FINGERPRINT = {"device": "cpu", "model": "made up", "torch": "2", "allocator": "", "threads": 1}


@dataclass
class MadeUpSession(Session):
    """Its margins are made up too."""

    margin_call: str = f"{HERE}margin_case"


def case(name: str, length: int = 8, phase: str = "forward", heads: int = 0) -> Case:
    """A small case of ``mechanism.implementation``."""
    mechanism, _, implementation = name.partition(".")
    problem = Problem(2, length, 24, 24, heads, "f32", phase, "cpu")
    return Case(mechanism, implementation, problem, ("1-thread",))


def made_up(folder: Path, count: int = 2, lengths: int = 1, **profile: Any) -> Session:
    """A session of `count` blocks: the baseline, its control and one more at every length."""
    cases = []
    for length in range(8, 8 + lengths):
        base = case("multi_head.sdpa", length, heads=8)
        cases += [base, base.control(), case("multi_cnn.conv", length)]
    chosen = replace(
        load_profile("quick", "cpu"),
        blocks=count,
        memory_blocks=1,
        limit_seconds=30,
        budget_seconds=None,
        **profile,
    )
    return MadeUpSession(cases, chosen, Registry(), folder, FINGERPRINT)


def _preload(tasks: Any, registry: Any) -> tuple[str, ...]:
    return (HERE.removesuffix(":"),)


INSTEAD: list[tuple[Any, str, Any]] = [
    (session, "Session", MadeUpSession),
    (blocks, "preload", _preload),
    (call, "TIME_CALL", f"{HERE}time_case"),
    (call, "MEMORY_CALL", f"{HERE}memory_case"),
    (call, "PEAKS_CALL", f"{HERE}peaks_case"),
]
"""For `harness.measure`: made-up measurements, which need nothing loaded."""


def ignore(step: Any, record: Mapping[str, Any]) -> None:
    """Show nothing."""


class Launcher:
    """Starts drivers within milliseconds: a process that has loaded all of it forks them."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "suites.support.sessions"],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()  # it has loaded all of it
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate(timeout=60)

    def start(self, folder: Path) -> int:
        """Run what is missing of `made_up` in a folder; the driver's process id."""
        assert self._process.stdin is not None
        print(folder, file=self._process.stdin, flush=True)
        return self._answer()

    def wait(self) -> int:
        """Exit code of the driver that was started last."""
        return self._answer()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def main() -> None:
    """Fork a driver per line of stdin, or run a command."""
    for module, name, value in INSTEAD:
        setattr(module, name, value)
    if sys.argv[1:]:
        from harness import cli

        sys.exit(cli.run(sys.argv[1:]))
    print(os.getpid(), flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _drive(Path(line.rstrip("\n")))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _drive(folder: Path) -> None:
    try:
        blocks.run(made_up(folder), ignore, {})
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
