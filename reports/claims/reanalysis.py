"""What printed means, deviations and p-values allow to say: tests, intervals, plausibility."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from harness.stats import ALPHA, Summary, holm, implied_interval, welch
from reports.claims.printed import cell, number, summaries

STEPS = 8
"""Through what a printed deviation may be."""


def rounding_of(table: Mapping[str, Any], column: str) -> float:
    """How far printed means and deviations of a column may be from the true ones."""
    index = table["columns"].index(column)
    known = [r["cells"][index] for r in table["rows"] if cell(r["cells"][index]) is not None]
    return max(number(text).half for text in known)


def p_by_rounding(first: Summary, second: Summary, half: float) -> tuple[float, float]:
    """Lowest and highest p of Welch's test that what is printed allows.

    It is rounded by so much; and papers don't say whether a deviation is over n - 1, or over n as
    numpy's is, which is then the smaller one. Each deviation goes through its range by itself: p
    need not grow with one of them, as the degrees of freedom do, too.
    """
    difference = abs(first.mean - second.mean)
    ranges = [
        _steps(max(0.0, s.sd - half), (s.sd + half) * math.sqrt(s.count / (s.count - 1)))
        for s in (first, second)
    ]
    ends = []
    for size in (difference + 2 * half, max(0.0, difference - 2 * half)):
        found = [
            welch(Summary(size, a, first.count), Summary(0.0, b, second.count)).p
            for a, b in product(*ranges)
            if size and (a or b)
        ]
        if size and not (ranges[0][0] or ranges[1][0]):
            found.append(0.0)  # no spread at all
        ends.append(found or [1.0])
    return min(ends[0]), max(ends[1])


def _steps(low: float, high: float) -> list[float]:
    """From one number to another in equal steps."""
    return [low + (high - low) * i / STEPS for i in range(STEPS + 1)]


@dataclass(frozen=True)
class ImpliedInterval:
    """The interval that a printed difference and p-value imply, under one reading."""

    setup: str
    reading: str
    difference_bleu: float
    low_bleu: float
    high_bleu: float
    p: float
    runs: int
    paired: bool


def implied(table: Mapping[str, Any]) -> list[ImpliedInterval]:
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
                design = "paired" if paired else "unpaired"
                reading = f"{runs} runs ({' and '.join(where)}), {design}"
                one = (setup["name"], reading, difference, low, high, setup["p"], runs, paired)
                found.append(ImpliedInterval(*one))
    return found


@dataclass(frozen=True)
class FoldDeviation:
    """A printed deviation over folds beside the one that counting alone gives.

    Counting gives sqrt(a (1 - a) / examples per fold); `p` is the probability of a deviation at
    most as large as printed (plus rounding, and over n, not n - 1: the reading by which it is the
    larger) if folds differ by counting alone, from chi squared; `p_holm` over all of the table.
    """

    data: str
    model: str
    accuracy_percent: float
    printed_points: float
    counting_points: float
    p: float
    p_holm: float

    @property
    def implausible(self) -> bool:
        """Whether it is too small to be chance."""
        return self.p_holm < ALPHA


def fold_deviations(table: Mapping[str, Any]) -> list[FoldDeviation]:
    """Printed deviations over disjoint test folds, against the binomial one."""
    from scipy.stats import chi2

    found = []
    known = summaries(table)
    for data, examples in table["folds"].items():
        for model, s in known[data].items():
            share = s.mean / 100
            expected = 100 * math.sqrt(share * (1 - share) / (examples / s.count))
            printed = s.sd + rounding_of(table, data)
            p = float(chi2.cdf(s.count * (printed / expected) ** 2, s.count - 1))
            found.append((data, model, s.mean, s.sd, expected, p))
    adjusted = holm([p for *_, p in found])
    return [FoldDeviation(*one, p) for one, p in zip(found, adjusted, strict=True)]


def added_parameters(table: Mapping[str, Any], layers_per_head: int) -> float:
    """Millions of weights that score layers per head add: layers x heads x (d^2 + d)."""
    e = table["encoder"]
    width = e["head_width"]
    return float(layers_per_head * e["layers"] * e["heads"] * (width**2 + width) / 1e6)
