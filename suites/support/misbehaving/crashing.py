"""Mechanisms that misbehave when they are measured; given to a session as ``--with`` gives them."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch

from suites.support import isolated_tasks as tasks
from suites.support.misbehaving.core import ScaledBackward

PIDS = "ATTNBENCH_TEST_PIDS"
"""Environment variable: the file to which they write the ids of processes that they leave."""


class Behaved(torch.nn.Module):
    """Every token mapped by itself; `before` is what else happens, given the number of the call."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(d_in, d_out)
        self.calls = 0

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.before(self.calls)
        return self.after(self.map(x).masked_fill(~mask[..., None], 0), self.calls)

    def before(self, call: int) -> None:
        """What happens before the result is there."""

    def after(self, output: torch.Tensor, call: int) -> torch.Tensor:
        """What becomes of the result."""
        return output


class Hang(Behaved):
    """Never returns."""

    def before(self, call: int) -> None:
        # With the interpreter's lock held, so that no signal handler runs.
        ctypes.PyDLL(None).sleep(600)


class Segfault(Behaved):
    """Reads where nothing is."""

    def before(self, call: int) -> None:

        tasks.read_null()


class Nan(Behaved):
    """Returns NaN."""

    def after(self, output: torch.Tensor, call: int) -> torch.Tensor:

        return output.index_fill(0, torch.tensor([0]), float("nan"))


class LateNan(Behaved):
    """Returns NaN from the sixth call on: warm, and in the midst of being timed."""

    def after(self, output: torch.Tensor, call: int) -> torch.Tensor:

        return output * float("nan") if call > 5 else output


class NanGradient(Behaved):
    """Returns numbers, but its gradients are NaN."""

    def after(self, output: torch.Tensor, call: int) -> torch.Tensor:
        return ScaledBackward.apply(output, float("nan"))


class Greedy(Behaved):
    """Wants more memory than there is."""

    def before(self, call: int) -> None:

        torch.empty(2**50, dtype=torch.uint8)


class Daemon(Behaved):
    """Leaves a daemon behind, detached from everything."""

    def before(self, call: int) -> None:

        if call == 1:
            _note(tasks.detached())


class Twin(Behaved):
    """Forks, and both go on, so that two answers are sent."""

    def before(self, call: int) -> None:

        if call == 1 and os.fork() == 0:
            _note(os.getpid())


class Unprintable(Behaved):
    """Fails with a message that no terminal can show."""

    def before(self, call: int) -> None:
        raise FileNotFoundError("no weights in \udcff\udcfe.bin")  # as Python holds such names


def _note(pid: int) -> None:
    with Path(os.environ[PIDS]).open("a") as file:
        print(pid, file=file)
