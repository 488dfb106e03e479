"""Mutants known to compute the same: ``equivalent.toml``, by what they change."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import UsageError
from suites.programs.mutation.draw import Mutant, materialise, sites
from suites.programs.mutation.units import Unit, units

DECLARED = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True)
class Equivalent:
    """Some changes of one line after which nothing that is promised differs.

    Attributes
    ----------
    package, file : str
        ``mtsa`` and ``layer.py``; of a shared module both are its own name.
    line : str
        The line as it is, stripped (several that change: joined by blanks).
    becomes : tuple of str
        The line after each change.
    reason : str
    """

    package: str
    file: str
    line: str
    becomes: tuple[str, ...]
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        """Whether the mutant is one of these."""
        gone, come = mutant.change
        return (
            mutant.site.unit == self.package
            and mutant.site.path.name == self.file
            and gone == self.line
            and come in self.becomes
        )


def read(path: Path = DECLARED) -> list[Equivalent]:
    """Read the declarations.

    Raises
    ------
    UsageError
        If one has no reason, or is of no package.
    """
    found = []
    for table in tomllib.loads(path.read_text(encoding="utf-8"))["equivalent"]:
        if table["package"] not in units() or not table["reason"].strip():
            raise UsageError(f"{path}: {table}: expected a package that is there, and a reason")
        becomes = table["becomes"]
        table["becomes"] = (becomes,) if isinstance(becomes, str) else tuple(becomes)
        found.append(Equivalent(**table))
    return found


def refuse_stale(entries: Iterable[Equivalent], units: Sequence[Unit]) -> None:
    """Refuse entries of these units that no mutant matches: the code has changed since.

    Raises
    ------
    UsageError
        Naming the first of them.
    """
    for unit in units:
        mine = [e for e in entries if e.package == unit.name]
        lines = " ".join(e.line for e in mine)
        near = [s for s in sites(unit) if s.line in lines] if mine else []
        mutants = [m for m in map(materialise, near) if m is not None]
        for entry in mine:
            for come in entry.becomes:
                if not any(replace(entry, becomes=(come,)).covers(m) for m in mutants):
                    raise UsageError(
                        f"{DECLARED}: no mutant of {unit.name}/{entry.file} makes {entry.line!r} "
                        f"into {come!r}; the code has changed: correct the entry or take it out"
                    )


def declared(mutant: Mutant, entries: Iterable[Equivalent]) -> Equivalent | None:
    """The declaration that covers a mutant, if there is one."""
    return next((e for e in entries if e.covers(mutant)), None)
