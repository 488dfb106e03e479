"""Forest plots: differences with their intervals beside zero; critical-difference diagrams."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scikit_posthocs import critical_difference_diagram

from harness.stats import ALPHA, MeanDifference, Ties
from reports.core.axes import headed, name_rows, panel, row_panel, titled
from reports.core.axes import panels as grid_of
from reports.core.figure_data import INTERVAL
from reports.core.page import Output, Shown, says, together
from reports.core.style import BLACK, NOT_SHOWN, Look, colour, look, mechanism_of, text_colour

BENEATH = 0.24
"""Of a row, from what was measured to what is printed."""
MOST_SINGLES = 10
"""So many replicates are drawn one by one; of more only the mean."""
ROW = 0.22
"""Inches of a name, or of a bar."""
NAMED = "{label} ({rank:.2f})"


@dataclass(frozen=True)
class Line:
    """One row.

    `mechanism` decides colour and marker unless it has a `style`. The interval is nan where there
    is none; what is not `decided` is grey. `singles` are those of every replicate. `hollow`: a
    number from a paper, not measured here, or of the other pass. `printed`: what a paper prints for
    it, a hollow marker beneath; nan for none.
    """

    label: str
    mechanism: str
    value: float
    low: float
    high: float
    decided: bool
    singles: tuple[float, ...] = ()
    hollow: bool = False
    style: Look | None = None
    printed: float = math.nan

    @classmethod
    def of(cls, label: str, mechanism: str, d: MeanDifference, scale: float, **more: Any) -> Line:
        """A difference with its interval, scaled; its pairs are the replicates."""
        singles = tuple(scale * one for one in d.differences)
        ends = (scale * d.difference, scale * d.low, scale * d.high)
        return cls(label, mechanism, *ends, **{"singles": singles, **more})

    @property
    def drawn(self) -> Look:
        """Its marker and colour, grey where nothing is decided."""
        style = self.style or look(self.mechanism)
        return style if self.decided else Look(NOT_SHOWN, style.marker)


def forest(
    lines: Sequence[Line],
    title: str,
    under: str,
    xlabel: str,
    margin: float | None = None,
    centre: float = 0.0,
) -> Figure:
    """Draw the rows; the centre is a line, the margin a band around it.

    Around a centre of 1 the margin is a factor: these are ratios.
    """
    figure, axes = row_panel(len(lines))
    draw_rows(axes, dict(enumerate(lines)))
    if margin is not None:
        low, high = (1 / margin, margin) if centre == 1 else (centre - margin, centre + margin)
        axes.axvspan(low, high, color="0.5", alpha=0.15, linewidth=0)
    dress(axes, [line.label for line in lines], xlabel, centre)
    titled(axes, title, under)
    return figure


@dataclass(frozen=True)
class Panel:
    """One of several forest plots that share their rows, by the names at the left."""

    title: str
    xlabel: str
    lines: Mapping[str, Line]


COLUMNS = 3
"""Panels beside each other."""


def forests(
    panels: Sequence[Panel], under: str, centre: float | None = 0.0, names: float = 1.5
) -> Figure:
    """Panels that share their rows with those beside them, named once at the left.

    `under` stands below the first title; `names` is the room of the names, in inches.
    """
    beside = [panels[i : i + COLUMNS] for i in range(0, len(panels), COLUMNS)]
    rows = [sorted({name for one in some for name in one.lines}) for some in beside]
    heights, lines = [0.23 + 0.24 * len(r) for r in rows], max(p.xlabel.count("\n") for p in panels)
    edges, gaps = (names, 0.1, 0.5 + 0.14 * lines, 0.62), (0.2, 1.12)
    figure, grid = grid_of(len(panels), COLUMNS, (2.2, heights), edges, gaps)
    for number, (axes, one) in enumerate(zip(grid.flat, panels, strict=False)):
        named = rows[number // COLUMNS]
        draw_rows(axes, {y: one.lines[n] for y, n in enumerate(named) if n in one.lines})
        dress(axes, named if number % COLUMNS == 0 else [""] * len(named), one.xlabel, centre)
        titled(axes, one.title, under if number == 0 else "")
    return figure


def draw_rows(axes: Axes, lines: Mapping[float, Line]) -> None:
    """Each row at its height: a strip of replicates, the interval, the mean."""
    for y, line in lines.items():
        ink, marker = line.drawn.colour, line.drawn.marker
        if 1 < len(line.singles) <= MOST_SINGLES:
            seaborn.stripplot(
                x=list(line.singles),
                y=[y] * len(line.singles),
                orient="h",
                native_scale=True,
                jitter=False,
                legend=False,
                marker="|",
                size=6,
                linewidth=1.1,
                color=ink,
                edgecolor=ink,
                alpha=0.6,
                zorder=1,
                ax=axes,
            )
            axes.collections[-1].set_label(f"{line.label}: every replicate")
        if not math.isnan(line.low):
            axes.plot(
                [line.low, line.high],
                [y, y],
                color=ink,
                linewidth=2,
                solid_capstyle="butt",
                linestyle=":" if line.hollow else "-",
                label=line.label + INTERVAL,
            )
        axes.plot(
            [line.value],
            [y],
            marker,
            color=ink,
            markersize=6.5,
            label=line.label,
            markerfacecolor="white" if line.hollow else ink,
        )
        if not math.isnan(line.printed):
            axes.plot(
                [line.printed],
                [y + BENEATH],
                marker,
                color=(line.style or look(line.mechanism)).colour,
                markersize=5,
                markerfacecolor="white",
                label=f"{line.label}: printed",
            )


def dress(axes: Axes, names: Sequence[str], xlabel: str, centre: float | None = 0.0) -> None:
    """Names at the left, and a line at the centre, if there is one."""
    name_rows(axes, names, xlabel)
    if centre is not None:
        axes.axvline(centre, color="0.4", linewidth=1, zorder=0)
    axes.grid(visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=2))
    axes.tick_params(axis="x", labelsize=8)


def ties_shown(
    place: Output, name: str, ties: Ties, where: str, units: str, said: Sequence[str]
) -> Shown:
    """The diagram of models ranked inside of tasks or seeds, and below it what is said of them."""
    caption = f"{where}: mean ranks of {len(ties.omnibus.ranks)} models, and which are tied."
    figure = place.figure(name, lambda: critical_differences(ties, where, units), caption)
    return together(figure, says(f"{one}." for one in said))


def critical_differences(ties: Ties, where: str, units: str) -> Figure:
    """Models at their mean ranks, the best at the left; dots on one bar are tied.

    Drawn by scikit-posthocs, of the groups alone: two models are apart where none holds both.
    """
    models = list(ties.omnibus.ranks)
    joined = [[any({a, b} <= set(g) for g in ties.groups) for b in models] for a in models]
    apart = pd.DataFrame(np.where(joined, 1.0, 0.0), models, models)
    bars = [group for group in ties.groups if len(group) > 1]
    rows = math.ceil(len(models) / 2) + len(bars) + 1
    height = 1.15 + ROW * rows
    margins = {"left": 0.29, "right": 0.71, "bottom": 0.12 / height, "top": 1 - 0.8 / height}
    figure, axes = panel((7.4, height), margins)
    axes.grid(visible=False)
    drawn = critical_difference_diagram(
        dict(ties.omnibus.ranks),
        apart,
        alpha=ALPHA,
        ax=axes,
        label_fmt_left=NAMED,
        label_fmt_right=NAMED,
        label_props={"fontsize": 8},
        marker_props={"s": 22},
        elbow_props={"linewidth": 1},
        crossbar_props={"color": BLACK, "linewidth": 2.6, "marker": "o", "markersize": 5},
        color_palette={model: text_colour(colour(mechanism_of(model))) for model in models},
        text_h_margin=0.02 * len(models),
    )
    # The library names nothing that it draws.
    for text, point in zip(drawn["labels"], drawn["markers"], strict=True):
        point.set_label(text.get_text().rpartition(" (")[0])
    for (bar,) in drawn["crossbars"]:
        bar.set_xdata(sorted(bar.get_xdata()))  # in another order every time, as it has it of a set
        bar.set_label(f"not told apart: {len(bar.get_xdata())} models")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(axis="x", labelsize=8)
    bars_are = (
        "dots on one bar: not told apart" if ties.possible else f"too few {units} to tell any apart"
    )
    under = f"mean rank over {ties.omnibus.blocks} {units}, 1 is best; {bars_are}"
    headed(figure, f"{where}: what can't be told apart", under, left=0.29, gap=0.2 / height)
    return figure
