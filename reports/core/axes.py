"""What all figures share: panels, logarithmic axes, and names beside lines and points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import Formatter, FuncFormatter, LogLocator, NullFormatter, NullLocator
from scipy.optimize import isotonic_regression

from reports.core.style import SOFT

SIZE = (5.7, 4.2)
MARGINS = {"left": 0.125, "right": 0.7, "bottom": 0.12, "top": 0.86}
"""The same in all, so that they stand under each other; names are written at the right."""
End = tuple[float, float, str, str]
"""x, y, text and colour of a label."""


def panel(
    size: tuple[float, float] = SIZE, margins: Mapping[str, float] = MARGINS
) -> tuple[Figure, Axes]:
    """A figure with one panel; names stand at the right of it."""
    figure = Figure(figsize=size)
    axes = figure.subplots()
    figure.subplots_adjust(**margins)
    return figure, axes


def panels(
    count: int,
    across: int,
    each: tuple[float, float | Sequence[float]],
    edges: tuple[float, float, float, float],
    gaps: tuple[float, float] = (0.2, 0.0),
    **share: Any,
) -> tuple[Figure, Any]:
    """Rows of panels; inches of each, at the left, right, below, above, and between.

    Each is of one size, or has the height of its row.
    """
    columns, rows = min(across, count), math.ceil(count / across)
    heights = each[1] if isinstance(each[1], Sequence) else [each[1]] * rows
    left, right, bottom, top = edges
    width = left + right + columns * each[0] + (columns - 1) * gaps[0]
    height = bottom + top + sum(heights) + (rows - 1) * gaps[1]
    figure = Figure(figsize=(width, height))
    drawn = figure.subplots(rows, columns, squeeze=False, height_ratios=heights, **share)
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        bottom=bottom / height,
        top=1 - top / height,
        wspace=gaps[0] / each[0],
        hspace=gaps[1] * rows / sum(heights),
    )
    for axes in drawn.flat[count:]:
        axes.set_axis_off()
    return figure, drawn


def row_panel(
    count: int,
    left: float = 0.36,
    right: float = 0.97,
    *,
    each: float = 0.31,
    width: float = SIZE[0],
) -> tuple[Figure, Axes]:
    """A panel that is as high as its rows need.

    `left` and `right`: where it begins and ends, names stand before it, remarks behind it; `each`
    and `width`: inches of a row, and of the figure.
    """
    height = 1.45 + each * count
    margins = {"left": left, "right": right, "bottom": 0.55 / height, "top": 1 - 0.7 / height}
    return panel((width, height), margins)


def name_rows(axes: Axes, names: Sequence[str], xlabel: str, size: float = 8) -> None:
    """Rows from the top down, with their names at the left and no axis beside these."""
    axes.set_yticks(range(len(names)), names, fontsize=size)
    axes.set_ylim(len(names) - 0.4, -0.7)
    bare(axes)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(xlabel, fontsize=8.5)


def note(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    shift: tuple[float, float] = (0, 0),
    *,
    ink: str = SOFT,
    size: float = 7.5,
    align: str = "left center",
    within: Any = "data",
    **more: Any,
) -> None:
    """Write beside a place, shifted by points; it may stand outside of the axes.

    `align` is which part of the text stands there, across and up (``right center``), `within` of
    which coordinates the place is.
    """
    across, up = align.split()
    axes.annotate(
        text,
        at,
        xytext=shift,
        xycoords=within,
        textcoords="offset points",
        fontsize=size,
        ha=across,
        va=up,
        color=ink,
        annotation_clip=False,
        **more,
    )


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Ascending positions, moved as little as possible (least squares) to be a gap apart."""
    steps = gap * np.arange(len(positions))
    # Without the gaps that they must have they only may not fall.
    moved = isotonic_regression(np.asarray(positions) - steps).x + steps
    return [float(place) for place in moved]


