"""Tables as papers print them, read from ``published_tables/``, and numbers formed from them."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.stats import Summary
from reports.claims.record import Claim

FOLDER = Path(__file__).parent.with_name("published_tables")
PAPERS = ("mtsa", "multi_scale", "disan", "resan")
"""Those transcribed, by the names of their files."""
Tables = Mapping[str, Mapping[str, Any]]
"""Transcriptions by paper."""
ROUNDING = 1e-9
"""Of binary fractions: 3.1 - 0.05 is a little more than 3.05."""
_CELL = re.compile(r"(?P<mean>\d*\.\d+)(?:\s*\((?P<sd>\d*\.\d+)\))?")
_NUMBER = re.compile(r"(?P<value>-?\d*(?:\.(?P<digits>\d+)|\d))\s*(?P<unit>[a-zA-Z%]*)")


def load(paper: str) -> dict[str, Any]:
    """The transcribed tables of a paper."""
    with (FOLDER / f"{paper}.toml").open("rb") as file:
        return tomllib.load(file)


def load_all() -> dict[str, dict[str, Any]]:
    """The transcribed tables of all papers, by paper."""
    return {paper: load(paper) for paper in PAPERS}


@dataclass(frozen=True)
class PrintedNumber:
    """A printed number, or one formed from such, with the ends that rounding allows; nan without
    one.

    The text is as printed, with its unit; or how it comes from what is printed.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    text: str = ""

    @property
    def half(self) -> float:
        """Half a unit of the last printed digit."""
        return (self.high - self.low) / 2

    def side(self, of: float) -> int:
        """Whether it lies below (-1) or above (1) a number; 0 where rounding allows either."""
        room = ROUNDING * max(1.0, abs(of))
        return (self.low > of + room) - (self.high < of - room)

    def over(self, other: PrintedNumber) -> PrintedNumber:
        """The ratio to another; both positive."""
        value = self.value / other.value
        return PrintedNumber(
            value,
            self.low / other.high if other.high else math.inf,
            self.high / other.low if other.low else math.inf,
            f"{self.text} / {other.text} = {size_text(value)}",
        )

    def minus(self, other: PrintedNumber) -> PrintedNumber:
        """The difference to another, with as many digits as the finer of both."""
        value = self.value - other.value
        digits = max(0, -math.floor(math.log10(2 * min(self.half, other.half)) + 1e-9))
        return PrintedNumber(
            value,
            self.low - other.high,
            self.high - other.low,
            f"{self.text} - {other.text} = {value:+.{digits}f}",
        )


def number(text: str) -> PrintedNumber:
    """Read ``2.9m``, ``180s``, ``92.6%`` or ``84.8(1.3)`` (whose deviation is left out).

    Raises
    ------
    ValueError
        If nothing is printed there.
    """
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(f"given {text!r}; expected a printed number")
    value, half = float(match["value"]), 0.5 * 10.0 ** -len(match["digits"] or "")
    return PrintedNumber(value, value - half, value + half, match[0].strip())


def at(table: Mapping[str, Any], row: str, column: str) -> str:
    """The cell of a table, as printed.

    Raises
    ------
    ValueError
        If there is no such row or column.
    """
    names = [r["name"] for r in table["rows"]]
    if row not in names or column not in table["columns"]:
        raise ValueError(f"{table['place']} has no cell {row!r}, {column!r}")
    cells = table["rows"][names.index(row)]["cells"]
    return str(cells[table["columns"].index(column)])


def cell(text: str) -> tuple[float, float] | None:
    """Mean and deviation of ``84.8(1.3)``; nan without a deviation, None for ``/``."""
    match = _CELL.fullmatch(text)
    if match is None:
        return None
    return float(match["mean"]), float(match["sd"]) if match["sd"] else math.nan


def summaries(table: Mapping[str, Any]) -> dict[str, dict[str, Summary]]:
    """Printed means with deviations, by data set and model."""
    found: dict[str, dict[str, Summary]] = {}
    for row in table["rows"]:
        for data, text in zip(table["columns"], row["cells"], strict=True):
            known = cell(text)
            if known is not None and not math.isnan(known[1]):
                count = table["replicates"][data]
                found.setdefault(data, {})[row["name"]] = Summary(*known, count)
    return found


