"""Tables as papers print them, read from ``published_tables/``, and what they allow to say."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.stats import Summary, WelchResult, holm, implied_interval, welch

FOLDER = Path(__file__).with_name("published_tables")
PAPERS = ("mtsa", "multi_scale", "disan", "resan")
"""Those transcribed, by the names of their files."""
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
class Number:
    """A printed number; the true one lies within half a unit of its last digit.

    Attributes
    ----------
    value, half : float
    text : str
        As printed, with its unit.
    """

    value: float
    half: float
    text: str

    @property
    def low(self) -> float:
        """The least that is printed so."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """The most that is printed so."""
        return self.value + self.half


def number(text: str) -> Number:
    """Read ``2.9m``, ``180s``, ``92.6%`` or ``84.8(1.3)`` (whose deviation is left out).

    Raises
    ------
    ValueError
        If nothing is printed there.
    """
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(f"given {text!r}; expected a printed number")
    return Number(
        float(match["value"]), 0.5 * 10.0 ** -len(match["digits"] or ""), match[0].strip()
    )


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


@dataclass(frozen=True)
class Contrast:
    """A model minus another one on one data set, from printed numbers.

    Attributes
    ----------
    data, other : str
    first, second : Summary
    test : WelchResult
    adjusted_p : float
        Holm's, over the contrasts of one family.
    lowest_p, highest_p : float
        What rounding of the printed means and deviations allows.
    """

    data: str
    other: str
    first: Summary
    second: Summary
    test: WelchResult
    adjusted_p: float
    lowest_p: float
    highest_p: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the 95 % interval does."""
        return self.test.low > 0 or self.test.high < 0


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


def runners_up(table: Mapping[str, Any], subject: str) -> dict[str, str]:
    """The best other model by data set; of equal means the one with the smallest deviation."""
    best = {}
    for data, models in summaries(table).items():
        others = {name: s for name, s in models.items() if name != subject}
        best[data] = max(others, key=lambda name: (others[name].mean, -others[name].sd))
    return best


def rounding_of(table: Mapping[str, Any], column: str) -> float:
    """How far printed means and deviations of a column may be from the true ones."""
    index = table["columns"].index(column)
    known = [r["cells"][index] for r in table["rows"] if cell(r["cells"][index]) is not None]
    return max(number(text).half for text in known)


def _rounded(first: Summary, second: Summary, half: float) -> tuple[float, float]:
    """Lowest and highest p that rounding by so much allows."""
    difference = first.mean - second.mean
    p = []
    for sign in (1, -1):
        size = max(0.0, abs(difference) + sign * 2 * half)
        deviations = [max(0.0, s.sd - sign * half) for s in (first, second)]
        if not size or not any(deviations):
            p.append(0.0 if size else 1.0)
            continue
        a, b = (
            Summary(mean, sd, s.count)
            for mean, sd, s in zip((size, 0.0), deviations, (first, second), strict=True)
        )
        p.append(welch(a, b).p)
    return p[0], p[1]


def contrasts(table: Mapping[str, Any], subject: str, others: Mapping[str, str]) -> list[Contrast]:
    """Welch's test of the subject against one model per data set, with Holm over all of them.

    Parameters
    ----------
    others : mapping
        Model by data set: one family of tests.
    """
    known = summaries(table)
    pairs = [
        (data, other, known[data][subject], known[data][other]) for data, other in others.items()
    ]
    tests = [welch(first, second) for *_, first, second in pairs]
    adjusted = holm([test.p for test in tests])
    return [
        Contrast(
            data, other, first, second, test, p, *_rounded(first, second, rounding_of(table, data))
        )
        for (data, other, first, second), test, p in zip(pairs, tests, adjusted, strict=True)
    ]


@dataclass(frozen=True)
class Implied:
    """The interval that a printed difference and p-value imply, under one reading.

    Attributes
    ----------
    setup, reading : str
    difference, low, high, p : float
    runs : int
    paired : bool
    """

    setup: str
    reading: str
    difference: float
    low: float
    high: float
    p: float
    runs: int
    paired: bool


def implied(table: Mapping[str, Any]) -> list[Implied]:
    """Every reading of Table 6: as many runs as the table or the caption says, paired or not."""
    found = []
    for setup in table["setups"]:
        places: dict[int, list[str]] = {}
        for place in ("table", "caption"):
            places.setdefault(setup[f"runs_in_{place}"], []).append(place)
        difference = setup["mtsa"] - setup["multi_head"]
        for paired in (True, False):
            for runs, where in places.items():
                low, high = implied_interval(difference, setup["p"], runs, paired=paired)
                reading = (
                    f"{runs} runs ({' and '.join(where)}), {'paired' if paired else 'unpaired'}"
                )
                found.append(
                    Implied(setup["name"], reading, difference, low, high, setup["p"], runs, paired)
                )
    return found


@dataclass(frozen=True)
class Fold:
    """A printed deviation over folds beside the one that counting alone gives.

    Attributes
    ----------
    data, model : str
    accuracy, printed, expected : float
        In points; expected is sqrt(a (1 - a) / examples per fold).
    p : float
        Probability of a deviation at most as large as printed (plus rounding) if folds differ by
        counting alone, from chi squared.
    """

    data: str
    model: str
    accuracy: float
    printed: float
    expected: float
    p: float


def folds(table: Mapping[str, Any]) -> list[Fold]:
    """Printed deviations over disjoint test folds, against the binomial one."""
    from scipy.stats import chi2

    found = []
    known = summaries(table)
    for data, examples in table["folds"].items():
        for model, s in known[data].items():
            share = s.mean / 100
            expected = 100 * math.sqrt(share * (1 - share) / (examples / s.count))
            freedom = s.count - 1
            printed = s.sd + rounding_of(table, data)
            p = float(chi2.cdf(freedom * (printed / expected) ** 2, freedom))
            found.append(Fold(data, model, s.mean, s.sd, expected, p))
    return found


def added_parameters(table: Mapping[str, Any], layers_per_head: int) -> float:
    """Millions of weights that score layers per head add: layers x heads x (d^2 + d)."""
    e = table["encoder"]
    width = e["head_width"]
    return layers_per_head * e["layers"] * e["heads"] * (width**2 + width) / 1e6
