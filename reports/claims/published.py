"""The published number of a claim: printed, or a ratio or difference of printed numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reports.claims.record import Claim
from reports.claims.verdict import size_text
from reports.printed import Number, at, number

Tables = Mapping[str, Mapping[str, Any]]
"""Transcriptions by paper."""


@dataclass(frozen=True)
class Published:
    """A published number with what rounding of the printed ones leaves open.

    Attributes
    ----------
    value, low, high : float
        nan without one.
    text : str
        How it comes from what is printed.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    text: str = ""


def cell_of(tables: Tables, paper: str, table: str, row: str, column: str) -> Number:
    """A printed number.

    Raises
    ------
    ValueError
        If there is none.
    """
    return number(at(tables[paper][table], row, column))


def quotient(first: Number, second: Number) -> Published:
    """First over second, both positive, with the ends that rounding allows."""
    value = first.value / second.value
    return Published(
        value, first.low / second.high, first.high / second.low,
        f"{first.text} / {second.text} = {size_text(value)}",
    )  # fmt: skip


def apart(first: Number, second: Number) -> Published:
    """First minus second, with the ends that rounding allows."""
    value = first.value - second.value
    digits = max(0, -math.floor(math.log10(2 * min(first.half, second.half)) + 1e-9))
    return Published(
        value, first.low - second.high, first.high - second.low,
        f"{first.text} - {second.text} = {value:+.{digits}f}",
    )  # fmt: skip


def published(claim: Claim, tables: Tables) -> Published:
    """The published number of a claim.

    ``{ value = 6.5 }`` (with ``text``), ``{ ratio = [table, column, first row, second row] }``,
    ``{ difference = [...] }`` alike, ``{ columns = [table, row, first column, second column] }``
    for a ratio of two columns, ``{ speed_up = [table, column, row] }`` for 1 over a speed-up.

    Raises
    ------
    ValueError
        For anything else, or a cell that is not there.
    """
    spec = dict(claim.published)
    text = str(spec.pop("text", ""))
    if not spec:
        return Published(text=text)
    if len(spec) != 1:
        raise ValueError(f"{claim.id}: given published {spec}; expected one number")
    ((kind, where),) = spec.items()
    if kind == "value":
        value = float(where)
        return Published(value, value, value, text or size_text(value))
    if kind == "ratio":
        table, column, *rows = where
        return quotient(*(cell_of(tables, claim.paper, table, row, column) for row in rows))
    if kind == "difference":
        table, column, *rows = where
        return apart(*(cell_of(tables, claim.paper, table, row, column) for row in rows))
    if kind == "columns":
        table, row, *columns = where
        return quotient(*(cell_of(tables, claim.paper, table, row, c) for c in columns))
    if kind == "speed_up":
        table, column, row = where
        cell = cell_of(tables, claim.paper, table, row, column)
        return Published(
            1 / cell.value, 1 / cell.high, 1 / cell.low,
            f"{cell.text}x as fast: 1 / {cell.text} = {size_text(1 / cell.value)} of the time",
        )  # fmt: skip
    raise ValueError(f"{claim.id}: unknown kind of published number {kind!r}")
