"""Figures of ``scaling.ipynb``: one quantity and one pass each, readable on a phone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.core.axes import MARGINS, SIZE, bare, titled
from reports.core.curves import (
    draw_memory_ratios,
    draw_ratios,
    draw_values,
    peak_mib,
    seconds_to_ms,
)
from reports.core.forest import Line, draw_rows
from reports.core.slopes import Slope
from reports.core.style import colour, mechanism_of, text_colour
from reports.core.sweeps import LengthSweep

PASSES = {"forward": "forward pass", "training": "training step"}


def _panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE)
    axes = figure.subplots()
    figure.subplots_adjust(**MARGINS)
    return figure, axes


def time(sweep: LengthSweep, phase: str, where: str) -> Figure:
    """Time of one call against length."""
    figure, axes = _panel()
    lines = sweep.lines(phase)
    draw_values(axes, lines, seconds_to_ms, guides=True)
    axes.set_ylabel("time per call (ms)")
    titled(axes, f"Time of one {PASSES[phase]}", f"{sweep.size}; {where}")
    return figure


def memory(sweep: LengthSweep, phase: str, where: str) -> Figure:
    """Peak memory of one call against length."""
    figure, axes = _panel()
    lines = sweep.lines(phase)
    draw_values(axes, lines, peak_mib, guides=True)
    axes.set_ylabel("peak memory (MiB)")
    titled(axes, f"Peak memory of one {PASSES[phase]}", f"{sweep.size}; {where}")
    return figure


def ratio(sweep: LengthSweep, phase: str, baseline: str, where: str) -> Figure:
    """Time ratio to the baseline with intervals, above the noise floor."""
    figure, axes = _panel()
    lines = {
        label: [r for r in line if r.verdict != "baseline"]
        for label, line in sweep.lines(phase).items()
    }
    draw_ratios(axes, {label: line for label, line in lines.items() if line}, baseline)
    titled(
        axes,
        f"Time of one {PASSES[phase]}, ratio to {baseline}",
        f"{sweep.size}; {where}",
    )
    return figure


def memory_ratio(sweep: LengthSweep, phase: str, baseline: str, where: str) -> Figure:
    """Peak memory over the baseline's."""
    figure, axes = _panel()
    lines = {
        label: [r for r in line if r.verdict != "baseline"]
        for label, line in sweep.lines(phase).items()
    }
    draw_memory_ratios(axes, {label: line for label, line in lines.items() if line}, baseline)
    titled(
        axes, f"Peak memory of one {PASSES[phase]}, ratio to {baseline}", f"{sweep.size}; {where}"
    )
    return figure


def slopes(fits: Sequence[tuple[str, Slope, Slope | None]], title: str, under: str) -> Figure:
    """Fitted slopes: over all lengths hollow, over the longest ones filled.

    Parameters
    ----------
    fits : sequence of (name, over all lengths, over the longest)
    """
    figure = Figure(figsize=(SIZE[0], 1.35 + 0.5 * len(fits)))
    axes = figure.subplots()
    figure.subplots_adjust(
        left=0.3,
        right=0.95,
        bottom=0.62 / figure.get_figheight(),
        top=1 - 0.6 / figure.get_figheight(),
    )
    for place, (name, whole, end) in enumerate(reversed(fits)):
        mechanism = mechanism_of(name.split()[0])
        ink = colour(mechanism)
        for fit, shift, what in ((whole, 0.16, "all lengths"), (end, -0.16, "the longest")):
            if fit is None:
                continue
            y = place + shift
            hollow = what == "all lengths"
            label = f"{name}, {what}"
            draw_rows(
                axes, {y: Line(label, mechanism, fit.slope, fit.low, fit.high, True, (), hollow)}
            )
            axes.annotate(
                f"{fit.slope:.2f}",
                (fit.slope if math.isnan(fit.high) else fit.high, y),
                xytext=(6, 0),
                textcoords="offset points",
                fontsize=7.5,
                color=text_colour(ink),
                va="center",
            )
    axes.set_yticks(range(len(fits)), [name for name, *_ in reversed(fits)], fontsize=8.5)
    axes.set_ylim(-0.6, len(fits) - 0.4)
    bare(axes)
    axes.grid(False)
    values = [f.slope for _, *pair in fits for f in pair if f is not None]
    axes.set_xlim(min(0.0, *values) - 0.05, max(2.25, *values) + 0.15)
    for power, name in ((1, "∝ N"), (2, "∝ N²")):
        axes.axvline(power, color="0.7", linewidth=1, linestyle=":", zorder=0)
        axes.annotate(
            name,
            (power, 1),
            xycoords=axes.get_xaxis_transform(),
            xytext=(3, -3),
            textcoords="offset points",
            fontsize=7.5,
            color="0.5",
            va="top",
        )
    axes.set_xlabel("slope: cost grows as N to this power", fontsize=8.5)
    titled(axes, title, under)
    return figure
