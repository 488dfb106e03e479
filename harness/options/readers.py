"""Texts of options and their values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from harness.case import DTYPES, PHASES, parse_options, setting, settings
from harness.errors import UsageError
from harness.json_file import check_json
from harness.options.declare import Expected, Reader
from harness.profile import load_profiles

T = TypeVar("T")
LEAST_MEMORY = 16 * 2**20
"""Less is not told from an interpreter's own needs."""
MOST_SEEDS = MOST_BLOCKS = 10_000
LARGEST_SEED = 2**32 - 1
LARGEST_SIZE = 2**63 - 1
"""That torch can count."""
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(i?)B", re.IGNORECASE)
_COMMAS = re.compile(r",(?![^\[]*\])")
"""Those outside of brackets."""


@dataclass(frozen=True)
class Amount:
    """A positive number, and how it was written: ``0.5%`` is 0.005."""

    value: float
    text: str

    @property
    def percent(self) -> bool:
        """Whether it was written as a share of a hundred."""
        return self.text.endswith("%")


def _right(value: T, holds: bool, text: str) -> T:
    """The value of a text, where something holds of it."""
    if not holds:
        raise ValueError(text)
    return value


def _whole(text: str) -> int:
    return int(_right(text, bool(re.fullmatch(r"-?[0-9]+", text.strip())), text))


def _real(text: str) -> float:
    """A finite number, written in ASCII as whole numbers are."""
    value = float(text)
    return _right(value, math.isfinite(value) and text.isascii() and "_" not in text, text)


def whole(least: int, most: int | None = None, *, expected: str = "") -> Reader:
    """A whole number; where `expected` says which, only one that is too large is told of `most`."""

    def read(text: str) -> int:
        number = _whole(text)
        if expected and most is not None and number > most:
            raise Expected(f"at most {most}")
        return _right(number, number >= least and (most is None or number <= most), text)

    ends = f"a whole number from {least} to {most}" if most else f"a whole number, {least} or more"
    return Reader(read, expected or ends, "<int>")


def number(right: Callable[[float], bool], expected: str) -> Reader:
    """A finite number of which something holds."""

    def read(text: str) -> float:
        value = _real(text)
        return _right(value, right(value), text)

    return Reader(read, expected, "<float>")


