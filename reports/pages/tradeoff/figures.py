"""The figure of ``tradeoff.ipynb``: accuracy against time and against memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from reports.core.axes import Box, bare, label_points, span, titled
from reports.core.style import look, text_colour
from reports.pages.tradeoff.pareto import MeanInterval

if TYPE_CHECKING:
    from reports.pages.tradeoff.costs import TrainingCosts

SIZE = (9.2, 4.2)


def front(task: str, found: Sequence[TrainingCosts], standing: Mapping[str, str]) -> Figure:
    """Two panels with one metric axis; filled markers are on the front of all three."""
    figure = Figure(figsize=SIZE)
    time, memory = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.075, right=0.985, bottom=0.125, top=0.85, wspace=0.06)
    _panel(time, found, standing, lambda c: c.seconds, 1.0)
    _panel(memory, found, standing, lambda c: c.peak_bytes, 2.0**20)
    first = found[0].model
    better = "higher" if first.higher_is_better else "lower"
    time.set_ylabel(f"test {first.unit.named(first.metric)}, {better} is better", fontsize=8.5)
    time.set_xlabel("time of a training epoch (s)", fontsize=8.5)
    memory.set_xlabel("peak memory of training (MiB)", fontsize=8.5)
    titled(time, f"{task}: {first.metric}, time", "filled: on the Pareto front of all three")
    titled(memory, f"{first.metric}, memory", "bars: 95 % t-intervals over seeds or folds")
    return figure


def _panel(
    axes: Axes,
    found: Sequence[TrainingCosts],
    standing: Mapping[str, str],
    cost: Callable[[TrainingCosts], MeanInterval],
    unit: float,
) -> None:
    shown = [c for c in found if not math.isnan(cost(c).mean)]
    for c in shown:
        style, x, y = look(c.model.mechanism), cost(c), c.metric
        filled = standing[c.model.model] == "on the front"
        axes.errorbar(
            [x.mean / unit],
            [y.mean],
            xerr=_reach(x, unit),
            yerr=_reach(y, 1.0),
            color=style.colour,
            marker=style.marker,
            markersize=7.5,
            linestyle="none",
            markerfacecolor=style.colour if filled else "white",
            capsize=2,
            linewidth=1.2,
            label=c.model.model,
        )
    axes.set_xscale("log")
    axes.margins(x=0.22, y=0.14)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.4g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    bare(axes)
    label_points(
        axes,
        [
            (
                cost(c).mean / unit,
                c.metric.mean,
                c.model.model,
                text_colour(look(c.model.mechanism).colour),
            )
            for c in shown
        ],
        [box for c in shown for box in _bars(axes, cost(c), c.metric, unit)],
    )
    if not shown:
        axes.annotate(
            "not measured on this platform",
            (0.5, 0.5),
            xycoords="axes fraction",
            ha="center",
            fontsize=9,
            color="0.45",
        )


def _bars(axes: Axes, x: MeanInterval, y: MeanInterval, unit: float) -> list[Box]:
    """Both intervals of a point, as boxes that labels should not cover."""
    at = x.mean / unit, y.mean
    found = []
    if not math.isnan(x.low):
        ends = (max(x.low / unit, axes.get_xlim()[0]), x.high / unit)
        found.append(span(axes, ends, (at[1], at[1])))
    if not math.isnan(y.low):
        found.append(span(axes, (at[0], at[0]), (y.low, y.high)))
    return found


def _reach(e: MeanInterval, unit: float) -> list[list[float]] | None:
    """How far an interval goes to both sides; None without one, or with one that reaches zero."""
    if math.isnan(e.low):
        return None
    return [[max(0.0, e.mean - e.low) / unit], [max(0.0, e.high - e.mean) / unit]]
