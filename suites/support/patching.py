"""Run a module, or a package of `reference_impls`, with its source text changed."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import reference_impls

ROOT = Path(reference_impls.__path__[0])


def module_name(file: str) -> str:
    """``reference_impls.mtsa.layer`` of ``mtsa/layer.py``, a file below `ROOT`."""
    path = file.removesuffix(".py").removesuffix("/__init__")
    return "reference_impls." + path.replace("/", ".")


class NotPlanted(Exception):
    """The changed text would not be, or was not, what ran: a fault of the runner, not a result."""


class Planted(importlib.abc.SourceLoader):
    """Finds the module of a file below `ROOT`, and loads another text for it, from now on.

    No bytecode of it is kept. A module that is imported already is refused by `NotPlanted`: others
    may hold what its own text made.
    """

    def __init__(self, file: str, source: str) -> None:
        self.name, self.path, self.source = module_name(file), ROOT / file, source
        if self.name in sys.modules:
            raise NotPlanted(f"{self.name} was imported before its text could be changed")
        self.ran = False
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """For the module alone."""
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def get_filename(self, fullname: str) -> str:
        """Its own file, which tracebacks name."""
        return str(self.path)

    def get_data(self, path: str | bytes) -> bytes:
        """The other text."""
        return self.source.encode()

    def exec_module(self, module: ModuleType) -> None:
        """Run it, and remember that it ran."""
        self.ran = True
        super().exec_module(module)

    def plant(self) -> None:
        """Import the module; what its text raises comes through."""
        # Who asks for the source of a function, as Triton does, gets this one; without a time of
        # change it is not compared with the file's.
        lines = self.source.splitlines(keepends=True)
        linecache.cache[str(self.path)] = (len(self.source), None, lines, str(self.path))
        importlib.import_module(self.name)

    def confirm(self) -> None:
        """Make certain that the changed text ran and is what everybody sees; else `NotPlanted`."""
        module = sys.modules.get(self.name)
        if not self.ran or getattr(module, "__loader__", None) is not self:
            raise NotPlanted(f"{self.name} did not come from the changed text")


@dataclass(frozen=True)
class Patch:
    """A small fault: a text that occurs exactly once in a file of `ROOT`, and what takes its place.

    It must be noticed in the implementation (``mechanism.implementation``), in the dtype: in f32 by
    its numbers, for there an error does not count. `shows` is the label of the batch that is tried
    first, where the shortest ones do not show it.
    """

    name: str
    implementation: str
    file: str
    old: str
    new: str
    dtype: str = "f64"
    shows: str = ""

    def __str__(self) -> str:
        return f"{self.implementation}: {self.name}"

    @property
    def module(self) -> str:
        """The module whose text is changed."""
        return module_name(self.file)

    def source(self) -> str:
        """The changed text; ValueError if the old one does not stand there exactly once."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name!r}: {self.old!r} stands {count} times in {self.file}")
        return text.replace(self.old, self.new)


SUITES = Path(__file__).parents[1]
LISTS = (
    SUITES / "support" / "patches.toml",
    *sorted((SUITES / "reference_impls").glob("*/faults.toml")),
)
"""Files of named faults: one for most packages, and those beside the tests of a mechanism."""
PATCHES = tuple(
    Patch(**fault) for file in LISTS for fault in tomllib.loads(file.read_text("utf-8"))["patch"]
)
"""At least three for every package named there."""

OPERATORS = (
    "reference_impls.kernels.native",
    "reference_impls.kernels.underflow",
    "reference_impls.kernels.triton",
)
"""Modules that register operators: a second registration would take the first one's away."""


def _ours() -> dict[str, ModuleType]:
    """Modules with mechanisms' code; the records' own stays: its errors are caught by class."""
    return {
        name: module
        for name, module in sys.modules.items()
        if name.startswith("reference_impls.")
        and name != "reference_impls.mechanism"
        and not name.startswith(OPERATORS)
    }


@contextmanager
def patched(patch: Patch) -> Iterator[None]:
    """Within it every module of a mechanism is imported anew, the patched one changed.

    A module that registers operators is not: patching it is a ValueError.
    """
    if patch.module.startswith(OPERATORS):
        raise ValueError(f"{patch.name!r}: {patch.module} registers operators with torch")
    for name in OPERATORS:  # by what is not patched, whoever comes first
        importlib.import_module(name)
    source, before = patch.source(), _ours()
    for name in before:
        del sys.modules[name]
    planted = Planted(patch.file, source)
    try:
        yield
    finally:
        sys.meta_path.remove(planted)
        for name in _ours():
            del sys.modules[name]
        sys.modules.update(before)
        for name, module in before.items():
            # A package holds its modules too, the patched ones until now.
            package, _, own = name.rpartition(".")
            setattr(sys.modules[package], own, module)
