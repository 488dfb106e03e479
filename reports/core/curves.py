"""Cost against length from summary rows; each function draws on axes or returns a figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from harness.records.ratios import Row
from harness.stats import Interval, ratio_interval
from reports.core.axes import End, label_ends, length_axis, ratio_axis, value_axis
from reports.core.style import LINES, Look, look, text_colour
from reports.core.sweeps import LengthSweep, length_of, sweeps

Lines = Mapping[str, Sequence[Row]]
FAILED = ("oom", "timeout", "crash", "wrong")
"""Statuses that end a line, and are marked where it ends."""


def seconds_to_ms(row: Row) -> float:
    """Time of a row in milliseconds."""
    return row.seconds * 1e3


def peak_mib(row: Row) -> float:
    """Peak memory of a row in MiB."""
    return row.peak_bytes / 2**20


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
    ends: list[tuple[str, Row, Row | None]] = []
    for label, line in lines.items():
        if (end := _ended(line, value)) is not None:
            ends.append((label, end[1], end[0]))
    if not ends:
        return
    stacked: dict[int, int] = {}
    bottom, top = axes.get_ylim()
    most = max(sum(length_of(r) == length_of(e[1]) for _, r, _ in ends) for e in ends)
    top *= (top / bottom) ** (0.07 * most)
    axes.set_ylim(bottom, top)
    for label, row, last in ends:
        ink = styles[label][0].colour
        at = length_of(row)
        height = 0.97 - 0.06 * stacked.get(at, 0)
        stacked[at] = stacked.get(at, 0) + 1
        y = bottom * (top / bottom) ** height
        if last is not None:
            axes.plot(
                [length_of(last), at],
                [value(last), y],
                color=ink,
                linewidth=0.9,
                linestyle=":",
                zorder=1,
            )
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
        for text, shift, side in ((row.status.upper(), -7, "right"), (label, 8, "left")):
            axes.annotate(
                text,
                (at, y),
                xytext=(shift, 0),
                textcoords="offset points",
                fontsize=7,
                ha=side,
                va="center",
                color=text_colour(ink),
                annotation_clip=False,
            )


def _draw_guides(axes: Axes, lines: Lines, value: Callable[[Row], float]) -> list[End]:
    """A small fan at the lower right that grows with N and with N squared; returns its labels."""
    good = {length_of(r): value(r) for line in lines.values() for r in line if r.status == "ok"}
    good = {n: v for n, v in good.items() if math.isfinite(v)}
    if len(good) < 2:
        return []
    last = max(good)
    lowest = min(
        value(r)
        for line in lines.values()
        for r in line
        if length_of(r) == last and r.status == "ok"
    )
    start = axes.get_ylim()[0] * 1.08
    factor = min(8.0, max(1.4, math.sqrt(max(1.0, 0.6 * lowest / start))))
    ends: list[End] = []
    for power, name in ((1, "grows as N"), (2, "as N²")):
        height = start * factor**power
        axes.plot([last / factor, last], [start, height], color="0.6", linewidth=1, linestyle=":")
        ends.append((float(last), height, name, "0.5"))
    return ends


DASHES: Mapping[str, Any] = {"-": "", "--": (4, 1.5), "-.": (4, 1.5, 1, 1.5), ":": (1, 1)}
"""How seaborn is told of a line style."""


def draw_lines(
    axes: Axes,
    points: pd.DataFrame,
    styles: Mapping[str, tuple[Look, str]],
    interval: Callable[[Sequence[float]], Interval] | None = None,
) -> None:
    """A line per series, in its colour, with its marker and its stroke.

    Parameters
    ----------
    points : DataFrame
        ``series``, ``x`` and ``y``; with `interval` a row per replicate.
    styles : mapping
        By series.
    interval : callable, optional
        Makes the drawn mean and the ends of its bar from the replicates of a point.
    """
    points = points[points["series"].isin(list(styles))]
    order = [name for name in styles if name in set(points["series"])]
    if not order:
        return
    lines, bars = len(axes.lines), len(axes.containers)
    how: dict[str, Any] = {"estimator": None}
    if interval is not None:
        how = {
            "estimator": lambda values: interval(list(values)).ratio,
            "errorbar": lambda values: (interval(list(values)).low, interval(list(values)).high),
            "err_style": "bars",
            "err_kws": {"capsize": 2.5, "elinewidth": 1.4},
        }
    seaborn.lineplot(
        points,
        x="x",
        y="y",
        hue="series",
        style="series",
        hue_order=order,
        style_order=order,
        palette={name: styles[name][0].colour for name in order},
        markers={name: styles[name][0].marker for name in order},
        dashes={name: DASHES[styles[name][1]] for name in order},
        markersize=6,
        markeredgewidth=0,
        linewidth=1.4,
        legend=False,
        ax=axes,
        **how,
    )
    # Whatever is drawn of data has a label: it stands in the CSV beside the figure.
    drawn: list[Any] = [one for one in axes.lines[lines:] if one.get_linestyle() != "None"]
    if interval is not None:
        drawn = list(axes.containers[bars:])
    for name, artist in zip(order, drawn, strict=True):
        artist.set_label(name)


def draw_values(
    axes: Axes, lines: Lines, value: Callable[[Row], float], guides: bool = False
) -> None:
    """Time or memory against length, both axes logarithmic, names at the line ends.

    Parameters
    ----------
    guides : bool
        Draw slopes 1 and 2 to compare with.
    """
    styles = looks(lines)
    good = {
        label: [r for r in line if r.status == "ok" and math.isfinite(value(r))]
        for label, line in lines.items()
    }
    draw_lines(axes, _points(good, lambda r: [value(r)]), styles)
    ends = [
        (float(length_of(line[-1])), value(line[-1]), label, text_colour(styles[label][0].colour))
        for label, line in good.items()
        if line and _ended(lines[label], value) is None  # else its name stands at the cross
    ]
    value_axis(axes)
    length_axis(axes, _lengths(lines))
    if guides:
        ends += _draw_guides(axes, lines, value)
    _mark_failures(axes, lines, value)
    label_ends(axes, ends)


def _points(lines: Lines, values: Callable[[Row], Sequence[float]]) -> pd.DataFrame:
    """A row for every value of every case."""
    return pd.DataFrame(
        [
            (label, float(length_of(r)), value)
            for label, line in lines.items()
            for r in line
            for value in values(r)
        ],
        columns=["series", "x", "y"],
    )


def _lengths(lines: Lines) -> list[float]:
    return [float(length_of(r)) for line in lines.values() for r in line]


def draw_floor(axes: Axes, lines: Lines) -> None:
    """The noise floor: how far the baseline strayed from itself at each length."""
    floors = {
        float(length_of(r)): r.floor
        for line in lines.values()
        for r in line
        if not math.isinf(r.floor)
    }
    axes.axhline(1, color="0.4", linewidth=1)
    if floors:
        x = np.array(sorted(floors))
        edge = np.array([floors[n] for n in x])
        axes.fill_between(
            x, 1 / edge, edge, color="0.5", alpha=0.25, linewidth=0, label="noise floor"
        )


def ratio_of(row: Row) -> float:
    """Time over the baseline's; nan where there is none."""
    return row.time.ratio if row.time is not None else math.nan


