"""Mechanisms that misbehave when they are measured; given to a session as ``--with`` gives them."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import torch

from suites.support import isolated_tasks as tasks

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
        """Sleep with the interpreter's lock held, so that no signal handler runs."""
        ctypes.PyDLL(None).sleep(600)


class Segfault(Behaved):
    """Reads where nothing is."""

    def before(self, call: int) -> None:
        """Read address 0."""
        tasks.read_null()


class Nan(Behaved):
    """Returns NaN."""

    def after(self, output: torch.Tensor, call: int) -> torch.Tensor:
        """Spoil one value."""
        return output.index_fill(0, torch.tensor([0]), float("nan"))


class LateNan(Behaved):
    """Returns NaN from the sixth call on: warm, and in the midst of being timed."""

    def after(self, output: torch.Tensor, call: int) -> torch.Tensor:
        """Spoil what is timed only."""
        return output * float("nan") if call > 5 else output


class _Spoilt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * float("nan")


class NanGradient(Behaved):
    """Returns numbers, but its gradients are NaN."""

    def after(self, output: torch.Tensor, call: int) -> torch.Tensor:
        """Spoil the way back."""
        return _Spoilt.apply(output)


class Greedy(Behaved):
    """Wants more memory than there is."""

    def before(self, call: int) -> None:
        """Ask for a pebibyte."""
        torch.empty(2**50, dtype=torch.uint8)


class Daemon(Behaved):
    """Leaves a daemon behind, detached from everything."""

    def before(self, call: int) -> None:
        """Start it once and note its process id."""
        if call == 1:
            _note(tasks.detached())


class Twin(Behaved):
    """Forks, and both go on, so that two answers are sent."""

    def before(self, call: int) -> None:
        """Fork once; the twin notes its process id."""
        if call == 1 and os.fork() == 0:
            _note(os.getpid())


class Unprintable(Behaved):
    """Fails with a message that no terminal can show."""

    def before(self, call: int) -> None:
        """Name a file that is no UTF-8, as Python holds such names."""
        raise FileNotFoundError("no weights in \udcff\udcfe.bin")


def _note(pid: int) -> None:
    with Path(os.environ[PIDS]).open("a") as file:
        print(pid, file=file)
