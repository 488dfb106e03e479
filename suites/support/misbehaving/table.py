"""What notices which module of the family; printed, it is the table of docs/verify.md."""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import torch

PACKAGE = "suites.support.misbehaving"
BEGIN = "<!-- misbehaving: python -m suites.support.misbehaving.table -->"
END = "<!-- end of misbehaving -->"


@dataclass(frozen=True)
class Noticed:
    """One module, the command that notices it, and why."""

    module: str  # ``cheats:MemoByAddress``
    command: str  # "verify", "bench forward" or "bench training"
    # Name in ``CHECKS`` of `harness.verify.unaided.judge` or of `harness.measure.checks`; two
    # joined by " or " where the scheduler decides.
    check: str
    reason: str  # what was printed once; other runs differ in numbers alone
    dtype: str = "f32"
    length: int = 64  # N of what is timed

    def __str__(self) -> str:
        return f"{self.module.partition(':')[2]}-{self.command}".replace(" ", "-")

    @property
    def name(self) -> str:
        """As a case names it."""
        return f"{self.module.partition(':')[2]}.module"

    @property
    def given(self) -> list[str]:
        """What ``--with`` gets."""
        return [f"{PACKAGE}.{self.module}"]


def without_numbers(reason: str) -> str:
    """The words of a reason; numbers differ from machine to machine."""
    return re.sub(r"(?<!\w)-?\d+(\.\d+)?(e[+-]?\d+)?(?!\w)", "#", reason)


def does(module: str) -> str:
    """What a module does, in a line: the first of its docstring."""
    file, _, name = module.partition(":")
    found = getattr(importlib.import_module(f"{PACKAGE}.{file}"), name)
    return (inspect.getdoc(found) or "").partition("\n")[0].removesuffix(".").replace("``", "`")


def honest() -> list[str]:
    """The modules that look suspicious and must pass."""
    file = importlib.import_module(f"{PACKAGE}.honest")
    return [
        f"honest:{name}"
        for name, held in vars(file).items()
        if inspect.isclass(held)
        and issubclass(held, torch.nn.Module)
        and held.__module__ == file.__name__
    ]


FAMILY = tuple(
    Noticed(**one)
    for one in tomllib.loads(Path(__file__).with_name("family.toml").read_text(encoding="utf-8"))[
        "noticed"
    ]
)


def markdown() -> str:
    """A row for everything that is noticed, and for every module that must not be."""
    lines = [
        "| module | what it does | noticed by | check | reason printed |",
        "|---|---|---|---|---|",
    ]
    for one in FAMILY:
        cells = (f"`{one.module}`", does(one.module), one.command, f"`{one.check}`", one.reason)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += [f"| `{module}` | {does(module)} | must pass | | |" for module in honest()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
