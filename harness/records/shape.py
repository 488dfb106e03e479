"""What the value of a record's field must look like: said as data, checked in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

LARGEST = 1e100
"""Numbers beyond this are no result: float32 ends at 3e38, and squares of theirs overflow."""

Shape: TypeAlias = "type | tuple[type, ...] | Number | Listed | Mapped | Fields"
"""A type stands for exactly that type: values of JSON have no other, and true is then no int."""


@dataclass(frozen=True)
class Number:
    """A finite number of at least `least`; above it where `above`."""

    least: float = -LARGEST
    above: bool = False


@dataclass(frozen=True)
class Listed:
    """A list of so many values (any number if `count` is None), each of one shape."""

    of: Shape
    count: int | None = None
    empty: bool = True


@dataclass(frozen=True)
class Mapped:
    """A mapping with any names, whose values are of one shape."""

    of: Shape
    empty: bool = True


@dataclass(frozen=True)
class Fields:
    """A mapping with these names, and others that don't matter; optional ones may be null."""

    needed: Mapping[str, Shape]
    optional: Mapping[str, Shape] = field(default_factory=dict)


def mismatch(value: Any, shape: Shape, name: str = "") -> str:
    """What is wrong with a value, its name before it; empty if nothing is."""
    if isinstance(shape, type):
        return "" if type(value) is shape else f"{name} is no {shape.__name__}"
    if isinstance(shape, tuple):
        wanted = " or ".join(one.__name__ for one in shape)
        return "" if type(value) in shape else f"{name} is no {wanted}"
    if isinstance(shape, Number):
        return "" if _is_number(value, shape) else f"{name} is no {_said(shape)}"
    if isinstance(shape, Listed):
        return _of_list(value, shape, name)
    return _of_mapping(value, shape, name)


def _is_number(value: Any, shape: Number) -> bool:
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:
        return False
    return bool(value > shape.least if shape.above else value >= shape.least)


def _said(shape: Number) -> str:
    if shape.least == -LARGEST:
        return "finite number"
    return "finite number " + (
        f"above {shape.least:g}" if shape.above else f"of {shape.least:g} or more"
    )


def _of_list(value: Any, shape: Listed, name: str) -> str:
    if type(value) is not list:
        return f"{name} is no list"
    if shape.count is not None and len(value) != shape.count:
        return f"{name} is no list of {shape.count}"
    if not (value or shape.empty):
        return f"{name} is empty"
    found = (mismatch(one, shape.of, f"{name}[{i}]") for i, one in enumerate(value))
    return next(filter(None, found), "")


def _of_mapping(value: Any, shape: Mapped | Fields, name: str) -> str:
    if type(value) is not dict:
        return f"{name} is no dict"
    if isinstance(shape, Mapped):
        if not (value or shape.empty):
            return f"{name} is empty"
        found = (mismatch(one, shape.of, f"{name}.{key}") for key, one in value.items())
        return next(filter(None, found), "")
    inside = f"{name}." if name else ""
    for key, wanted in shape.needed.items():
        if why := mismatch(value.get(key), wanted, inside + key):
            return why
    for key, wanted in shape.optional.items():
        if value.get(key) is not None and (why := mismatch(value[key], wanted, inside + key)):
            return why
    return ""
