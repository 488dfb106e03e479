"""The figure of ``tradeoff.ipynb``: accuracy against time and against memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from harness.stats import MeanInterval
from reports.core.axes import bare, label_ends, note, titled
from reports.core.style import look, text_colour
from reports.pages.tradeoff.tables import TrainingCosts

SIZE = (9.2, 4.2)


def front(task: str, found: Sequence[TrainingCosts], standing: Mapping[str, str]) -> Figure:
    """Two panels with one metric axis; filled markers are on the front of all three.

    Names stand at the right, each at the height of its metric in both panels.
    """
    figure = Figure(figsize=SIZE)
    time, memory = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.075, right=0.79, bottom=0.125, top=0.85, wspace=0.06)
    _panel(time, found, standing, lambda c: c.seconds, 1.0)
    _panel(memory, found, standing, lambda c: c.peak_bytes, 2.0**20)
    edge, ends = memory.get_xlim()[1], []
    for c in found:
        ink, x, y = text_colour(look(c.model.mechanism).colour), c.peak_bytes.mean, c.metric.mean
        ends.append((edge, y, c.model.model, ink))
        memory.plot([x / 2**20, edge], [y, y], color=ink, linewidth=0.6, linestyle=":", zorder=1)
    memory.set_xlim(right=edge)
    label_ends(memory, ends, 7.5)
    first = found[0].model
    better = "higher" if first.higher_is_better else "lower"
    time.set_ylabel(f"test {first.unit.named(first.metric)}, {better} is better", fontsize=8.5)
    time.set_xlabel("time of a training epoch (s)", fontsize=8.5)
    memory.set_xlabel("peak memory of training (MiB)", fontsize=8.5)
    short = task.partition("[")[0]  # the caption has it in full; here it would reach the next panel
    titled(time, f"{short}: {first.metric}, time", "filled: on the Pareto front of all three")
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
    axes.margins(x=0.08, y=0.08)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.4g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    bare(axes)
    if not shown:
        where = "axes fraction"
        text, at = "not measured on this platform", (0.5, 0.5)
        note(axes, text, at, size=9, align="center center", within=where)


def _reach(e: MeanInterval, unit: float) -> list[list[float]] | None:
    """How far an interval goes to both sides; None without one, or with one that reaches zero."""
    if math.isnan(e.low):
        return None
    return [[max(0.0, e.mean - e.low) / unit], [max(0.0, e.high - e.mean) / unit]]