def draw_intervals(
    axes: Axes, x: np.ndarray, found: Sequence[Interval], style: Look, **more: Any
) -> None:
    """A line through ratios with their intervals, where these are known."""
    y = np.array([t.ratio for t in found])
    low = np.array([t.low if t.known else t.ratio for t in found])
    high = np.array([t.high if t.known else t.ratio for t in found])
    axes.errorbar(
        x,
        y,
        yerr=[y - low, high - y],
        color=style.colour,
        marker=style.marker,
        markersize=5,
        linewidth=1.4,
        capsize=2.5,
        **more,
    )


def draw_ratios(axes: Axes, lines: Lines, baseline: str) -> None:
    """Time ratio to the baseline with 95 % t-intervals over blocks, above the noise floor."""

    def blocks(row: Row) -> list[float]:
        return list(row.by_block.values()) or ([row.time.ratio] if row.time else [])

    known = {k: [r for r in line if r.time is not None] for k, line in lines.items()}
    draw_lines(axes, _points(known, blocks), looks(lines), ratio_interval)
    draw_floor(axes, lines)
    _dress_ratios(axes, lines, ratio_of, f"time / time of {baseline}")


def draw_memory_ratios(axes: Axes, lines: Lines, baseline: str) -> None:
    """Ratio of peak memories to the baseline."""

    def ratio(row: Row) -> float:
        return row.memory_ratio

    known = {k: [r for r in line if not math.isnan(ratio(r))] for k, line in lines.items()}
    draw_lines(axes, _points(known, lambda r: [ratio(r)]), looks(lines))
    axes.axhline(1, color="0.4", linewidth=1)
    _dress_ratios(axes, lines, ratio, f"peak memory / that of {baseline}")


