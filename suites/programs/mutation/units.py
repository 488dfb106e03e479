"""What is mutated: the packages of mechanisms, and each module that they share."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import reference_impls
from harness.errors import UsageError

ROOT = Path(reference_impls.__path__[0])
REPOSITORY = ROOT.parent
NOT_MUTATED = re.compile(r"naive.*|golden.*|__init__")
"""Not deep in a package: the oracle, the readers of the goldens, the record."""
RECORDS = "mechanism.py"
"""Of the shared modules: it holds the records' classes, which the runner itself uses."""


@dataclass(frozen=True)
class Unit:
    """A package, or a shared module.

    Attributes
    ----------
    name : str
        ``mtsa`` or ``masks``.
    files : tuple of Path
        What is mutated.
    """

    name: str
    files: tuple[Path, ...]

    @property
    def is_package(self) -> bool:
        """Whether it is a mechanism's own package."""
        return (ROOT / self.name).is_dir()


def module_name(path: Path) -> str:
    """``reference_impls.mtsa.layer``."""
    inside = path.relative_to(REPOSITORY).with_suffix("")
    return ".".join((inside.parent if inside.name == "__init__" else inside).parts)


def short(path: Path) -> str:
    """``mtsa/layer.py``."""
    return path.relative_to(ROOT).as_posix()


@cache
def units() -> Mapping[str, Unit]:
    """All units by name."""
    found = {}
    for path in sorted(ROOT.iterdir()):
        if (path / "__init__.py").exists():
            inside = sorted(path.rglob("*.py"))
            files = [f for f in inside if f.parent != path or not NOT_MUTATED.fullmatch(f.stem)]
        elif path.suffix == ".py" and not (
            path.name == RECORDS or NOT_MUTATED.fullmatch(path.stem)
        ):
            files = [path]
        else:
            continue
        found[path.stem] = Unit(path.stem, tuple(files))
    return found


def select(names: Iterable[str]) -> list[Unit]:
    """The named units; all where none is named.

    Raises
    ------
    UsageError
        If there is no such unit.
    """
    known = units()
    for name in names:
        if name not in known:
            raise UsageError(f"no package or module {name!r}; expected some of {', '.join(known)}")
    return [known[name] for name in (names or known)]


@cache
def state() -> str:
    """Hash of all that decides what becomes of a mutant: the code, the checks, this program."""
    suites = Path(__file__).parents[2]
    folders = (
        ROOT,
        REPOSITORY / "harness" / "verify",
        suites / "reference_impls",
        suites / "harness" / "verify",
        suites / "support",
        Path(__file__).parent,
    )
    total = hashlib.sha256()
    for file in sorted(f for folder in folders for f in folder.rglob("*") if f.is_file()):
        if "__pycache__" not in file.parts:
            total.update(file.relative_to(REPOSITORY).as_posix().encode())
            total.update(file.read_bytes())
    return total.hexdigest()[:16]
