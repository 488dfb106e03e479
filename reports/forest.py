"""Forest plots: differences with their intervals, one below the other, beside zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from reports.axes import bare
from reports.drawn import INTERVAL
from reports.scaling_figures import SIZE, titled
from reports.style import NOT_SHOWN, look

MOST_SINGLES = 10
"""So many replicates are drawn one by one; of more only the mean."""


@dataclass(frozen=True)
class Line:
    """One row.

    Attributes
    ----------
    label : str
    mechanism : str
        For colour and marker.
    value, low, high : float
        The interval is nan where there is none.
    decided : bool
        Otherwise it is grey.
    singles : tuple of float
        Of every replicate.
    hollow : bool
        A number from a paper, not measured here.
    """

    label: str
    mechanism: str
    value: float
    low: float
    high: float
    decided: bool
    singles: tuple[float, ...] = ()
    hollow: bool = False


def forest(
    lines: Sequence[Line], title: str, under: str, xlabel: str, margin: float | None = None
) -> Figure:
    """Draw the rows; zero is a line, the margin a band around it."""
    height = 1.5 + 0.31 * len(lines)
    figure = Figure(figsize=(SIZE[0], height))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.36, right=0.97, bottom=0.55 / height, top=1 - 0.72 / height)
    for y, line in enumerate(lines):
        style = look(line.mechanism)
        ink = style.colour if line.decided else NOT_SHOWN
        if 1 < len(line.singles) <= MOST_SINGLES:
            axes.plot(
                line.singles, [y] * len(line.singles), "|", color=ink, alpha=0.55, markersize=6,
                label=f"{line.label}: every replicate", zorder=1,
            )  # fmt: skip
        if not math.isnan(line.low):
            axes.plot(
                [line.low, line.high], [y, y], color=ink, linewidth=2, solid_capstyle="butt",
                linestyle=":" if line.hollow else "-", label=line.label + INTERVAL,
            )  # fmt: skip
        axes.plot(
            [line.value], [y], style.marker, color=ink, markersize=6.5, label=line.label,
            markerfacecolor="white" if line.hollow else ink,
        )  # fmt: skip
    if margin is not None:
        axes.axvspan(-margin, margin, color="0.5", alpha=0.15, linewidth=0)
    axes.axvline(0, color="0.4", linewidth=1, zorder=0)
    axes.set_ylim(len(lines) - 0.4, -0.7)
    axes.set_yticks(range(len(lines)), [line.label for line in lines], fontsize=8)
    bare(axes)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(xlabel, fontsize=8.5)
    titled(axes, title, under)
    return figure
