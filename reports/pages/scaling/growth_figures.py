"""Figures of growth with threads and batch: one pass of one problem each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from harness.stats import Interval
from reports.core.axes import End, label_ends, length_axis, note, panel, ratio_axis, titled
from reports.core.curves import Point, draw_lines, looks
from reports.core.style import text_colour
from reports.pages.scaling.figures import PASSES
from reports.pages.scaling.growth import Grown

APART = 3.0
"""Points between neighbours."""
REACH = 2.0
"""Intervals that go further beyond all values than this factor are cut off by the axes."""


def over_threads(grown: Sequence[Grown], where: str) -> Figure:
    """Time over that on the fewest threads, with what an ideal division of the work would take."""
    least = grown[0].least
    figure, axes = _lines(grown, lambda g: g.time)
    counts = sorted({g.amount for g in grown})
    ideal = [least / n for n in counts]
    axes.plot(counts, ideal, color="0.6", linewidth=1, linestyle=":", label="ideal")
    note(axes, "ideal", (counts[-1], ideal[-1]), (-3, -10), align="right baseline")
    axes.set_xlabel("CPU threads")
    axes.set_ylabel(f"time / time on {least} thread{'s' if least > 1 else ''}")
    titled(axes, f"{_pass(grown)} on more threads", f"{grown[0].problem}; {where}")
    return figure


def over_batches(grown: Sequence[Grown], where: str) -> Figure:
    """Time that falls to one sequence, over that at the smallest batch."""
    figure, axes = _lines(grown, lambda g: g.by_item)
    axes.set_xlabel("batch (sequences)")
    axes.set_ylabel(f"time of one sequence / that at batch {grown[0].least}")
    titled(axes, f"{_pass(grown)} in larger batches", f"{grown[0].problem}; {where}")
    return figure


def _pass(grown: Sequence[Grown]) -> str:
    return PASSES[grown[0].phase].capitalize()


def _lines(grown: Sequence[Grown], value: Callable[[Grown], Interval]) -> tuple[Figure, Axes]:
    figure, axes = panel()
    lines: dict[str, list[Grown]] = {}
    for g in grown:
        lines.setdefault(g.label, []).append(g)
    styles = looks({label: [g.row for g in line] for label, line in lines.items()})
    ends: list[End] = []
    seen: list[Interval] = []
    for number, (label, line) in enumerate(lines.items()):
        # Beside each other by a few points, or intervals at the same amount hide one another.
        beside = ScaledTranslation(
            (number - (len(lines) - 1) / 2) * APART / 72, 0, figure.dpi_scale_trans
        )
        found = [value(g) for g in line]
        seen += found
        points = [Point(g.amount, t.ratio, t.low, t.high) for g, t in zip(line, found, strict=True)]
        draw_lines(axes, {label: points}, styles, transform=axes.transData + beside)
        ink = text_colour(styles[label][0].colour)
        ends.append((float(points[-1].x), points[-1].y, label, ink))
    axes.axhline(1, color="0.4", linewidth=1)
    ratio_axis(axes)
    length_axis(axes, [g.amount for g in grown])
    # By hand: what is shifted is not seen by autoscaling.
    axes.set_xlim(*_with_margin([g.amount for g in grown]))
    axes.set_ylim(*_with_margin([1.0, *_shown(seen)]))
    label_ends(axes, ends)
    return figure, axes


def _shown(found: Sequence[Interval]) -> list[float]:
    """Values and ends of intervals, these as far as a few times the values reach."""
    values = [t.ratio for t in found]
    low, high = min(values) / REACH, max(values) * REACH
    ends = [end for t in found if t.known for end in (t.low, t.high)]
    return [*values, *(min(max(end, low), high) for end in ends)]


def _with_margin(values: Sequence[float]) -> tuple[float, float]:
    """Limits of a logarithmic axis."""
    low, high = min(values), max(values)
    margin = (high / low) ** 0.06
    return low / margin, high * margin
