"""What a mutant may change: cosmic-ray's operators, and three for code made of calls.

Layers of torch modules are mostly calls, which cosmic-ray leaves alone: the operators here leave
one out, as a careless author would.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.operators.operator import Operator
from cosmic_ray.operators.provider import OperatorProvider
from parso.python.tree import Keyword

Position = tuple[tuple[int, int], tuple[int, int]]

NEED_ARGUMENTS = frozenset({"VariableReplacer", "VariableInserter"})
"""Operators of cosmic-ray's that replace a variable by a random number; not drawn."""
ALIKE = frozenset(
    {
        "ReplaceBinaryOperator_BitAnd_Mul",
        "ReplaceBinaryOperator_BitOr_Add",
        "ReplaceComparisonOperator_Eq_Is",
        "ReplaceComparisonOperator_NotEq_IsNot",
    }
)
"""The same on truth values, which are all that & and | join here, and on texts that Python keeps
once: options. Not drawn, or every package would declare them equivalent."""
PUNCTUATION = frozenset({*"()[]{},.:;=", "->"})
VALUES_STAY = frozenset({"contiguous", "bool", "int", "float", "list", "tuple", "dict", "set"})
"""Calls that change the form of a value, not the value: leaving one out is no fault."""


def _called(node: Any) -> Iterator[int]:
    """Indices of the parenthesised arguments in ``a.b(...).c(...)``."""
    if node.type in ("atom_expr", "power"):
        for index, child in enumerate(node.children):
            if index and child.type == "trailer" and child.children[0].value == "(":
                yield index


def _is_attribute(node: Any) -> bool:
    return bool(node.type == "trailer" and node.children[0].value == ".")


@cache
def _imported(root: Any) -> frozenset[str]:
    """Names that a file imports: what is called on them has no value to be left with."""
    names = {name.value for stmt in root.iter_imports() for name in stmt.get_defined_names()}
    return frozenset(names)


class LeaveOut(Operator):
    """An operator of ours."""

    @classmethod
    def examples(cls) -> tuple[()]:
        """None: tests are ours."""
        return ()


class LeaveOutMethod(LeaveOut):
    """``x.masked_fill(m, 0)`` becomes ``x``."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        """One for each method call with a value in front."""
        parts = node.children if hasattr(node, "children") else []
        # cosmic-ray goes on with this iterator when the node is changed already.
        yield from [(parts[i].start_pos, parts[i + 1].end_pos) for i in self._calls(node)]

    def mutate(self, node: Any, index: int) -> Any:
        """Return the node without the method's name and its arguments."""
        start = list(self._calls(node))[index]
        node.children = [*node.children[:start], *node.children[start + 2 :]]
        return node

    def _calls(self, node: Any) -> Iterator[int]:
        for index in _called(node):
            name = node.children[index - 1]
            if index < 2 or not _is_attribute(name) or name.children[1].value in VALUES_STAY:
                continue
            receiver, between = node.children[0], node.children[1 : index - 1]
            if receiver.get_code().strip() == "super":
                continue
            if receiver.type == "name" and all(map(_is_attribute, between)):
                known = _imported(node.get_root_node())
                if receiver.value in known or (receiver.value == "self" and not between):
                    continue
            if node.parent.type != "simple_stmt" or index < len(node.children) - 1:
                yield index - 1


class LeaveOutCall(LeaveOut):
    """``torch.relu(x)`` becomes ``(x)``: the first argument in place of the result."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        """One if the whole node is the call of a plain or dotted name."""
        if self._argument(node) is not None:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Return the first argument in parentheses."""
        code = self._argument(node).get_code().strip()
        return parso.parse(f"{node.get_first_leaf().prefix}({code})")

    def _argument(self, node: Any) -> Any:
        calls = list(_called(node))
        if calls != [len(node.children) - 1] if calls else True:
            return None
        *names, trailer = node.children
        if names[0].type != "name" or not all(_is_attribute(n) for n in names[1:]):
            return None
        if names[-1].get_last_leaf().value in VALUES_STAY:
            return None
        # What is raised must be an exception; whole statements are left out as such; what is
        # asserted tells the type checker something.
        if node.parent.type in ("raise_stmt", "simple_stmt", "assert_stmt"):
            return None
        if names[0].value == "super" or len(trailer.children) < 3:
            return None
        first = trailer.children[1]
        if first.type == "arglist":
            first = first.children[0]
        return None if first.type == "argument" else first


class LeaveOutStatement(LeaveOut):
    """``check_input(x, mask, d_in)`` becomes ``pass``: a call for its effect alone."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        """One if the statement is a call, other than that of the parent's constructor."""
        if node.type == "simple_stmt":
            statement = node.children[0]
            calls = list(_called(statement))
            whole = bool(calls) and calls[-1] == len(statement.children) - 1
            if whole and statement.get_first_leaf().value != "super":
                yield statement.start_pos, statement.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Return the line with ``pass``."""
        old = node.children[0]
        node.children[0] = Keyword("pass", old.start_pos, old.get_first_leaf().prefix)
        return node


@cache
def operators() -> dict[str, Operator]:
    """All operators by name."""
    theirs = OperatorProvider()
    ours = (LeaveOutMethod, LeaveOutCall, LeaveOutStatement)
    found = {name: theirs[name]() for name in theirs if name not in NEED_ARGUMENTS | ALIKE}
    return found | {operator.__name__: operator() for operator in ours}


def _never_changes(node: Any) -> bool:
    """Names, texts and punctuation, which no operator looks at: a third of the time."""
    if node.type == "operator":
        return node.value in PUNCTUATION
    return node.type in ("name", "newline", "endmarker", "string", "fstring_string")


def positions(source: str) -> Iterator[tuple[str, int, Position]]:
    """Operator, occurrence and position of every mutation of a source text.

    Parameter lists are left alone: cosmic-ray takes their bare ``*`` for a product. So is the guard
    of a ``zip``, which what is right never needs: without it all stays the same.
    """
    counts: dict[str, int] = dict.fromkeys(operators(), 0)
    for node in ast_nodes(parso.parse(source)):
        if _never_changes(node):
            continue
        for name, operator in operators().items():
            for where in operator.mutation_positions(node):
                if node.parent is None or not (
                    node.parent.type == "parameters" or node.parent.get_code() == " strict=True"
                ):
                    yield name, counts[name], where
                counts[name] += 1
