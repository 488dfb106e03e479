"""Options of the bench suite: the same names on pytest's command line and on attnbench's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.case import parse_options
from harness.errors import UsageError
from harness.profile import Selection

DEFAULT_JOURNAL = "results"

PYTEST_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--profile", {"help": "quick (default), full, paper, sweep, models, threads or batch"}),
    ("--journal", {"default": DEFAULT_JOURNAL, "help": "journal folder (default: results)"}),
    ("--device", {"default": "auto", "help": "cpu, cuda or auto (default)"}),
    ("--with", {"action": "append", "default": [], "dest": "given", "metavar": "PKG.MODULE:FACTORY",
                "help": "a mechanism of your own; may be repeated"}),
    ("--only", {"action": "append", "default": [], "metavar": "NAME",
                "help": "mechanism or mechanism.implementation (@H: its heads); repeatable"}),
    ("--lengths", {"default": "", "help": "sequence lengths, e.g. 16,64,256"}),
    ("--batch", {"type": int, "help": "batch size"}),
    ("--width", {"default": "", "help": "d_in or d_in x d_out, e.g. 300x600"}),
    ("--heads", {"type": int, "help": "number of heads"}),
    ("--dtypes", {"default": "", "help": "f64, f32, bf16, f16, joined by commas"}),
    ("--passes", {"default": "", "help": "forward, training, joined by a comma"}),
    ("--settings", {"default": "", "help": "eager, 1-thread, compiled, padded, graphed, tf32 ..., "
                    "joined inside one case by '+' and between cases by ','"}),
    ("--option", {"action": "append", "default": [], "metavar": "NAME=VALUE",
                  "help": "option of your own mechanism's factory; may be repeated"}),
    ("--blocks", {"type": int, "help": "fresh interpreters (default: the profile's)"}),
)  # fmt: skip

LEAST_MEMORY = 16 * 2**20
"""Less is not told from an interpreter's own needs."""
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(i?)B", re.IGNORECASE)


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _positive(text: str, what: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise UsageError(f"{what}: given {text!r}; expected a positive whole number")
    return int(text)


def selection(values: Mapping[str, Any]) -> Selection:
    """Read the selection from option values, named as in `PYTEST_OPTIONS`.

    Raises
    ------
    UsageError
        If a value can't be read.
    """
    width = None
    if values["width"]:
        parts = values["width"].lower().split("x")
        if len(parts) > 2:
            raise UsageError(f"--width: given {values['width']!r}; expected e.g. 300 or 300x600")
        numbers = [_positive(part, "--width") for part in parts]
        width = (numbers[0], numbers[-1])
    for name in ("batch", "heads", "blocks"):
        if values[name] is not None and values[name] < 1:
            raise UsageError(f"--{name}: given {values[name]}; expected at least 1")
    return Selection(
        names=tuple(values["only"]),
        lengths=tuple(_positive(n, "--lengths") for n in _list(values["lengths"])),
        batch=values["batch"],
        width=width,
        heads=values["heads"],
        dtypes=_list(values["dtypes"]),
        phases=_list(values["passes"]),
        settings=_list(values["settings"]),
        options=parse_options(values["option"]),
        blocks=values["blocks"],
    )


def parse_bytes(text: str) -> int:
    """Read ``4GiB``, ``256 MiB`` or ``1.5GB``.

    Raises
    ------
    UsageError
    """
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--memory: given {text!r}; expected e.g. 4GiB or 512MiB")
    number, prefix, binary = match.groups()
    count = int(float(number) * (1024 if binary else 1000) ** ("KMGT".index(prefix.upper()) + 1))
    if count < LEAST_MEMORY:
        raise UsageError(f"--memory: given {text!r}; expected at least {LEAST_MEMORY // 2**20}MiB")
    return count


def journal_folder(text: str) -> Path:
    """The journal folder; a file of that name is a mistake.

    Raises
    ------
    UsageError
    """
    folder = Path(text).expanduser()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--journal: {folder} is a file; expected a folder")
    return folder
