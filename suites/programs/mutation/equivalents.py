"""Mutants known to compute the same: ``equivalent.toml``, by what they change."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from suites.programs.mutation.draw import Mutant, materialise, sites
from suites.programs.mutation.units import Unit

DECLARED = Path(__file__).with_name("equivalent.toml")
_KEYS = {"package", "file", "line", "becomes", "reason"}


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
        If one lacks something or has something else.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", [])
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    found = []
    for table in tables:
        if set(table) != _KEYS or not str(table["reason"]).strip():
            given = ", ".join(sorted(table))
            raise UsageError(
                f"{path}: an entry has {given}; expected {', '.join(sorted(_KEYS))}, "
                "and a reason in words"
            )
        becomes = table["becomes"]
        table["becomes"] = (becomes,) if isinstance(becomes, str) else tuple(becomes)
        found.append(Equivalent(**table))
    return found


def refuse_stale(
    entries: Iterable[Equivalent], units: Sequence[Unit], path: Path = DECLARED
) -> None:
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
                one = Equivalent(entry.package, entry.file, entry.line, (come,), entry.reason)
                if not any(one.covers(mutant) for mutant in mutants):
                    raise UsageError(
                        f"{path}: no mutant of {unit.name}/{entry.file} makes {entry.line!r} into "
                        f"{come!r}; the code has changed: correct the entry or take it out"
                    )


def refuse_unknown_packages(
    entries: Iterable[Equivalent], known: Iterable[str], path: Path = DECLARED
) -> None:
    """Refuse entries of packages that there are not.

    Raises
    ------
    UsageError
        Naming the first of them.
    """
    names = set(known)
    for entry in entries:
        if entry.package not in names:
            raise UsageError(f"{path}: no package {entry.package!r}; take its entries out")


def declared(mutant: Mutant, entries: Iterable[Equivalent]) -> Equivalent | None:
    """The declaration that covers a mutant, if there is one."""
    return next((e for e in entries if e.covers(mutant)), None)
