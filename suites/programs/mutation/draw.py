"""Mutants: every one that the operators can make of a unit, and a sample of them."""

from __future__ import annotations

import ast
import difflib
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from cosmic_ray.mutating import mutate_code

from suites.programs.mutation.operators import operators, positions
from suites.programs.mutation.units import Unit, short


@dataclass(frozen=True)
class Site:
    """One place where one operator can change a file.

    Attributes
    ----------
    unit : str
    path : Path
    operator : str
    occurrence : int
        Which of the operator's places in the file, from 0.
    row, column : int
        Where the change begins, from 1 and 0.
    line : str
        Text of that line, stripped.
    nth : int
        Which of the file's lines with that text, from 0.
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
    """A changed file.

    Attributes
    ----------
    site : Site
    before, source : str
        The file's text, unchanged and changed.
    """

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
