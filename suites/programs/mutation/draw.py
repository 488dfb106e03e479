"""Mutants: what is mutated, all that the operators can make of it, a sample, and equivalents."""

from __future__ import annotations

import ast
import difflib
import hashlib
import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from cosmic_ray.mutating import mutate_code

from harness.errors import UsageError
from suites.programs.mutation.operators import operators, positions
from suites.support.patching import ROOT

REPOSITORY = ROOT.parent
NOT_MUTATED = re.compile(r"naive.*|golden.*|__init__")
"""Not deep in a package: the oracle, the readers of the goldens, the record."""
RECORDS = "mechanism.py"
"""Of the shared modules: it holds the records' classes, which the runner itself uses."""


@dataclass(frozen=True)
class Unit:
    """A package, or a shared module: ``mtsa`` or ``masks``, and the files that are mutated."""

    name: str
    files: tuple[Path, ...]

    @property
    def is_package(self) -> bool:
        """Whether it is a mechanism's own package."""
        return (ROOT / self.name).is_dir()


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


@dataclass(frozen=True)
class Site:
    """One place where one operator can change a file.

    ``occurrence`` is which of the operator's places in the file, from 0; ``row`` and ``column``,
    from 1 and 0, where the change begins; ``line`` the text of that line, stripped, and ``nth``
    which of the file's lines with that text, from 0.
    """

    unit: str
    path: Path
    operator: str
    occurrence: int
    row: int
    column: int
    line: str
    nth: int

    def order(self, seed: int, *more: object) -> str:
        """A number drawn for the place, the same wherever in the file the line stands."""
        parts = (seed, short(self.path), self.line, self.nth, self.column, *more)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Mutant:
    """A changed file: its text unchanged (``before``), and changed (``source``)."""

    site: Site
    before: str
    source: str

    @cached_property
    def change(self) -> tuple[str, str]:
        """The lines that go and those that come, each stripped and joined by blanks."""
        lines = list(difflib.unified_diff(self.before.splitlines(), self.source.splitlines(), n=0))[
            3:
        ]
        gone, come = ([d[1:].strip() for d in lines if d[0] == sign] for sign in "-+")
        return " ".join(gone), " ".join(come)

    @property
    def id(self) -> str:
        """``mtsa:1a2b3c4d``, the same wherever in the file the change stands."""
        parts = (short(self.site.path), *self.change, self.site.nth, self.site.operator)
        # A character that stands twice in a line can give one text from two places.
        return f"{self.site.unit}:{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"

    @property
    def diff(self) -> str:
        """As `diff -U1` prints it."""
        name = short(self.site.path)
        lines = difflib.unified_diff(
            self.before.splitlines(), self.source.splitlines(), name, name, lineterm="", n=1
        )
        return "\n".join(lines)


def sites(unit: Unit) -> list[Site]:
    """All places of a unit, those in annotations, docstrings and imports left out."""
    found = []
    for path in unit.files:
        source = path.read_text(encoding="utf-8")
        lines = [line.strip() for line in source.splitlines()]
        silent = _silent(ast.parse(source))
        for operator, occurrence, (start, end) in positions(source):
            if any(first <= start and end <= last for first, last in silent):
                continue
            line = lines[start[0] - 1]
            nth = lines[: start[0] - 1].count(line)
            found.append(Site(unit.name, path, operator, occurrence, *start, line, nth))
    return found


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _silent(tree: ast.Module) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Ranges that don't decide what a module computes."""
    nodes: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            nodes.append(node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            nodes.append(node.returns)
        elif isinstance(node, ast.Import | ast.ImportFrom) or _is_text(node):
            nodes.append(node)
    return [
        ((n.lineno, n.col_offset), (n.end_lineno or 0, n.end_col_offset or 0))  # type: ignore[attr-defined]
        for n in nodes
    ]


@cache
def _meaning(source: str) -> str:
    return ast.dump(ast.parse(source))


def materialise(site: Site) -> Mutant | None:
    """The changed file; None if the change is none, or no Python."""
    before = site.path.read_text(encoding="utf-8")
    source = mutate_code(before, operators()[site.operator], site.occurrence)
    if source is None:
        return None
    try:
        same = ast.dump(ast.parse(source)) == _meaning(before)
    except SyntaxError:
        return None
    return None if same else Mutant(site, before, source)


def in_order(unit: Unit, seed: int) -> Iterator[Mutant]:
    """All mutants of a unit in the order in which they are drawn.

    First one of every place, then a second one of every place that has two, and so on: a product
    that can become eleven other operations does not count eleven times.
    """
    places: dict[tuple[Path, int, int], list[Site]] = {}
    for site in sites(unit):
        places.setdefault((site.path, site.row, site.column), []).append(site)
    drawn = sorted(places.values(), key=lambda group: group[0].order(seed))
    for group in drawn:
        group.sort(key=lambda s: s.order(seed, s.operator, s.occurrence))
    seen = set()
    for turn in range(max(map(len, drawn), default=0)):
        for group in drawn:
            mutant = materialise(group[turn]) if turn < len(group) else None
            if mutant is not None and (mutant.site.path, mutant.source) not in seen:
                seen.add((mutant.site.path, mutant.source))
                yield mutant


def sample(unit: Unit, count: int, seed: int) -> list[Mutant]:
    """The first so many mutants of a unit."""
    return list(itertools.islice(in_order(unit, seed), count))


DECLARED = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True)
class Equivalent:
    """Some changes of one line after which nothing that is promised differs.

    ``line`` is the line as it is, stripped (several that change: joined by blanks), ``becomes`` the
    line after each change.
    """

    file: str
    line: str
    becomes: tuple[str, ...]
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        """Whether the mutant is one of these."""
        gone, come = mutant.change
        return short(mutant.site.path) == self.file and gone == self.line and come in self.becomes


def read(path: Path = DECLARED) -> list[Equivalent]:
    """Read the declarations.

    Raises
    ------
    UsageError
        If one has no reason, or is of no package.
    """
    found = []
    files = {short(file) for unit in units().values() for file in unit.files}
    for table in tomllib.loads(path.read_text(encoding="utf-8"))["equivalent"]:
        if table["file"] not in files or not table["reason"].strip():
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
        mine = [e for e in entries if e.file in map(short, unit.files)]
        lines = " ".join(e.line for e in mine)
        near = [s for s in sites(unit) if s.line in lines] if mine else []
        mutants = [m for m in map(materialise, near) if m is not None]
        for entry in mine:
            for come in entry.becomes:
                if not any(replace(entry, becomes=(come,)).covers(m) for m in mutants):
                    raise UsageError(
                        f"{DECLARED}: no mutant of {entry.file} makes {entry.line!r} "
                        f"into {come!r}; the code has changed: correct the entry or take it out"
                    )


def declared(mutant: Mutant, entries: Iterable[Equivalent]) -> Equivalent | None:
    """The declaration that covers a mutant, if there is one."""
    return next((e for e in entries if e.covers(mutant)), None)
