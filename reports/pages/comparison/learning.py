"""Learning curves of ``comparison.ipynb``: over seeds, and honest about runs that end early."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.experiments.conclusion import Comparison
from harness.experiments.replicates import is_ok
from reports.core.axes import End, bare, headed, label_ends, panel, panels, titled
from reports.core.style import pair, text_colour
from reports.pages.comparison.figures import axis_text


@dataclass(frozen=True)
class DevCurves:
    """Dev metric of a model's finished runs by epoch, in the metric's unit.

    `chosen`: of each run the epoch that counts, and its value.
    """

    model: str
    runs: tuple[Mapping[int, float], ...]
    chosen: tuple[tuple[int, float], ...]

    def reached_by(self, share: float) -> int:
        """The last epoch that this share of the runs, or more, came to."""
        least = math.ceil(share * len(self.runs))
        return sorted(map(max, self.runs), reverse=True)[least - 1]

    @property
    def whole(self) -> int:
        """The last epoch that all runs came to; beyond it a median is of those that go on."""
        return self.reached_by(1.0)


def dev_curves(comparison: Comparison) -> tuple[DevCurves, ...]:
    """Of the first model and the second; none of a model whose records tell no epoch."""
    scale, found = comparison.unit.scale, []
    models = (comparison.first, comparison.second)
    for model, runs in zip(models, comparison.sides, strict=True):
        told = [(_curve(r, comparison), r["chosen_epoch"]) for r in runs if is_ok(r)]
        lines = [({e: scale * v for e, v in line.items()}, at) for line, at in told if line]
        dots = tuple((at, line[at]) for line, at in lines if at in line)
        if lines:
            found.append(DevCurves(model, tuple(line for line, _ in lines), dots))
    return tuple(found)


def _curve(run: Mapping[str, Any], comparison: Comparison) -> dict[int, float]:
    values = {int(e["epoch"]): (e.get("dev") or {}) for e in run["epochs"]}
    found = {epoch: dev.get(comparison.metric) for epoch, dev in values.items()}
    return {e: float(v) for e, v in found.items() if v is not None and math.isfinite(v)}


ACROSS = 3
"""Panels of learning curves beside each other."""
UNDER = "line: median; band: middle half; dotted: those that go on; dots: epochs that count"


def learning_curves(comparisons: Sequence[Comparison]) -> Figure | None:
    """Median and interquartile range of the dev metric by epoch; a panel per comparison."""
    told = [(c, some) for c in comparisons if (some := dev_curves(c))]
    if not told:
        return None
    first, title = comparisons[0], f"{comparisons[0].task}: learning curves on dev"
    ylabel = axis_text(first).replace("test", "dev", 1)
    if len(told) == 1:
        figure, axes = panel()
        label_ends(axes, _draw_curves(axes, first, told[0][1]))
        axes.set_xlabel("epoch")
        axes.set_ylabel(ylabel, fontsize=8.5)
        titled(axes, title, UNDER)
        return figure
    each, edges, gaps = (2.3, 1.55), (0.7, 0.1, 0.45, 0.85), (0.2, 0.55)
    figure, grid = panels(len(told), ACROSS, each, edges, gaps, sharex=True, sharey=True)
    for axes, (c, some) in zip(grid.flat, told, strict=False):
        _draw_curves(axes, c, some)
        axes.set_title(c.first, fontsize=8, loc="left", color=pair(c.first, c.second)[0])
    for axes in grid.flat[max(0, len(told) - ACROSS) : len(told)]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("epoch", fontsize=8.5)
    for axes in grid[:, 0]:
        axes.set_ylabel(ylabel, fontsize=7.5)
    headed(figure, f"{title}, each beside {first.second}", UNDER, gap=0.22 / figure.get_figheight())
    return figure


def _draw_curves(axes: Axes, c: Comparison, some: Sequence[DevCurves]) -> list[End]:
    """The models of a comparison on one panel; returns where their names stand."""
    ends: list[End] = []
    inks = dict(zip((c.first, c.second), pair(c.first, c.second), strict=True))
    for one in some:
        ink, whole = inks[one.model], one.whole
        drawn = [(e, v) for run in one.runs for e, v in run.items() if e <= whole]
        seaborn.lineplot(
            x=[e for e, _ in drawn],
            y=[v for _, v in drawn],
            estimator="median",
            errorbar=("pi", 50),
            color=ink,
            linewidth=1.8,
            legend=False,
            err_kws={"alpha": 0.2, "linewidth": 0, "label": f"{one.model}: middle half"},
            ax=axes,
        )
        axes.lines[-1].set_label(f"{one.model}: median of {len(one.runs)} runs")
        longer = range(whole, one.reached_by(0.5) + 1)
        rest = [float(np.median([run[e] for run in one.runs if e in run])) for e in longer]
        if len(rest) > 1:
            name = f"{one.model}: those that go on"
            axes.plot(longer, rest, ":", color=ink, linewidth=1.4, label=name)
        dots: dict[str, Any] = {"color": ink, "markersize": 3.5, "alpha": 0.8, "clip_on": False}
        at, height = [e for e, _ in one.chosen], [v for _, v in one.chosen]
        axes.plot(at, height, "o", label=f"{one.model}: chosen epochs", **dots)
        ends.append((float(longer[-1]), rest[-1], one.model, text_colour(ink)))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    bare(axes)
    axes.margins(x=0.02)
    right = max(x for x, *_ in ends)  # names that stand under each other never meet
    return [(right, y, name, ink) for _, y, name, ink in ends]
