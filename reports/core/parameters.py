"""A notebook's parameters: a misspelt one is an error, of which papermill only warns."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

from harness.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
_checked = False


class NotebookError(UsageError):
    """A user's mistake inside a notebook: IPython shows one line instead of a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def assigned(cell: str) -> list[str]:
    """Names of a cell that does nothing but assign literals, as papermill's does; else none."""
    try:
        body = ast.parse(cell).body
    except SyntaxError:
        return []
    names = []
    for statement in body:
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            return []
        try:
            ast.literal_eval(statement.value)
        except ValueError:
            if ast.unparse(statement.value) not in (
                "float('nan')",
                "float('inf')",
                "float('-inf')",
            ):
                return []
        names.append(statement.targets[0].id)
    return names


def unknown(cells: Iterable[str], known: Iterable[str]) -> list[str]:
    """Parameters that were set but do not exist.

    Parameters
    ----------
    cells : iterable of str
        What ran before the parameters are used.
    """
    names = [name for cell in cells for name in assigned(cell)]
    return [name for name in dict.fromkeys(names) if name not in set(known)]


def _cells_before() -> list[str]:
    """Sources of the cells that ran before the present one; none outside a notebook."""
    if "IPython" not in sys.modules:
        return []
    from IPython import get_ipython

    shell = get_ipython()
    return [] if shell is None else [str(cell) for cell in shell.user_ns.get("In", [])[:-1]]


def refuse_unknown(known: Iterable[str]) -> None:
    """Fail if the notebook was given a parameter that it does not have.

    papermill writes all parameters, known or not, as assignments into a cell of their own that
    runs before this. Only the first call looks: later a person may have worked in the notebook.

    Raises
    ------
    NotebookError
    """
    global _checked
    if _checked:
        return
    known = list(known)
    if wrong := unknown(_cells_before(), known):
        raise NotebookError(
            f"unknown parameter {', '.join(map(repr, wrong))}; this notebook has {', '.join(known)}"
        )
    _checked = True


def start_over() -> None:
    """Forget the notebook that ran before in this kernel: its names, cells and parameters."""
    global _checked
    _checked = False
    from IPython import get_ipython

    shell = get_ipython()
    if shell is not None:
        shell.reset(new_session=True)


def opens(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function the opening of a notebook: its keywords are the notebook's parameters."""

    @wraps(function)
    def opening(*arguments: P.args, **parameters: P.kwargs) -> R:
        refuse_unknown(parameters)
        try:
            return function(*arguments, **parameters)
        except UsageError as error:
            raise NotebookError(str(error)) from None

    return opening