def column_of(table: Mapping[str, Any], column: str) -> dict[str, PrintedNumber]:
    """Numbers of a column by data set, without the row of averages."""
    names = [r["name"] for r in table["rows"] if r["name"] != table.get("average")]
    return {name: number(at(table, name, column)) for name in names}


@dataclass(frozen=True)
class Asked:
    """An audit claim beside the transcribed tables by paper: all that its query may look at."""

    claim: Claim
    tables: Tables

    @property
    def p(self) -> Mapping[str, Any]:
        """Parameters of the claim."""
        return self.claim.parameters

    @property
    def paper(self) -> Mapping[str, Any]:
        """All tables of its paper."""
        return self.tables[self.claim.paper]

    @property
    def table(self) -> Mapping[str, Any]:
        """The one that its parameter ``table`` names."""
        table: Mapping[str, Any] = self.paper[self.p["table"]]
        return table

    def cell(self, side: str) -> PrintedNumber:
        """What is printed in a row and the claim's column; ``<side>_table`` if that is given."""
        table = self.paper[self.p.get(f"{side}_table", self.p["table"])]
        return number(at(table, self.p[side], self.p["column"]))

    def column(self, side: str) -> dict[str, PrintedNumber]:
        """A column by data set."""
        return column_of(self.table, self.p[side])


def published(claim: Claim, tables: Tables) -> PrintedNumber:
    """The published number of a claim.

    ``{ value = 6.5 }`` (with ``text``), ``{ ratio = [table, column, first row, second row] }``,
    ``{ difference = [...] }`` alike, ``{ columns = [table, row, first column, second column] }``
    for a ratio of two columns, ``{ less = [...] }`` for their difference, ``{ speed_up = [table,
    column, row] }`` for 1 over a speed-up. The parameter ``rest = [table, column, row]`` names what
    two whole models may at most have in common: with so much less of both, or a part of it, a ratio
    of their layers is further from 1.

    Raises
    ------
    ValueError
        For anything else, or a cell that is not there.
    """
    spec = dict(claim.published)
    text = str(spec.pop("text", ""))
    if not spec:
        return PrintedNumber(text=text)
    if len(spec) != 1:
        raise ValueError(f"{claim.id}: given published {spec}; expected one number")
    ((kind, where),) = spec.items()
    if kind == "value":
        value = float(where)
        return PrintedNumber(value, value, value, text or size_text(value))
    if kind not in ("ratio", "difference", "columns", "less", "speed_up"):
        raise ValueError(f"{claim.id}: unknown kind of published number {kind!r}")
    table, shared, *others = where
    of_row = kind in ("columns", "less")
    places = [(shared, other) if of_row else (other, shared) for other in others]
    first, *rest = (number(at(tables[claim.paper][table], *place)) for place in places)
    if kind == "speed_up":
        slower = size_text(1 / first.value)
        said = f"{first.text}x as fast: 1 / {first.text} = {slower} of the time"
        return PrintedNumber(1 / first.value, 1 / first.high, 1 / first.low, said)
    if kind in ("difference", "less"):
        return first.minus(*rest)
    ratio = first.over(*rest)
    if "rest" not in claim.parameters:
        return ratio
    name, column, row = claim.parameters["rest"]
    most = number(at(tables[claim.paper][name], row, column)).high
    ends = _less(first, most).over(*(_less(one, most) for one in rest))
    return replace(ratio, low=min(ratio.low, ends.low), high=max(ratio.high, ends.high))


def _less(whole: PrintedNumber, rest: float) -> PrintedNumber:
    """What is left of it, nothing at least."""
    return replace(whole, low=max(whole.low - rest, 0.0), high=max(whole.high - rest, 0.0))


def size_text(value: float) -> str:
    """Three significant digits, four from 10 on; whole numbers in full."""
    if math.isinf(value):
        return str(value)
    if value == round(value) and abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 10 else f"{value:.3g}"
