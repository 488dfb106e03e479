"""Figures of ``trust.ipynb``: the control, drift, error margins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import seaborn
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from harness.case import parse
from harness.records.ratios import PROBLEM
from harness.stats import Interval, noise_floor
from reports.core.axes import SIZE, bare, name_rows, note, panel, row_panel, titled
from reports.core.curves import Point, draw_lines
from reports.core.forest import Line, forest
from reports.core.style import NOT_SHOWN, VERMILION, look

MOST_LINES = 8


@dataclass(frozen=True)
class Control:
    """The A/A control of one problem."""

    problem: Mapping[str, Any]
    interval: Interval
    ratios: tuple[float, ...]

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts controls by what they are of."""
        p = self.problem
        return (p["phase"], str(p["dtype"]), str(p["settings"]), -p["batch"], p["length"])

    @property
    def label(self) -> str:
        """``training, B64 N64, f32, 1-thread``."""
        p = self.problem
        return f"{p['phase']}, B{p['batch']} N{p['length']}, {p['dtype']}, {p['settings']}"


@dataclass(frozen=True)
class Margin:
    """Error and budget of one case at its own shape."""

    case: str
    error: float
    budget: float
    status: str

    @property
    def margin(self) -> float:
        """Budget over error; infinite without any error."""
        return self.budget / self.error if self.error > 0 else np.inf


def controls(found: Sequence[Control]) -> Figure:
    """Every block's ratio and the interval, one problem below the other, beside 1."""
    lines = [
        Line(
            c.label,
            "multi_head",
            c.interval.ratio,
            c.interval.low,
            c.interval.high,
            True,
            tuple(c.ratios),
        )
        for c in found
    ]
    return forest(
        lines,
        "The baseline against itself",
        "should be 1; bars: 95 % t-intervals over blocks",
        "time of the control / time of the baseline",
        max(noise_floor(c.interval) for c in found),
        1.0,
    )


def drift(times: pd.DataFrame, baseline: str) -> Figure | None:
    """Time of the baseline by block, over its median; None with fewer than three blocks."""
    good = times[(times["status"] == "ok") & (times["name"] == baseline)]
    good = good[~good["control"].astype(bool)]
    lines: dict[str, list[Point]] = {}
    for values, group in good.groupby(PROBLEM, sort=False):
        seconds = group.groupby("block")["seconds"].median()
        if len(seconds) >= 3 and len(lines) < MOST_LINES:
            label = Control(dict(zip(PROBLEM, values, strict=True)), Interval(1, 1, 1, 1), ()).label
            over = seconds / seconds.median()
            lines[label] = [Point(float(str(block)), float(y)) for block, y in over.items()]
    if not lines:
        return None
    figure, axes = panel(margins={"left": 0.13, "right": 0.97, "bottom": 0.12, "top": 0.85})
    draw_lines(axes, lines, dict.fromkeys(lines, (look("multi_head"), "-")), bars=False)
    for line in axes.lines:
        line.set(alpha=0.65, linewidth=1, markersize=4)
    axes.axhline(1, color="0.4", linewidth=1, zorder=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("block, in the order of measuring")
    axes.set_ylabel("time / its median over blocks", fontsize=8.5)
    bare(axes)
    titled(axes, f"{baseline} over the session", f"one line per problem, at most {MOST_LINES}")
    return figure


def margins(found: Sequence[Margin]) -> Figure:
    """Error over budget of all cases, sorted; one row per implementation."""
    rows: dict[str, list[float]] = {}
    for one in found:
        rows.setdefault(parse(one.case).name, []).append(one.error / one.budget)
    names = sorted(rows, key=lambda name: -max(rows[name]))
    figure, axes = row_panel(len(names), 0.33, each=0.24, width=SIZE[0] + 0.4)
    for name in names:
        style = look(name.partition(".")[0])
        seaborn.stripplot(
            x=[max(v, 1e-4) for v in rows[name]],
            y=[name] * len(rows[name]),
            order=names,
            jitter=False,
            legend=False,
            marker=style.marker,
            color=style.colour,
            size=5.5,
            alpha=0.75,
            ax=axes,
        )
        axes.collections[-1].set_label(name)
    axes.axvline(1, color=VERMILION, linewidth=1.2)
    top = axes.get_xaxis_transform()
    note(axes, "budget", (1, 1), (-3, 3), ink=NOT_SHOWN, align="right baseline", within=top)
    axes.set_xscale("log")
    axes.set_xlim(right=max(1.5, axes.get_xlim()[1]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    name_rows(axes, names, "error / budget")
    titled(axes, "Errors at the measured shapes", "one marker per case; 0.0001 stands for less")
    return figure