def _either(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def one_of(*names: str) -> Reader:
    """One of some words."""
    return Reader(lambda text: _right(text, text in names, text), _either(names))


def _parts(text: str) -> tuple[str, ...]:
    """What stands between commas; an empty list would mean: as without the option."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    return _right(parts, bool(parts), text)


def words(names: Iterable[str]) -> Reader:
    """Some of these, joined by commas."""
    known = tuple(names)
    expected = f"{_either(known)}, joined by commas"
    return Reader(lambda text: _right(_parts(text), {*_parts(text)} <= {*known}, text), expected)


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(POSITIVE.read(part) for part in _parts(text))


def _width(text: str) -> tuple[int, int]:
    numbers = [POSITIVE.read(part) for part in text.lower().split("x")]
    return _right((numbers[0], numbers[-1]), len(numbers) <= 2, text)


def _settings(text: str) -> tuple[str, ...]:
    for name in ",".join(_parts(text)).replace("+", ",").split(","):
        if name and name != "eager":
            _usable(setting, name, text)
    return _parts(text)


def _pair(text: str) -> tuple[str, str]:
    ((name, value),) = _usable(parse_options, [text], text)
    return name, value


def _usable(read: Callable[[Any], T], value: Any, text: str) -> T:
    """What a reader of the harness makes of a value; its own message is of something else."""
    try:
        return read(value)
    except UsageError:
        raise ValueError(text) from None


def _dotted(text: str) -> str:
    return _right(text, all(text.partition(":")), text)


def _bytes(text: str) -> int:
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    count, prefix, binary = match.groups()
    found = float(count) * (1024 if binary else 1000) ** ("KMGT".index(prefix.upper()) + 1)
    if found < LEAST_MEMORY:
        raise Expected(f"at least {LEAST_MEMORY // 2**20}MiB")
    if found > LARGEST_SIZE:
        raise Expected(f"at most {LARGEST_SIZE} bytes")
    return int(found)


def _seeds(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    _right(parts, all(part.isascii() and part.isdecimal() for part in parts), text)
    numbers = tuple(int(part) for part in parts)
    if (len(numbers) == 1 and numbers[0] > MOST_SEEDS) or max(numbers) > LARGEST_SEED:
        raise Expected(f"at most {MOST_SEEDS} seeds, each up to {LARGEST_SEED}")
    return numbers if len(numbers) > 1 else tuple(range(numbers[0]))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in _COMMAS.split(text))
    return _right(names, all(names), text)


def _amount(text: str) -> Amount:
    value = _real(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    return _right(Amount(value, text), value > 0, text)


def _margin(text: str) -> tuple[str, Amount]:
    task, _, number = text.rpartition(":")
    return task, _amount(number)


def _path(text: str) -> Path:
    """Where something is or could be: the system is asked, which refuses some names."""
    _sentence(text)  # to pathlib an empty one is the working folder
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:
        raise Expected(f"a path: {getattr(error, 'strerror', error)}") from None
    return path


def _place(text: str) -> str:
    _path(text)
    return text


def _folder(text: str) -> Path:
    path = _path(text)
    return _right(path, path.is_dir() or not path.exists(), text)


def _there(text: str) -> Path:
    path = _path(text)
    return _right(path, path.exists(), text)


def _sentence(text: str) -> str:
    return _right(text, bool(text.strip()), text)


def _json(text: str) -> str:
    check_json(_place(text))
    return text


def _never(text: str) -> str:
    if not text.startswith("-"):
        raise Expected(f"nothing there; to choose use --only {text}")
    return text


POSITIVE = whole(1, LARGEST_SIZE, expected="a positive whole number")
BLOCKS = whole(1, MOST_BLOCKS, expected="a positive whole number")
JOBS = whole(0, expected="0 (one per core) or more")
SEED = whole(0, LARGEST_SEED)
POSITIVE_NUMBER = number(lambda value: value > 0, "a positive number")
SHARE = number(lambda value: 0 < value < 1, "a number between 0 and 1")
CORRELATION = number(lambda value: -1 <= value < 1, "-1 or more and less than 1")
NOT_NEGATIVE = number(lambda value: value >= 0, "0 or more")
DEVICE = one_of("cpu", "cuda", "auto")
DTYPE_NAMES = words(DTYPES)
PASS_NAMES = words(PHASES)
SETTINGS = Reader(
    _settings,
    f"{', '.join(s.name for s in settings())} or K-threads, joined by '+', or 'eager' for none",
)
LENGTHS = Reader(_lengths, "positive whole numbers joined by commas, e.g. 16,64,256")
WIDTH = Reader(_width, "e.g. 300 or 300x600")
PAIR = Reader(_pair, "name=value without ',', '[' or ']', which stand in no id", "NAME=VALUE")
PROFILE = one_of(*load_profiles())
DOTTED = Reader(_dotted, "package.module:attribute", "PKG.MODULE:FACTORY")
BYTES = Reader(_bytes, "e.g. 4GiB or 512MiB")
SEEDS = Reader(_seeds, "a number of seeds, or e.g. 3,7,11")
NAMES = Reader(_names, "names joined by commas")
AMOUNT = Reader(_amount, "a positive number, e.g. 0.005 or 0.5%")
MARGIN = Reader(_margin, "a positive number, e.g. 0.01 or 1%", "[TASK:]NUMBER")
FOLDER = Reader(_folder, "a folder, not a file", "DIR")
THERE = Reader(_there, "a folder or a file that is there", "DIR")
FILE = Reader(_path, "a file", "FILE")
PLACE = Reader(_place, "a name or a path")
SENTENCE = Reader(_sentence, "at least one word", "TEXT")
JSON = Reader(_json, "a file in a folder that is there", "FILE")
PYTEST = Reader(_never, "an option of pytest")
