"""Figures of ``corpora.ipynb`` beside its forest plots: a metric over a setting; heads by scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from harness.stats import mean_interval
from reports.core import curves
from reports.core.axes import headed, note, panel, panels, titled, value_axis
from reports.core.forest import MOST_SINGLES
from reports.core.style import LINES, NOT_SHOWN, Look, look, mechanism_of
from reports.core.trained import ModelRuns
from reports.pages.corpora.scales import heads_by_scale

MOST_HEADS = 8
Points = list[tuple[curves.Point, list[float]]]
"""Means with their intervals over a setting, and the values behind each."""


def by_setting(found: Iterable[tuple[float, ModelRuns]], metric: str) -> dict[str, Points]:
    """Points by line: all variants of an implementation are one, sorted by their setting."""
    lines: dict[str, Points] = {}
    for setting, model in found:
        values = model.numbers(metric)
        if values:
            scale = model.unit.scale if metric == model.metric else 1.0
            scaled = [scale * v for v in values]
            point = curves.Point(setting, *mean_interval(scaled))
            lines.setdefault(model.model.partition("[")[0], []).append((point, scaled))
    return {name: sorted(points) for name, points in lines.items()}


def against_setting(
    lines: Mapping[str, Points],
    xlabel: str,
    ylabel: str,
    title: str,
    under: str,
    *,
    log: bool,
    level: float | None,
) -> Figure:
    """Means with intervals over a setting, every replicate beside them.

    Parameters
    ----------
    log : bool
        Whether the values are drawn on a logarithmic axis.
    level : float or None
        A value to compare with.
    """
    figure, axes = panel()
    styles: dict[str, tuple[Look, str]] = {}
    for name, points in lines.items():
        style = look(mechanism_of(name))
        number = sum(other.colour == style.colour for other, _ in styles.values())
        styles[name] = (style, LINES[number % len(LINES)])
        for point, values in points:
            if 1 < len(values) <= MOST_SINGLES:
                label, at = f"{name}: every replicate", [point.x] * len(values)
                axes.plot(at, values, "_", color=style.colour, alpha=0.4, label=label)
    if level is not None:
        axes.axhline(level, color=NOT_SHOWN, linewidth=1, linestyle=":")
    if log:
        value_axis(axes)
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(FixedLocator(sorted({k.x for p in lines.values() for k, _ in p})))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel, fontsize=8.5)
    drawn = {name: [point for point, _ in points] for name, points in lines.items()}
    curves.named_lines(axes, drawn, styles)
    titled(axes, title, under)
    return figure


def heads(alphas: Sequence[float]) -> Figure:
    """A panel per alpha: heads of each layer by scale, as numbers on a shaded grid."""
    edges, count = (0.7, 0.1, 0.5, 0.6), len(alphas)
    figure, grid = panels(count, count, (1.65, 1.4), edges, sharey=True)
    for axes, alpha in zip(grid.flat, alphas, strict=True):
        names, layers = heads_by_scale(alpha)
        axes.imshow(
            np.array(layers),
            cmap="Greys",
            vmin=0,
            vmax=2 * MOST_HEADS,
            aspect="auto",
            origin="lower",
            label=f"alpha {alpha:g}",
        )
        for y, row in enumerate(layers):
            for x, count in enumerate(row):
                note(axes, str(count), (x, y), ink="black", size=9, align="center center")
        axes.set_xticks(range(len(names)), names, fontsize=7.5)
        axes.set_yticks(
            range(len(layers)), [f"layer {n + 1}" for n in range(len(layers))], fontsize=7.5
        )
        axes.tick_params(length=0)
        axes.set_title(f"alpha = {alpha:g}", fontsize=8.5, loc="left")
        axes.set_xlabel("scale (tokens)", fontsize=7.5)
        for spine in axes.spines.values():
            spine.set_visible(False)
    headed(figure, "How many heads have which scale")
    return figure
