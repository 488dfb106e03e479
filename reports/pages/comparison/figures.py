"""Figures of ``comparison.ipynb``: every seed is seen, never only a mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.experiments.conclusion import Comparison
from harness.experiments.warnings import DECIDED
from harness.stats import POWER, SpreadEstimate, paired_spread, power_of, replicates_needed
from reports.core.axes import ON_LINES, End, bare, label_ends, note, panel, row_panel, titled
from reports.core.forest import Line, draw_rows, dress
from reports.core.forest import forest as plot
from reports.core.style import (
    BLACK,
    BLUE,
    GREEN,
    LINES,
    SOFT,
    VERMILION,
    Look,
    mechanism_of,
    pair,
    text_colour,
)

MOST_NAMED = 12
"""Lines of one figure that have room for their names; those of more stand in the table."""


def axis_text(comparison: Comparison) -> str:
    """The metric, with its unit and direction."""
    better = "higher" if comparison.higher_is_better else "lower"
    return f"test {comparison.unit.named(comparison.metric)}, {better} is better"


def _winner(comparison: Comparison, first: float, second: float) -> str:
    """Colour of the model that is better for a seed."""
    a, b = pair(comparison.first, comparison.second)
    if first == second:
        return SOFT
    return a if (first > second) == comparison.higher_is_better else b


def every_seed(comparison: Comparison) -> Figure:
    """Test metrics of the second model and of the first, joined by a line for each pair.

    Unpaired there is a point per run: no line joins what is no pair.
    """
    paired, d, by = comparison.paired, comparison.difference, comparison.replicate
    scale, (a, b) = comparison.unit.scale, pair(comparison.first, comparison.second)
    figure, axes = panel(margins={"left": 0.15, "right": 0.85, "bottom": 0.12, "top": 0.84})
    axes.set_xticks([0, 1], [comparison.second, comparison.first], fontsize=9.5)
    axes.set_xlim(*((-0.42, 1.08) if paired else (-0.3, 1.4)))
    axes.margins(y=0.1)
    axes.set_ylabel(axis_text(comparison), fontsize=8.5)
    style: dict[str, Any] = {"linewidth": 1.3, "markersize": 4.5, "alpha": 0.85}
    ends: list[End] = []
    for number, first, second in comparison.values:
        values = [scale * second, scale * first]
        if paired:
            ink, name = _winner(comparison, first, second), f"{by} {number}"
            axes.plot([0, 1], values, "o-", color=ink, label=name, **style)
            ends.append((1.0, values[1], name, ink))
    for x, model, ink in () if paired else ((0, comparison.second, b), (1, comparison.first, a)):
        there = [scale * row[2 - x] for row in comparison.values if not math.isnan(row[2 - x])]
        label = f"{model}: every seed"
        axes.plot([x] * len(there), there, "o", color=ink, label=label, **style)
    if len(ends) > MOST_NAMED:
        ends = []
    if d is not None:
        places, means = [0.0, 1.0], [scale * d.mean_second, scale * d.mean_first]
        said = [f"mean {comparison.unit.value(m)}" for m in (d.mean_second, d.mean_first)]
        stroke = "D-" if paired else "D"
        if not paired:
            places = [at + 0.1 for at in places]
        axes.plot(places, means, stroke, color="black", linewidth=2.6, markersize=7, label="mean")
        if paired:
            ends.append((1.0, means[1], said[1], "black"))
        align, shift = ("right center", -9) if paired else ("left center", 9)
        for at, y, text in list(zip(places, means, said, strict=True))[: 1 if paired else 2]:
            note(axes, text, (at, y), (shift, 0), ink="black", size=8, align=align, bbox=ON_LINES)
    bare(axes)
    axes.grid(False)
    label_ends(axes, ends)
    title, under = f"{comparison.task}: every seed, unpaired", "a point per run; black: means"
    if paired:
        title = f"{comparison.task}: every {by}"
        under = f"one line per {by}, coloured by the model that did better; black: means"
    titled(axes, title, under)
    return figure


def differences(comparison: Comparison) -> Figure:
    """Difference of every seed, and their mean with its 95 % t-interval; unpaired the mean only."""
    unit, d = comparison.unit, comparison.difference
    lines: dict[float, Line] = {}
    for number, first, second in comparison.values if comparison.paired else ():
        value = unit.scale * (first - second)
        style = Look(_winner(comparison, first, second), "o")
        name = f"{comparison.replicate} {number}"
        lines[len(lines)] = Line(name, "", value, math.nan, math.nan, True, style=style)
    figure, axes = row_panel(len(lines) + 1, 0.12, 0.84, each=0.24)
    axes.hlines(list(lines), 0, [one.value for one in lines.values()], color="0.85", linewidth=1)
    if d is not None:
        ends = (unit.scale * d.difference, unit.scale * d.low, unit.scale * d.high)
        below = len(lines) + 0.3
        lines[below] = Line("mean", "", *ends, decided=True, style=Look("black", "D"))
        text = unit.difference(d.difference)
        if not math.isnan(d.low):
            text += f"\n{unit.bounds(d)}"
        side = axes.get_yaxis_transform()
        note(axes, text, (1.02, below), ink="black", size=8, within=side)
    draw_rows(axes, lines)
    if comparison.margin is not None:
        edge = unit.scale * comparison.margin
        axes.axvspan(-edge, edge, color="0.5", alpha=0.15, linewidth=0)
    of = " (points)" if unit.of_differences else ""
    by = f"by {comparison.replicate}" if comparison.paired else "(of means, unpaired)"
    names = [one.label for one in lines.values()]
    dress(axes, names, f"{comparison.first} minus {comparison.second}{of}")
    axes.set_yticks(list(lines), names, fontsize=8)
    axes.set_ylim(max(lines, default=0) + 0.6, -0.7)
    band = "; grey: the declared margin" if comparison.margin is not None else ""
    better = "right" if comparison.higher_is_better else "left"
    titled(
        axes,
        f"{comparison.task}: difference of {comparison.metric} {by}",
        f"{better} of zero: {comparison.first} is better; bar: 95 % t-interval{band}",
    )
    return figure


def forest(comparisons: Sequence[Comparison]) -> Figure:
    """Differences of several models to one baseline, with their intervals, one below the other."""
    first = comparisons[0]
    scale = first.unit.scale
    lines = [
        Line.of(
            c.first + ("" if c.paired else " (unpaired)"),
            mechanism_of(c.first),
            d,
            scale,
            decided=c.said in DECIDED,
        )
        for c in comparisons
        if (d := c.difference) is not None
    ]
    of = " (points)" if first.unit.of_differences else ""
    better = "right" if first.higher_is_better else "left"
    band = "; band: the declared margin" if first.margin is not None else ""
    return plot(
        lines,
        f"{first.task}: difference to {first.second}",
        f"{better} of zero: better; bars: 95 % t-intervals; grey: nothing decided{band}",
        f"{first.metric} minus that of {first.second}{of}",
        None if first.margin is None else scale * first.margin,
    )


COUNTS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)
INKS = (BLUE, VERMILION, GREEN, BLACK)


@dataclass(frozen=True)
class Curve:
    """Power for one true difference (as the metric is, not scaled) at `COUNTS` pairs; `needed` are
    the fewest with 80 % power.
    """

    effect: float
    name: str
    powers: tuple[float, ...]
    needed: int


def effects(comparison: Comparison, sd: float) -> list[tuple[float, str]]:
    """The differences that curves are drawn for, with their names, small to large."""
    unit = comparison.unit
    found = {c * sd: f"{unit.size(c * sd)} ({c:g} sd)" for c in (0.5, 1.0, 2.0)}
    if comparison.margin is not None:
        found[comparison.margin] = f"{unit.size(comparison.margin)} (the margin)"
    return sorted(found.items())


def spread_of(comparison: Comparison) -> SpreadEstimate | None:
    """Deviation of the paired differences; None for folds, unpaired, for fewer than two pairs.

    Folds share most of their training examples, so that pairs of them are no independent draws.
    """
    if comparison.units != "seeds" or not comparison.paired or len(comparison.values) < 2:
        return None
    first = [a for _, a, _ in comparison.values]
    second = [b for *_, b in comparison.values]
    sd = paired_spread(first, second).sd
    return sd if sd.value > 0 else None


def power_curves(comparison: Comparison, sd: float) -> list[Curve]:
    """Power over the number of seeds for each of `effects`, at a deviation of the differences."""
    return [
        Curve(
            effect,
            name,
            tuple(power_of(effect, sd, n) for n in COUNTS),
            replicates_needed(effect, sd),
        )
        for effect, name in effects(comparison, sd)
    ]


def power(comparison: Comparison, found: list[Curve]) -> Figure:
    """One line per true difference; dotted: 80 %, and the seeds of this comparison."""
    figure, axes = panel()
    ends: list[End] = []
    for number, curve in enumerate(found):
        ink, stroke = INKS[number % len(INKS)], LINES[number % len(LINES)]
        axes.plot(COUNTS, curve.powers, stroke, color=ink, linewidth=1.6, label=curve.name)
        ends.append((float(COUNTS[-1]), curve.powers[-1], curve.name, text_colour(ink)))
    here = len(comparison.values)
    axes.axhline(POWER, color="0.5", linewidth=1, linestyle=":")
    axes.axvline(here, color="0.5", linewidth=1, linestyle=":")
    note(axes, "80 %", (2, POWER), (2, 3), align="left baseline")
    note(axes, f"{here} seeds here", (here, 0.02), (4, 0), align="left baseline")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.xaxis.set_major_locator(FixedLocator([2, 3, 5, 10, 20, 50, 100]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
    axes.set_xlabel("paired seeds")
    axes.set_ylabel("power: how often it would be found")
    bare(axes)
    label_ends(axes, ends, 7.5)
    titled(
        axes,
        f"{comparison.task}: what more seeds would find",
        "two-sided paired t-test at 5 %, for true differences of this size",
    )
    return figure
