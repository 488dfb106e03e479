"""The figure of the first page: every mechanism's time and memory at one size, at a glance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.stats import Interval
from reports.core.axes import bare, titled
from reports.core.forest import Line, draw_rows
from reports.core.style import look, text_colour
from reports.pages.size.answers import Answer

WIDTH = 8.6
STEPS = (
    *(10.0**power for power in range(-3, 4)),
    2,
    0.5,
    5,
    0.2,
    20,
    50,
    0.05,
    0.02,
    200,
    500,
    1.5,
    3,
    0.7,
    0.8,
    1.2,
    1.4,
    0.6,
    0.9,
    1.1,
    1.6,
    1.8,
    2.5,
    4,
    7,
    1.3,
    0.3,
    0.4,
    15,
    30,
)
"""The roundest first."""


def glance(found: Sequence[Answer], baseline: str, under: str) -> Figure:
    """Time and memory over the baseline's, a row per implementation."""
    height = 1.35 + 0.36 * len(found)
    figure = Figure(figsize=(WIDTH, height))
    times, memory = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(
        left=0.2, right=0.985, bottom=0.55 / height, top=1 - 0.62 / height, wspace=0.08
    )
    for y, answer in enumerate(found):
        for phase, shift in (("training", -0.13), ("forward", 0.13)):
            row = answer.rows.get(phase)
            if row is not None and row.time is not None and row.status == "ok":
                name = f"{answer.label}, {phase}"
                draw_rows(times, {y + shift: _line(name, answer, row.time, phase == "forward")})
            elif row is not None and row.status != "ok":
                ink = look(answer.mechanism).colour
                _failed(times, y + shift, f"{phase}: {row.status}", ink)
        if answer.memory is not None:
            name = f"{answer.label}, {'training' if 'training' in answer.rows else 'forward'}"
            draw_rows(memory, {y: _line(name, answer, answer.memory)})
    floors = [r.floor for a in found for r in a.rows.values() if not math.isinf(r.floor)]
    if floors:
        times.axvspan(1 / max(floors), max(floors), color="0.5", alpha=0.22, linewidth=0)
    for axes, what in ((times, "time"), (memory, "peak memory")):
        _dress(axes, f"{what} / {what} of {baseline}")
    times.set_ylim(len(found) - 0.5, -0.6)
    times.set_yticks(range(len(found)), [a.label for a in found], fontsize=8.5)
    for label, answer in zip(times.get_yticklabels(), found, strict=True):
        label.set_color(text_colour(look(answer.mechanism).colour))
    memory.tick_params(axis="y", labelleft=False)
    titled(times, "Time of one call", "filled: training step; hollow: forward pass")
    titled(memory, "Peak memory of a training step", under)
    return figure


def _line(name: str, answer: Answer, at: Interval, hollow: bool = False) -> Line:
    return Line(name, answer.mechanism, at.ratio, at.low, at.high, decided=True, hollow=hollow)


def _failed(axes: Axes, y: float, text: str, ink: str) -> None:
    axes.annotate(
        text,
        (0.985, y),
        xycoords=axes.get_yaxis_transform(),
        fontsize=7.5,
        ha="right",
        va="center",
        color=text_colour(ink),
    )


def ticks(low: float, high: float) -> list[float]:
    """Round ratios on a logarithmic axis, 1 among them, none too near to another."""
    apart = 0.1 * math.log(high / low)
    shown = [1.0]
    for step in STEPS:
        near = min(abs(math.log(step / other)) for other in shown)
        if low <= step <= high and near >= apart:
            shown.append(step)
    return sorted(shown)


def _dress(axes: Axes, label: str) -> None:
    axes.set_xscale("log")
    axes.margins(x=0.08)
    low, high = axes.get_xlim()
    low, high = min(low, 0.85), max(high, 1.18)
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(ticks(low, high)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}x"))
    axes.axvline(1, color="0.4", linewidth=1, zorder=0)
    bare(axes)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(label, fontsize=8.5)
