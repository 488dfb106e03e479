"""Lines with intervals over a number, and what is drawn so: cost against length."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import seaborn
from matplotlib.axes import Axes

from harness.records.ratios import Row
from reports.core.axes import End, bare, label_ends, length_axis, note, ratio_axis, value_axis
from reports.core.style import LINES, Look, look, text_colour
from reports.core.sweeps import length_of

Lines = Mapping[str, Sequence[Row]]
FAILED = ("oom", "timeout", "crash", "wrong")
"""Statuses that end a line, and are marked where it ends."""


class Quantity(NamedTuple):
    """A cost of one call that is drawn against length.

    ``{}`` in the label of its axis stands for the baseline; `value` of a row is nan where it is not
    known; `over` says whether it is a ratio to the baseline's.
    """

    label: str
    value: Callable[[Row], float]
    over: bool = False


QUANTITIES: Mapping[str, Quantity] = {
    "time": Quantity("time per call (ms)", lambda r: r.seconds * 1e3),
    "memory": Quantity("peak memory (MiB)", lambda r: r.peak_bytes / 2**20),
    "ratio": Quantity(
        "time / time of {}", lambda r: r.time.ratio if r.time else math.nan, over=True
    ),
    "memory-ratio": Quantity("peak memory / that of {}", lambda r: r.memory_ratio, over=True),
}


def looks(lines: Lines) -> dict[str, tuple[Look, str]]:
    """Look and line style by label: implementations of one mechanism differ in the latter."""
    found: dict[str, tuple[Look, str]] = {}
    seen: dict[str, int] = {}
    for label, line in lines.items():
        mechanism = str(line[0].columns["mechanism"])
        number = seen[mechanism] = seen.get(mechanism, -1) + 1
        found[label] = (look(mechanism), LINES[number % len(LINES)])
    return found


def _ended(line: Sequence[Row], value: Callable[[Row], float]) -> tuple[Row | None, Row] | None:
    """The last row of a line with a value and the first failure behind it; None without one."""
    good = [r for r in line if r.status == "ok" and math.isfinite(value(r))]
    last = good[-1] if good else None
    after = [
        r for r in line if r.status in FAILED and (last is None or length_of(r) > length_of(last))
    ]
    return (last, after[0]) if after else None


def _mark_failures(axes: Axes, lines: Lines, value: Callable[[Row], float]) -> None:
    """A cross at the upper edge where a case first failed, tied to the end of its line."""
    styles = looks(lines)
    ends = [(label, *end) for label, line in lines.items() if (end := _ended(line, value))]
    if not ends:
        return
    stacked = Counter[int]()
    bottom, top = axes.get_ylim()
    most = max(Counter(length_of(row) for *_, row in ends).values())
    top *= (top / bottom) ** (0.07 * most)
    axes.set_ylim(bottom, top)
    for label, last, row in ends:
        ink = styles[label][0].colour
        at = length_of(row)
        height = 0.97 - 0.06 * stacked[at]
        stacked[at] += 1
        y = bottom * (top / bottom) ** height
        if last is not None:
            tie = [length_of(last), at], [value(last), y]
            axes.plot(*tie, color=ink, linewidth=0.9, linestyle=":", zorder=1)
        axes.plot(
            [at],
            [y],
            marker="x",
            color=ink,
            markersize=7,
            markeredgewidth=2,
            clip_on=False,
            linestyle="none",
            label=f"{label}: {row.status}",
        )
        words = text_colour(ink)
        note(axes, row.status.upper(), (at, y), (-7, 0), ink=words, size=7, align="right center")
        note(axes, label, (at, y), (8, 0), ink=words, size=7)


def _draw_guides(axes: Axes, lines: Lines, value: Callable[[Row], float]) -> list[End]:
    """A small fan at the lower right that grows with N and with N squared; returns its labels."""
    good = [r for r in _rows(lines) if r.status == "ok" and math.isfinite(value(r))]
    last = max(map(length_of, good), default=0)
    if len({length_of(r) for r in good}) < 2:
        return []
    lowest = min(value(r) for r in good if length_of(r) == last)
    start = axes.get_ylim()[0] * 1.08
    factor = min(8.0, max(1.4, math.sqrt(max(1.0, 0.6 * lowest / start))))
    ends: list[End] = []
    for power, name in ((1, "grows as N"), (2, "as N²")):
        height = start * factor**power
        axes.plot([last / factor, last], [start, height], color="0.6", linewidth=1, linestyle=":")
        ends.append((float(last), height, name, "0.5"))
    return ends


class Point(NamedTuple):
    """A value over a number, with the ends of its interval; nan where it has none."""

    x: float
    y: float
    low: float = math.nan
    high: float = math.nan


def draw_lines(
    axes: Axes,
    lines: Mapping[str, Sequence[Point]],
    styles: Mapping[str, tuple[Look, str]],
    bars: bool = True,
    **more: Any,
) -> None:
    """A line per series, in its colour, with its marker and its stroke.

    `bars`: whether the points have intervals; `more` is for matplotlib, of lines and bars.
    """
    how: dict[str, Any] = {"estimator": None}
    if bars:
        # Of a value and its interval's ends the value is the median, and they are the range.
        how = {
            "estimator": "median",
            "errorbar": ("pi", 100),
            "err_style": "bars",
            "err_kws": {"capsize": 2.5, "elinewidth": 1.4, **more},
        }
    for name, points in lines.items():
        if not points:
            continue
        style, stroke = styles[name]
        values = [(p.x, y) for p in points for y in p[1:] if not math.isnan(y)]
        seaborn.lineplot(
            x=[x for x, _ in values],
            y=[y for _, y in values],
            color=style.colour,
            marker=style.marker,
            linestyle=stroke,
            markersize=6,
            markeredgewidth=0,
            linewidth=1.4,
            legend=False,
            ax=axes,
            **how,
            **more,
        )
        # Whatever is drawn of data has a label: it stands in the CSV beside the figure.
        drawn: Any = axes.containers[-1] if bars else axes.lines[-1]
        drawn.set_label(name)


def named_lines(
    axes: Axes,
    lines: Mapping[str, Sequence[Point]],
    styles: Mapping[str, tuple[Look, str]],
    **more: Any,
) -> None:
    """Lines with intervals, each with its name at its end: for axes that are set up already."""
    draw_lines(axes, lines, styles, **more)
    bare(axes)
    ends = [
        (some[-1].x, some[-1].y, name, text_colour(styles[name][0].colour))
        for name, some in lines.items()
    ]
    label_ends(axes, ends)


def draw_cost(axes: Axes, lines: Lines, what: str, baseline: str, guides: bool = False) -> None:
    """A cost against length, both axes logarithmic, names at the line ends.

    Parameters
    ----------
    what : str
        One of `QUANTITIES`; time ratios have 95 % t-intervals over blocks and the noise floor.
    guides : bool
        Draw slopes 1 and 2 to compare with.
    """
    label, value, over = QUANTITIES[what]

    def point(row: Row) -> Point:
        t = row.time if what == "ratio" else None
        return Point(length_of(row), value(row), *((t.low, t.high) if t else ()))

    points = {
        name: [point(r) for r in line if (over or r.status == "ok") and math.isfinite(value(r))]
        for name, line in lines.items()
    }
    draw_lines(axes, points, looks(lines), bars=what == "ratio")
    if what == "ratio":
        _draw_floor(axes, lines)
    if over:
        axes.axhline(1, color="0.4", linewidth=1)
    (ratio_axis if over else value_axis)(axes)
    axes.set_ylabel(label.format(baseline))
    length_axis(axes, [float(length_of(r)) for r in _rows(lines)])
    guide_ends = _draw_guides(axes, lines, value) if guides else []
    _mark_failures(axes, lines, value)
    label_ends(axes, [*_ends(lines, points, value), *guide_ends])


def _ends(
    lines: Lines, points: Mapping[str, Sequence[Point]], value: Callable[[Row], float]
) -> list[End]:
    """Where the names of lines stand; that of one which failed stands at its cross."""
    styles = looks(lines)
    return [
        (float(some[-1].x), some[-1].y, label, text_colour(styles[label][0].colour))
        for label, some in points.items()
        if some and _ended(lines[label], value) is None
    ]


def _rows(lines: Lines) -> list[Row]:
    return [row for line in lines.values() for row in line]


def _draw_floor(axes: Axes, lines: Lines) -> None:
    """The noise floor: how far the baseline strayed from itself at each length."""
    floors = {length_of(r): r.floor for r in _rows(lines) if not math.isinf(r.floor)}
    if floors:
        lengths = sorted(floors)
        edge = [floors[n] for n in lengths]
        band = [1 / one for one in edge]
        axes.fill_between(
            lengths, band, edge, color="0.5", alpha=0.25, linewidth=0, label="noise floor"
        )