def below(places: Sequence[float], top: float, apart: float) -> list[float]:
    """Places, sorted, moved down so that none lies above `top`, where a title stands."""
    moved: list[float] = []
    for place in reversed(places):
        moved.append(min(place, moved[-1] - apart if moved else top))
    return moved[::-1]


ON_LINES = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.4}
"""Ground of a text that lines may run under."""


def label_ends(axes: Axes, ends: Sequence[End], size: float = 8) -> None:
    """Write each line's name at its right end, moved apart where two would overlap.

    Lines that end at another length are labelled by themselves.
    """
    if not ends:
        return
    axes.autoscale_view()  # a figure without a canvas never draws: its limits would be old ones
    scale = 72 / axes.figure.dpi
    for x in dict.fromkeys(end[0] for end in ends):
        column = sorted(
            (float(axes.transData.transform((x, y))[1]) * scale, y, text, ink)
            for at, y, text, ink in ends
            if at == x
        )
        top = float(axes.transAxes.transform((0, 1))[1]) * scale
        places = below(spread([points for points, *_ in column], 1.3 * size), top, 1.3 * size)
        for place, (points, y, text, ink) in zip(places, column, strict=True):
            note(
                axes, text, (x, y), (8, place - points), ink=ink, size=size, zorder=5, bbox=ON_LINES
            )


def bare(axes: Axes) -> None:
    """Only what carries information: no frame above and at the right, a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


class LengthFormatter(Formatter):
    """Lengths with thousands separated; one that would touch a longer one's label has none.

    The longest is always named, its tick marks stay: what can be read is settled when the figure is
    drawn, from the room that the x axis has then.
    """

    def __init__(self, of: Axes) -> None:
        self.of = of

    def __call__(self, x: float, pos: int | None = None) -> str:
        """One label, whatever stands beside it."""
        return f"{x:,.0f}"

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Labels of ascending lengths; those without room are empty."""
        size = float(self.of.xaxis.get_major_ticks(1)[0].label1.get_fontsize())
        left = math.inf
        labels = []
        for value in reversed(values):
            text = self(value)
            width = float(TextPath((0, 0), text, size=size).get_extents().width)
            at = float(self.of.transData.transform((value, 1))[0]) * 72 / self.of.figure.dpi
            fits = at + width / 2 + 0.4 * size <= left
            labels.append(text if fits else "")
            left = at - width / 2 if fits else left
        return labels[::-1]


def length_axis(axes: Axes, lengths: Sequence[float]) -> None:
    """Sequence length on a logarithmic axis, ticks where it was measured."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(lengths)))
    axes.xaxis.set_major_formatter(LengthFormatter(axes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("sequence length N (tokens)")
    bare(axes)


def value_axis(axes: Axes) -> None:
    """Time or memory on a logarithmic axis, ticks at 1, 2, 5."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 1 else f"{v:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.margins(y=0.08)


def ratio_axis(axes: Axes) -> None:
    """Ratios on a logarithmic axis: twice and half are equally far from one."""
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}x"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def headed(
    figure: Figure, title: str, under: str = "", *, left: float = 0.012, gap: float = 0.07
) -> None:
    """The title of a figure of several panels, and under it in grey how it is drawn.

    `left` and `gap`, where both begin and how far apart they are, are shares of the figure.
    """
    figure.text(left, 0.985, title, fontsize=10.5, fontweight="bold", va="top")
    if under:
        figure.text(left, 0.985 - gap, under, fontsize=8, color=SOFT, va="top")


def titled(axes: Axes, title: str, under: str) -> None:
    """What is drawn, and under it in grey for what."""
    note(
        axes,
        title,
        (0, 1),
        (0, 20),
        ink="black",
        size=10.5,
        align="left baseline",
        within="axes fraction",
        fontweight="bold",
    )
    note(axes, under, (0, 1), (0, 7), size=8, align="left baseline", within="axes fraction")
