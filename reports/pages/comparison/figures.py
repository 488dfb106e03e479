"""Figures of ``comparison.ipynb``: every seed is seen, never only a mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.experiments.comparison import Comparison
from harness.experiments.tables import interval
from harness.experiments.wording import Unit
from reports.core.axes import MARGINS, SIZE, bare, label_ends, titled
from reports.core.figure_data import INTERVAL
from reports.core.forest import Line
from reports.core.forest import forest as plot
from reports.core.style import SOFT, colour, mechanism_of, pair


def _axis_text(comparison: Comparison) -> str:
    better = "higher" if comparison.higher_is_better else "lower"
    return f"test {comparison.unit.named(comparison.metric)}, {better} is better"


def _winner(comparison: Comparison, first: float, second: float) -> str:
    """Colour of the model that is better for a seed."""
    a, b = pair(comparison.first, comparison.second)
    if first == second:
        return SOFT
    return a if (first > second) == comparison.higher_is_better else b


def _two_models(comparison: Comparison, left: float, right: float) -> tuple[Figure, Axes]:
    """Room for a value of the second model at 0 and of the first at 1."""
    figure = Figure(figsize=SIZE)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.15, right=0.85, bottom=0.12, top=0.84)
    bare(axes)
    axes.grid(False)
    axes.set_xticks([0, 1], [comparison.second, comparison.first], fontsize=9.5)
    axes.set_xlim(left, right)
    axes.margins(y=0.1)
    axes.set_ylabel(_axis_text(comparison), fontsize=8.5)
    return figure, axes


def slope_chart(comparison: Comparison) -> Figure:
    """One line per seed from the second model's test metric to the first's."""
    figure, axes = _two_models(comparison, -0.42, 1.08)
    scale = comparison.unit.scale
    for number, first, second in comparison.values:
        ink = _winner(comparison, first, second)
        axes.plot([0, 1], [scale * second, scale * first], "o-", color=ink, linewidth=1.3,
                  markersize=4.5, alpha=0.85, label=f"{comparison.replicate} {number}")  # fmt: skip
    d = comparison.difference
    if d is not None:
        axes.plot([0, 1], [scale * d.mean_second, scale * d.mean_first], "D-", color="black",
                  linewidth=2.6, markersize=7, label="mean")  # fmt: skip
    _label_seeds(axes, comparison)
    titled(
        axes,
        f"{comparison.task}: every {comparison.replicate}",
        f"one line per {comparison.replicate}, coloured by the model that did better; black: means",
    )
    return figure


def groups(comparison: Comparison) -> Figure:
    """Unpaired: a point per run beside its model's mean; no line joins what is not paired."""
    figure, axes = _two_models(comparison, -0.3, 1.4)
    unit, d = comparison.unit, comparison.difference
    inks = pair(comparison.first, comparison.second)
    sides = [(1, comparison.first, inks[0], 1), (0, comparison.second, inks[1], 2)]
    for x, model, ink, column in sides:
        values = [unit.scale * float(row[column]) for row in comparison.values]
        there = [v for v in values if not math.isnan(v)]
        axes.plot([x] * len(there), there, "o", color=ink, markersize=4.5, alpha=0.85,
                  label=f"{model}: every seed")  # fmt: skip
    for x, mean in () if d is None else ((1, d.mean_first), (0, d.mean_second)):
        axes.plot([x + 0.1], [unit.scale * mean], "D", color="black", markersize=7, label="mean")
        axes.annotate(
            f"mean {unit.value(mean)}", (x + 0.1, unit.scale * mean), xytext=(9, 0),
            textcoords="offset points", fontsize=8, ha="left", va="center", annotation_clip=False,
        )  # fmt: skip
    titled(axes, f"{comparison.task}: every seed, unpaired", "a point per run; black: means")
    return figure


def _label_seeds(axes: Axes, comparison: Comparison) -> None:
    unit, d = comparison.unit, comparison.difference
    ends = [
        (
            1.0,
            unit.scale * first,
            f"{comparison.replicate} {seed}",
            _winner(comparison, first, second),
        )
        for seed, first, second in comparison.values
    ]
    if d is not None:
        ends.append((1.0, unit.scale * d.mean_first, f"mean {unit.value(d.mean_first)}", "black"))
        axes.annotate(
            f"mean {unit.value(d.mean_second)}", (0, unit.scale * d.mean_second), xytext=(-9, 0),
            textcoords="offset points", fontsize=8, ha="right", va="center", annotation_clip=False,
            bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.4},
        )  # fmt: skip
    label_ends(axes, ends)


