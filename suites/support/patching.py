"""Run a package of `reference_impls` with one place of its source text changed."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import reference_impls
from suites.support.planting import Planted

ROOT = Path(reference_impls.__path__[0])


@dataclass(frozen=True)
class Patch:
    """A small fault.

    Attributes
    ----------
    name : str
        The fault in a few words.
    implementation : str
        ``mechanism.implementation`` in which it must be noticed.
    file : str
        Below ``reference_impls``, such as ``disa/modules.py``.
    old, new : str
        Text that occurs exactly once in the file, and what takes its place.
    dtype : {"f64", "f32"}
        In which it must be noticed; in f32 by its numbers, for there an error does not count.
    """

    name: str
    implementation: str
    file: str
    old: str
    new: str
    dtype: str = "f64"

    def __str__(self) -> str:
        return f"{self.implementation}: {self.name}"

    @property
    def module(self) -> str:
        """The module whose text is changed."""
        return "reference_impls." + self.file.removesuffix(".py").replace("/", ".")

    def source(self) -> str:
        """The changed text.

        Raises
        ------
        ValueError
            If the old text does not stand in the file exactly once.
        """
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

    Raises
    ------
    ValueError
        From `Patch.source`, and for a patch of a module that registers operators: those are not
        imported anew.
    """
    if patch.module.startswith(OPERATORS):
        raise ValueError(f"{patch.name!r}: {patch.module} registers operators with torch")
    for name in OPERATORS:  # by what is not patched, whoever comes first
        importlib.import_module(name)
    source, before = patch.source(), _ours()
    for name in before:
        del sys.modules[name]
    planted = Planted(patch.module, ROOT / patch.file, source)
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