def _dress_ratios(axes: Axes, lines: Lines, value: Callable[[Row], float], label: str) -> None:
    """Axes, failures, and names at the ends of lines that did not fail."""
    ends: list[End] = []
    for name, (style, _) in looks(lines).items():
        known = [r for r in lines[name] if not math.isnan(value(r))]
        if known and _ended(lines[name], value) is None:
            ink = text_colour(style.colour)
            ends.append((float(length_of(known[-1])), value(known[-1]), name, ink))
    ratio_axis(axes)
    axes.set_ylabel(label)
    length_axis(axes, _lengths(lines))
    _mark_failures(axes, lines, value)
    label_ends(axes, ends)


def cost(rows: Sequence[Row], baseline: str, footer: str) -> Figure:
    """Time, ratio to the baseline and peak memory against length, forward and training.

    Bars are 95 % t-intervals over blocks; the grey band is the noise floor of the A/A control;
    OOM and timeout are marked at the upper edge. A pass that was not measured has no row.
    """
    found = {phase: _longest(rows, phase) for phase in ("forward", "training")}
    shown = {phase: one for phase, one in found.items() if one[0]} or found
    size = (14, 4.1 * len(shown))
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(hspace=0.07))
    axes = figure.subplots(len(shown), 3, squeeze=False)
    for row, (phase, (sweep, lines)) in enumerate(shown.items()):
        time_axes, ratio_axes, memory_axes = axes[row]
        draw_values(time_axes, lines, seconds_to_ms)
        time_axes.set_ylabel("time per call (ms)")
        draw_ratios(ratio_axes, lines, baseline)
        draw_values(memory_axes, lines, peak_mib)
        memory_axes.set_ylabel("peak memory (MiB)")
        where = f", {sweep.size}" if sweep else ""
        for a, title in zip(axes[row], ("time", "ratio", "memory"), strict=True):
            a.set_title(f"{phase}: {title}{where}", fontsize=10, loc="left")
            a.margins(x=0.05)
            left, right = a.get_xlim()
            # Room for the names at the line ends (the axis is logarithmic).
            a.set_xlim(left, right * (right / left) ** 0.45)
    figure.text(0.005, -0.012, footer, fontsize=7.5, color="0.35", va="top")
    return figure


def _longest(rows: Sequence[Row], phase: str) -> tuple[LengthSweep | None, dict[str, list[Row]]]:
    """The sweep of a pass with most lengths (one is enough here)."""
    found = sweeps([r for r in rows if r.columns["phase"] == phase], least=1)
    return (found[0], found[0].lines(phase)) if found else (None, {})
