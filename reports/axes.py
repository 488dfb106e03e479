"""What all figures share: lengths on a logarithmic axis, names written at the line ends."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

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
    axes.figure.canvas.draw()
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
                text, (x, y), xytext=(8, place - points), textcoords="offset points", color=ink,
                fontsize=size, va="center", annotation_clip=False, zorder=5,
                bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.4},
            )  # fmt: skip


def bare(axes: Axes) -> None:
    """Only what carries information: no frame above and at the right, a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def length_axis(axes: Axes, lengths: Sequence[float]) -> None:
    """Sequence length on a logarithmic axis, ticks where it was measured."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    axes.set_xticks(sorted(set(lengths)))
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
