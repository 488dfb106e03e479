"""Figures from summary rows; each function returns a matplotlib figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from harness.ratios import Row
from reports.style import colour, marker

matplotlib.rcParams["svg.fonttype"] = "none"
matplotlib.rcParams["svg.hashsalt"] = "attnbench"


def _series(rows: Sequence[Row], phase: str) -> dict[str, list[Row]]:
    """Rows by label, sorted by length, of the batch, dtype and setting with most lengths."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for r in rows:
        c = r.columns
        if c["phase"] == phase:
            groups.setdefault((c["batch"], c["d_in"], c["dtype"], c["settings"]), []).append(r)
    if not groups:
        return {}
    best = max(groups.values(), key=lambda g: (len({r.columns["length"] for r in g}), len(g)))
    lines: dict[str, list[Row]] = {}
    for r in sorted(best, key=lambda r: int(str(r.columns["length"]))):
        heads = f" {r.columns['heads']}h" if r.columns["heads"] else ""
        lines.setdefault(f"{r.columns['name']}{heads}", []).append(r)
    return lines


def _lengths(rows: Sequence[Row]) -> np.ndarray:
    return np.array([int(str(r.columns["length"])) for r in rows], dtype=float)


def _label_ends(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Write each line's name at its right end, moved apart where two would overlap."""
    if not ends:
        return
    axes.figure.canvas.draw()
    transform = axes.transData
    placed = sorted(((transform.transform((x, y))[1], x, y, text, ink) for x, y, text, ink in ends))
    gap = 11 * axes.figure.dpi / 72
    last = -math.inf
    for pixel, x, y, text, ink in placed:
        at = max(pixel, last + gap)
        last = at
        axes.annotate(
            text, (x, y), xytext=(7, (at - pixel) * 72 / axes.figure.dpi),
            textcoords="offset points", color=ink, fontsize=8, va="center", annotation_clip=False,
        )  # fmt: skip


def _length_axis(axes: Axes, lengths: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    axes.set_xticks(sorted(set(lengths)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("sequence length N (tokens)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", alpha=0.25, linewidth=0.6)


def _draw(axes: Axes, lines: dict[str, list[Row]], value: Any) -> None:
    ends = []
    every: list[float] = []
    for label, line in lines.items():
        mechanism = str(line[0].columns["mechanism"])
        x, y = _lengths(line), np.array([value(r) for r in line], dtype=float)
        good = np.isfinite(y)
        every += list(x)
        if good.any():
            axes.plot(
                x[good], y[good], color=colour(mechanism), marker=marker(mechanism), markersize=5,
                linewidth=1.4, label=label,
            )  # fmt: skip
            ends.append((x[good][-1], y[good][-1], label, colour(mechanism)))
        for r, n in zip(line, x, strict=True):
            if r.status in ("oom", "timeout") and good.any():
                axes.plot([n], [y[good][-1]], marker="x", color=colour(mechanism), markersize=9)
                axes.annotate(
                    r.status.upper(), (n, y[good][-1]), xytext=(0, 8),
                    textcoords="offset points", fontsize=7, ha="center", color=colour(mechanism),
                )  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.margins(y=0.08)
    _length_axis(axes, every)
    _label_ends(axes, ends)


def _ratio(axes: Axes, lines: dict[str, list[Row]], baseline: str) -> None:
    ends = []
    every: list[float] = []
    floors: dict[float, float] = {}
    for label, line in lines.items():
        known = [r for r in line if r.time is not None]
        every += list(_lengths(line))
        for r in line:
            if not math.isinf(r.floor):
                floors[float(str(r.columns["length"]))] = r.floor
        if not known:
            continue
        mechanism = str(known[0].columns["mechanism"])
        x = _lengths(known)
        y = np.array([r.time.ratio for r in known if r.time])
        low = np.array([r.time.low if r.time.known else r.time.ratio for r in known if r.time])
        high = np.array([r.time.high if r.time.known else r.time.ratio for r in known if r.time])
        axes.errorbar(
            x, y, yerr=[y - low, high - y], color=colour(mechanism), marker=marker(mechanism),
            markersize=5, linewidth=1.4, capsize=2.5, label=label,
        )  # fmt: skip
        ends.append((x[-1], y[-1], label, colour(mechanism)))
    axes.axhline(1, color="0.4", linewidth=1)
    if floors:
        x = np.array(sorted(floors))
        edge = np.array([floors[n] for n in x])
        axes.fill_between(x, 1 / edge, edge, color="0.5", alpha=0.2, linewidth=0)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}x"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(f"time / time of {baseline}")
    _length_axis(axes, every)
    _label_ends(axes, ends)


def cost(rows: Sequence[Row], baseline: str, footer: str) -> Figure:
    """Time, ratio to the baseline and peak memory against length, forward and training.

    Bars are 95 % t-intervals over blocks; the grey band is the noise floor of the A/A control;
    OOM and timeout are marked at the end of a line.
    """
    figure = Figure(figsize=(14, 8.2), layout=ConstrainedLayoutEngine(hspace=0.07))
    axes = figure.subplots(2, 3)
    for row, phase in enumerate(("forward", "training")):
        lines = _series(rows, phase)
        time_axes, ratio_axes, memory_axes = axes[row]
        _draw(time_axes, lines, lambda r: r.seconds * 1e3)
        time_axes.set_ylabel("time per call (ms)")
        _ratio(ratio_axes, lines, baseline)
        _draw(memory_axes, lines, lambda r: r.peak_bytes / 2**20)
        memory_axes.set_ylabel("peak memory (MiB)")
        some = next(iter(lines.values()), None)
        size = ""
        if some:
            c = some[0].columns
            size = f", batch {c['batch']}, {c['dtype']}, {c['settings']}"
        for a, title in zip(axes[row], ("time", "ratio", "memory"), strict=True):
            a.set_title(f"{phase}: {title}{size}", fontsize=10, loc="left")
            a.margins(x=0.05)
            left, right = a.get_xlim()
            # Room for the names at the line ends (the axis is logarithmic).
            a.set_xlim(left, right * (right / left) ** 0.45)
    figure.text(0.005, -0.012, footer, fontsize=7.5, color="0.35", va="top")
    return figure
