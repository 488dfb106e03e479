"""The figure of the first page: every mechanism's time and memory at one size, at a glance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.stats import Interval
from reports.core.axes import name_rows, note, titled
from reports.core.forest import Line, draw_rows
from reports.core.style import look, text_colour
from reports.pages.size.answers import Answer

WIDTH = 8.6
STEPS = (
    (0.001, 0.01, 0.1, 1, 10, 100, 1000),
    (2, 0.5, 5, 0.2, 20, 50, 0.05, 0.02, 200, 500),
    (1.5, 3, 0.7, 0.8, 1.2, 1.4, 0.6, 0.9, 1.1, 1.6, 1.8, 2.5, 4, 7, 1.3),
    (0.3, 0.4, 15, 30),
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
            if row is None:
                continue
            if row.status != "ok":
                at, ink = (0.985, y + shift), text_colour(look(answer.mechanism).colour)
                edge = times.get_yaxis_transform()
                text = f"{phase}: {row.status}"
                note(times, text, at, ink=ink, align="right center", within=edge)
            elif row.time is not None:
                draw_rows(times, {y + shift: _line(answer, phase, row.time, phase == "forward")})
        if answer.memory is not None:
            phase = "training" if "training" in answer.rows else "forward"
            draw_rows(memory, {y: _line(answer, phase, answer.memory)})
    floors = [r.floor for a in found for r in a.rows.values() if not math.isinf(r.floor)]
    if floors:
        times.axvspan(1 / max(floors), max(floors), color="0.5", alpha=0.22, linewidth=0)
    for axes, what in ((times, "time"), (memory, "peak memory")):
        _scale(axes)
        name_rows(axes, [a.label for a in found], f"{what} / {what} of {baseline}", size=8.5)
    for label, answer in zip(times.get_yticklabels(), found, strict=True):
        label.set_color(text_colour(look(answer.mechanism).colour))
    memory.tick_params(axis="y", labelleft=False)
    titled(times, "Time of one call", "filled: training step; hollow: forward pass")
    titled(memory, "Peak memory of a training step", under)
    return figure


def _line(answer: Answer, phase: str, at: Interval, hollow: bool = False) -> Line:
    name = f"{answer.label}, {phase}"
    return Line(name, answer.mechanism, at.ratio, at.low, at.high, decided=True, hollow=hollow)


def ticks(low: float, high: float) -> list[float]:
    """Round ratios on a logarithmic axis, 1 among them, none too near to another."""
    apart = 0.1 * math.log(high / low)
    shown = [1.0]
    for step in itertools.chain(*STEPS):
        near = min(abs(math.log(step / other)) for other in shown)
        if low <= step <= high and near >= apart:
            shown.append(step)
    return sorted(shown)


def _scale(axes: Axes) -> None:
    """Ratios on a logarithmic axis around 1."""
    axes.set_xscale("log")
    axes.margins(x=0.08)
    low, high = axes.get_xlim()
    low, high = min(low, 0.85), max(high, 1.18)
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(ticks(low, high)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}x"))
    axes.axvline(1, color="0.4", linewidth=1, zorder=0)