def differences(comparison: Comparison) -> Figure:
    """Difference of every seed, and their mean with its 95 % t-interval; unpaired the mean only."""
    unit, d = comparison.unit, comparison.difference
    values = comparison.values if comparison.paired else ()
    height = 1.5 + 0.24 * (len(values) + 1)
    figure = Figure(figsize=(SIZE[0], height))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.12, right=0.84, bottom=0.55 / height, top=1 - 0.75 / height)
    for y, (number, first, second) in enumerate(values):
        value = unit.scale * (first - second)
        axes.plot([0, value], [y, y], color="0.85", linewidth=1, zorder=0)
        axes.plot([value], [y], "o", color=_winner(comparison, first, second), markersize=5.5,
                  label=f"{comparison.replicate} {number}")  # fmt: skip
    labels = [f"{comparison.replicate} {seed}" for seed, *_ in values]
    if d is not None:
        below = len(values) + 0.3
        if not math.isnan(d.low):
            axes.plot(
                [unit.scale * d.low, unit.scale * d.high],
                [below, below],
                color="black",
                linewidth=2.4,
                label="mean" + INTERVAL,
            )
        axes.plot(
            [unit.scale * d.difference], [below], "D", color="black", markersize=7, label="mean"
        )
        labels.append("mean")
        text = unit.difference(d.difference)
        if not math.isnan(d.low):
            text += f"\n{interval(unit, d)}"
        axes.annotate(
            text, (1.02, below), xycoords=axes.get_yaxis_transform(), fontsize=8, va="center",
            annotation_clip=False,
        )  # fmt: skip
    if comparison.margin is not None:
        edge = unit.scale * comparison.margin
        axes.axvspan(-edge, edge, color="0.5", alpha=0.15, linewidth=0)
    axes.axvline(0, color="0.4", linewidth=1, zorder=0)
    axes.set_ylim(len(values) + 0.9, -0.6)
    places = [*range(len(values)), *([len(values) + 0.3] if d is not None else [])]
    axes.set_yticks(places, labels, fontsize=8)
    bare(axes)
    axes.grid(False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    of = " (points)" if unit.of_differences else ""
    axes.set_xlabel(f"{comparison.first} minus {comparison.second}{of}", fontsize=8.5)
    band = "; grey: the declared margin" if comparison.margin is not None else ""
    better = "right" if comparison.higher_is_better else "left"
    by = f"by {comparison.replicate}" if comparison.paired else "(of means, unpaired)"
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
        Line(
            c.first + ("" if c.paired else " (unpaired)"), mechanism_of(c.first),
            scale * d.difference, scale * d.low, scale * d.high,
            c.verdict in ("better", "worse", "practically equal"),
            tuple(scale * (a - b) for _, a, b in c.values) if c.paired else (),
        )
        for c in comparisons
        if (d := c.difference) is not None
    ]  # fmt: skip
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


def learning_curves(comparisons: Sequence[Comparison]) -> Figure | None:
    """Dev metric by epoch: a mean per model; of two models every seed too, dots where chosen."""
    first, alone = comparisons[0], len(comparisons) == 1
    unit = first.unit
    figure = Figure(figsize=SIZE)
    axes = figure.subplots()
    figure.subplots_adjust(**MARGINS)
    ends = []
    for model, ink, runs in _models(comparisons):
        curves = [(curve, run.get("chosen_epoch")) for run in runs if (curve := _curve(run, first))]
        for curve, chosen in curves if alone else ():
            x, y = _points(curve, unit)
            axes.plot(x, y, color=ink, linewidth=0.8, alpha=0.35, label=f"{model}, one run")
            if chosen in curve:
                at = unit.scale * curve[chosen]
                axes.plot([chosen], [at], "o", color=ink, markersize=3.5, alpha=0.8)
        mean = _mean_curve([curve for curve, _ in curves])
        if mean:
            x, y = _points(mean, unit)
            axes.plot(x, y, color=ink, linewidth=2.4 if alone else 1.4, label=f"{model}, mean")
            ends.append((float(x[-1]), y[-1], model, ink))
    if not ends:
        return None
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel(_axis_text(first).replace("test", "dev", 1), fontsize=8.5)
    bare(axes)
    axes.margins(x=0.02)
    label_ends(axes, ends)
    under = "a line per model: the mean while all its runs go on"
    if alone:
        under = "thin: seeds; thick: mean while all run; dots: the epoch tested"
    titled(axes, f"{first.task}: learning curves on dev", under)
    return figure


def _models(
    comparisons: Sequence[Comparison],
) -> Iterator[tuple[str, str, Sequence[Mapping[str, Any]]]]:
    """Every model with its colour and its runs, the baseline last."""
    first = comparisons[0]
    inks = pair(first.first, first.second)
    if len(comparisons) == 1:
        yield first.first, inks[0], first.sides[0]
    else:
        for c in comparisons:
            yield c.first, colour(mechanism_of(c.first)), c.sides[0]
    yield first.second, inks[1], first.sides[1]


def _points(curve: Mapping[int, float], unit: Unit) -> tuple[list[int], list[float]]:
    x = sorted(curve)
    return x, [unit.scale * curve[epoch] for epoch in x]


def _curve(run: Mapping[str, Any], comparison: Comparison) -> dict[int, float]:
    """Dev metric by epoch."""
    values = {int(e["epoch"]): (e.get("dev") or {}) for e in run.get("epochs") or ()}
    found = {epoch: dev.get(comparison.metric) for epoch, dev in values.items()}
    return {e: float(v) for e, v in found.items() if v is not None and math.isfinite(v)}


def _mean_curve(curves: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Mean over seeds at every epoch that all of them reached: a mean of survivors misleads."""
    if not curves:
        return {}
    common = set.intersection(*(set(c) for c in curves))
    return {e: float(np.mean([c[e] for c in curves])) for e in sorted(common)}
