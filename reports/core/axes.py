"""What all figures share: lengths on a logarithmic axis, names written at the line ends."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.textpath import TextPath
from matplotlib.ticker import Formatter, FuncFormatter, LogLocator, NullFormatter, NullLocator

from reports.core.style import SOFT

SIZE = (5.7, 4.2)
MARGINS = {"left": 0.125, "right": 0.7, "bottom": 0.12, "top": 0.86}
"""The same in all, so that they stand under each other; names are written at the right."""
End = tuple[float, float, str, str]
"""x, y, text and colour of a label."""


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Positions moved as little as possible (least squares) so that they are a gap apart.

    Parameters
    ----------
    positions : sequence of float
        In ascending order, which is kept.
    """
    blocks: list[list[float]] = []  # each the reduced positions that must share one value
    for i, position in enumerate(positions):
        blocks.append([position - i * gap])
        while len(blocks) > 1 and _mean(blocks[-2]) >= _mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    level = [_mean(block) for block in blocks for _ in block]
    return [value + i * gap for i, value in enumerate(level)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def below(places: Sequence[float], top: float, apart: float) -> list[float]:
    """Places, sorted, moved down so that none lies above `top`, where a title stands."""
    moved: list[float] = []
    for place in reversed(places):
        moved.append(min(place, moved[-1] - apart if moved else top))
    return moved[::-1]


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
            axes.annotate(
                text,
                (x, y),
                xytext=(8, place - points),
                textcoords="offset points",
                color=ink,
                fontsize=size,
                va="center",
                annotation_clip=False,
                zorder=5,
                bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.4},
            )


def bare(axes: Axes) -> None:
    """Only what carries information: no frame above and at the right, a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


class LengthFormatter(Formatter):
    """Lengths with thousands separated; one that would touch a longer one's label has none.

    The longest is always named, its tick marks stay: what can be read is settled when the figure
    is drawn, from the room that the axis has then.

    Parameters
    ----------
    of : Axes
        Whose x axis it labels.
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


def label_points(axes: Axes, points: Sequence[End], bars: Sequence[Box], size: float = 7.5) -> None:
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
        wide, high = float(TextPath((0, 0), text, size=size).get_extents().width), 1.15 * size
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
        far = distance > DISTANCES[0]
        axes.annotate(
            text,
            (x, y),
            xytext=(box.left - middle[0], (box.bottom + box.top) / 2 - middle[1]),
            textcoords="offset points",
            fontsize=size,
            va="center",
            color=ink,
            zorder=5,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": ink,
                "linewidth": 0.5,
                "shrinkA": 0,
                "shrinkB": 4,
                "relpos": _nearest(box, middle),
            }
            if far
            else None,
            bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.3},
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


def titled(axes: Axes, title: str, under: str) -> None:
    """What is drawn, and under it in grey for what."""
    axes.annotate(
        title,
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 20),
        textcoords="offset points",
        fontsize=10.5,
        fontweight="bold",
        annotation_clip=False,
    )
    axes.annotate(
        under,
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 7),
        textcoords="offset points",
        fontsize=8,
        color=SOFT,
        annotation_clip=False,
    )
