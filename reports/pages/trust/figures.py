"""Figures of ``trust.ipynb``: the control, drift, error margins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from harness.case import parse
from harness.ratios import PROBLEM
from harness.stats import Interval, noise_floor
from reports.core.axes import SIZE, bare, titled
from reports.core.figure_data import INTERVAL
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
    height = 1.3 + 0.26 * len(found)
    figure = Figure(figsize=(SIZE[0] + 0.9, height))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.36, right=0.97, bottom=0.52 / height, top=1 - 0.62 / height)
    ink = look("multi_head").colour
    for y, control in enumerate(found):
        i = control.interval
        ratios = list(control.ratios)
        axes.plot(ratios, [y] * len(ratios), "|", color=ink, alpha=0.5, markersize=6,
                  label=f"{control.label}: every block")  # fmt: skip
        axes.plot([i.low, i.high], [y, y], color=ink, linewidth=2, label=control.label + INTERVAL)
        axes.plot([i.ratio], [y], "o", color=ink, markersize=5, label=control.label)
    floor = max(noise_floor(c.interval) for c in found)
    axes.axvspan(1 / floor, floor, color="0.5", alpha=0.15, linewidth=0)
    axes.axvline(1, color="0.4", linewidth=1, zorder=0)
    axes.set_yticks(range(len(found)), [c.label for c in found], fontsize=7.5)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlabel("time of the control / time of the baseline", fontsize=8.5)
    bare(axes)
    axes.grid(axis="y", visible=False)
    titled(axes, "The baseline against itself", "should be 1; bars: 95 % t-intervals over blocks")
    return figure


def drift(times: pd.DataFrame, baseline: str) -> Figure | None:
    """Time of the baseline by block, over its median; None with fewer than three blocks."""
    good = times[(times["status"] == "ok") & (times["name"] == baseline)]
    good = good[~good["control"].astype(bool)]
    figure = Figure(figsize=SIZE)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.13, right=0.97, bottom=0.12, top=0.85)
    drawn = 0
    ink = look("multi_head").colour
    for values, group in good.groupby(PROBLEM, sort=False):
        by_block = group.groupby("block")["seconds"].median()
        if len(by_block) < 3 or drawn == MOST_LINES:
            continue
        drawn += 1
        label = Control(dict(zip(PROBLEM, values, strict=True)), Interval(1, 1, 1, 1), ()).label
        axes.plot(
            by_block.index, by_block / by_block.median(), color=ink, linewidth=1, alpha=0.65,
            marker="o", markersize=3, label=label,
        )  # fmt: skip
    if not drawn:
        return None
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
    height = 1.25 + 0.24 * len(names)
    figure = Figure(figsize=(SIZE[0] + 0.4, height))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.33, right=0.97, bottom=0.5 / height, top=1 - 0.6 / height)
    for y, name in enumerate(names):
        style = look(name.partition(".")[0])
        values = [max(v, 1e-4) for v in rows[name]]
        axes.plot(values, [y] * len(values), style.marker, color=style.colour, markersize=5,
                  alpha=0.75, label=name)  # fmt: skip
    axes.axvline(1, color=VERMILION, linewidth=1.2)
    axes.annotate(
        "budget", (1, 1), xycoords=axes.get_xaxis_transform(), xytext=(-3, 3),
        textcoords="offset points", fontsize=7.5, ha="right", color=NOT_SHOWN,
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(right=max(1.5, axes.get_xlim()[1]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("error / budget", fontsize=8.5)
    bare(axes)
    axes.grid(axis="y", visible=False)
    titled(axes, "Errors at the measured shapes", "one marker per case; 0.0001 stands for less")
    return figure
