"""The figure of ``tradeoff.ipynb``: accuracy against time and against memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from harness.stats import MeanInterval
from reports.core.axes import ON_LINES, End, bare, note, titled
from reports.core.style import look, text_colour
from reports.pages.tradeoff.tables import TrainingCosts

SIZE = (9.2, 4.2)
NAME = 7.5
"""Points of a letter of a name."""


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
        where = "axes fraction"
        note(
            axes,
            "not measured on this platform",
            (0.5, 0.5),
            size=9,
            align="center center",
            within=where,
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


@dataclass(frozen=True)
class Box:
    """A rectangle, in points."""

    left: float
    bottom: float
    right: float
    top: float

    def shared(self, other: Box) -> float:
        """Area of the overlap."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, wide) * max(0.0, high)

    @property
    def area(self) -> float:
        """In square points."""
        return (self.right - self.left) * (self.top - self.bottom)


DISTANCES = (9.0, 18.0, 30.0, 44.0, 60.0)
"""Of a label from its marker, in points; the nearest that is free is taken."""
DIRECTIONS = tuple(
    (math.cos(angle), math.sin(angle))
    for angle in (
        math.radians(d) for d in (35, 145, -35, -145, 0, 180, 90, -90, 60, 120, -60, -120)
    )
)


def label_points(axes: Axes, points: Sequence[End], bars: Sequence[Box]) -> None:
    """Write each point's name beside it where it covers no other name, marker or bar if it can.

    Names are placed one after the other, in the nearest of 60 places that covers least; one that
    stands further away has a line to its marker.

    Parameters
    ----------
    bars : sequence of Box
        Error bars, in points of the figure: `span` makes them.
    """
    taken: list[tuple[Box, float]] = [(bar, 0.5) for bar in bars]
    spots = [span(axes, (x, x), (y, y), 4.5) for x, y, _, _ in points]
    taken += [(spot, 2.0) for spot in spots]
    inside = span(axes, axes.get_xlim(), axes.get_ylim(), 0)
    for (x, y, text, ink), spot in zip(points, spots, strict=True):
        wide, high = float(TextPath((0, 0), text, size=NAME).get_extents().width), 1.15 * NAME
        middle = ((spot.left + spot.right) / 2, (spot.bottom + spot.top) / 2)
        best = None
        for distance, (right, up) in itertools.product(DISTANCES, DIRECTIONS):
            at = (middle[0] + distance * right, middle[1] + distance * up)
            # Its near edge lies at the place: text to the left of a marker ends there.
            left = at[0] - (0 if right > 0.3 else wide if right < -0.3 else wide / 2)
            box = Box(left, at[1] - high / 2, left + wide, at[1] + high / 2)
            covered = sum(weight * box.shared(other) for other, weight in taken)
            outside = box.area - box.shared(inside)
            cost = (covered + 3 * outside) / box.area + 0.002 * distance
            if best is None or cost < best[0] - 1e-9:
                best = (cost, box, distance)
        assert best is not None
        _, box, distance = best
        taken.append((box, 3.0))
        line = {
            "arrowstyle": "-",
            "color": ink,
            "linewidth": 0.5,
            "shrinkA": 0,
            "shrinkB": 4,
            "relpos": _nearest(box, middle),
        }
        shift = (box.left - middle[0], (box.bottom + box.top) / 2 - middle[1])
        note(
            axes,
            text,
            (x, y),
            shift,
            ink=ink,
            size=NAME,
            zorder=5,
            arrowprops=line if distance > DISTANCES[0] else None,
            bbox=ON_LINES,
        )


def _nearest(box: Box, point: tuple[float, float]) -> tuple[float, float]:
    """Where on a label, as fractions of it, its line starts: nearest to the marker."""
    across = (point[0] - box.left) / (box.right - box.left)
    up = (point[1] - box.bottom) / (box.top - box.bottom)
    return min(1.0, max(0.0, across)), min(1.0, max(0.0, up))


def span(axes: Axes, x: tuple[float, float], y: tuple[float, float], around: float = 1.0) -> Box:
    """What lies between data coordinates, as a box with some points around it."""
    scale = 72 / axes.figure.dpi
    (left, bottom), (right, top) = (
        (scale * float(a), scale * float(b))
        for a, b in (axes.transData.transform((x[i], y[i])) for i in (0, 1))
    )
    return Box(left - around, bottom - around, right + around, top + around)
