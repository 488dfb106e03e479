"""What is run on a GPU, part by part: each is a command of its own that goes on where it was."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from harness.registry import Registry

LARGE = ("mtsa", "mtsa_released", "multi_head", "msmsa")
"""Verified at large shapes: Triton, FlexAttention and tiles of each, and torch's own kernels."""
SANITIZER = ("compute-sanitizer", "--target-processes", "all", "--error-exitcode", "9")
SANITIZED = ("mtsa.fused_triton", "--dtypes", "bf16")
SPENDING = ("--only", "mtsa.fused@8", "--only", "multi_cnn.conv", "--lengths", "64,512")
"""What the quick profile has no time to tell the energy of."""
LONGEST = ("mtsa.fused@8", "multi_head.sdpa@8", "disa.chunked", "multi_cnn.conv")


@dataclass(frozen=True)
class Part:
    """A command, in the program's folder.

    Attributes
    ----------
    name : str
    module : str
        What Python runs.
    arguments : tuple of str
    before : tuple of str
        A program that runs Python, with its own arguments; where it is not installed the part is
        left out, by name.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    before: tuple[str, ...] = ()

    def missing(self) -> str:
        """Why it can't be run here; empty where it can."""
        if self.before and shutil.which(self.before[0]) is None:
            return f"{self.before[0]} is not installed"
        return ""

    def command(self, python: str, device: str, folder: str) -> list[str]:
        """The whole command line."""
        where = ("--device", device, "--journal", folder)
        return [*self.before, python, "-m", self.module, *self.arguments, *where]


def parts(device: str) -> Iterator[Part]:
    """All parts in their order: what is cheap, and what the others stand on, comes first."""
    yield Part("doctor", "harness", ("doctor",))
    known = Registry().mechanisms.values()
    there = [m.name for m in known if any(device in i.devices for i in m.implementations)]
    for name in there:
        yield Part(f"verify {name}", "harness", ("verify", name, "--determinism"))
    for name in LARGE:
        yield Part(f"large {name}", "harness", ("verify", name, "--large"))
    yield Part("sanitizer", "harness", ("verify", *SANITIZED), SANITIZER)
    yield Part("bench", "harness", ("bench", "--profile", "quick"))
    yield Part("energy", "harness", ("bench", "--profile", "paper", *SPENDING))
    yield Part("goals", "suites.programs.goals", ())
    frontier = ("frontier", *LONGEST, "--limit", "65536", "--dtypes", "bf16")
    yield Part("frontier", "harness", frontier)
