"""Which checks can notice a mutant: those that run the statement it stands in."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

TEST = "test"
"""Kind of a check that is one of pytest's tests."""
FIRST = 60
"""How many of the verifier's checks come before the tests."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


Lines = dict[str, set[int]]


@contextmanager
def traced(files: Mapping[str, str]) -> Iterator[Lines]:
    """Collect the lines that run inside the block, of files by their name in a code object.

    Yields a dict that is filled in as the block runs: name in ``files`` -> set of line numbers.
    """
    seen: Lines = {}

    def line(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            seen.setdefault(files[frame.f_code.co_filename], set()).add(frame.f_lineno)
        return line

    def call(frame: Any, event: str, _: Any) -> Any:
        return line if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield seen
    finally:
        sys.settrace(before)


@dataclass(frozen=True)
class Ran:
    """One check of the unchanged code: a step, or ``("test", file, id)``.

    ``lines`` are those that ran by file, as ``mtsa/layer.py``; if it called torch.compile
    (``compiles``), those of what is compiled are not seen.
    """

    check: tuple[str, ...]
    seconds: float
    lines: Mapping[str, frozenset[int]]
    compiles: bool = False


def _range(node: ast.AST) -> range:
    """Lines of a simple statement, or of a compound one's head."""
    first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
    first = min([first, *(d.lineno for d in getattr(node, "decorator_list", []))])
    body = getattr(node, "body", None)
    return range(first, max(first, body[0].lineno - 1) + 1 if body else last + 1)


def _body(function: ast.AST) -> range:
    body = function.body  # type: ignore[attr-defined]
    return range(body[0].lineno, body[-1].end_lineno + 1)


def _called_at_import(tree: ast.Module) -> set[str]:
    """Functions that the module's own statements call by name."""
    calls = [
        node.func
        for statement in tree.body
        if not isinstance(statement, (*FUNCTIONS, ast.ClassDef))
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
    ]
    return {called.id for called in calls if isinstance(called, ast.Name)}


@cache
def lines_to_watch(source: str, row: int) -> frozenset[int] | None:
    """Lines one of which runs whenever the change at a line can matter.

    Inside a function: its innermost statement. Of a function's head (decorators, defaults): its
    body. None for what runs at import, what is called there too: whoever imports the file may read
    it.
    """
    tree = ast.parse(source)
    functions = [n for n in ast.walk(tree) if isinstance(n, FUNCTIONS)]
    at_import = _called_at_import(tree)
    if any(row in _body(f) for f in functions if f.name in at_import):
        return None
    if any(row in _body(f) for f in functions):
        statements = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.stmt | ast.ExceptHandler) and row in _range(n)
        ]
        return frozenset(_range(min(statements, key=lambda n: len(_range(n)))))
    headed = [f for f in functions if row in _range(f)]
    return frozenset(line for f in headed for line in _body(f)) if headed else None


def relevant(ran: Iterable[Ran], file: str, source: str, row: int) -> list[Ran]:
    """The checks that can notice a change at a line.

    The fastest of the verifier's own come first, then the tests, which take a second to start,
    then the other ones of the verifier.
    """
    watched = lines_to_watch(source, row)
    folder = file.rpartition("/")[0] or file

    def can_notice(one: Ran) -> bool:
        if watched is None or one.compiles:
            return any(name.startswith(folder) for name in one.lines)
        return not watched.isdisjoint(one.lines.get(file, frozenset()))

    found = sorted(filter(can_notice, ran), key=lambda r: r.seconds)
    steps = [r for r in found if r.check[0] != TEST]
    tests = [r for r in found if r.check[0] == TEST]
    return [*steps[:FIRST], *tests, *steps[FIRST:]]
