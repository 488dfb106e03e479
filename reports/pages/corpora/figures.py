"""Figures of ``corpora.ipynb`` beside its forest plots: a metric over a setting; heads by scale.

Settings that a row is drawn against: scales by alpha, K of mirrored summation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from harness.stats import mean_interval
from harness.train.task import tasks
from reference_impls.msmsa.scales import CANDIDATES, heads_per_scale
from reference_impls.multi_scale_transformer.presets import DEFAULTS, PRESETS
from reports.core import curves
from reports.core.against import Against
from reports.core.axes import headed, note, panel, panels, titled, value_axis
from reports.core.forest import MOST_SINGLES, Line
from reports.core.style import LINES, NOT_SHOWN, Look, look, mechanism_of
from reports.core.trained import ModelRuns
from reports.pages.corpora import printed, tables

ALPHAS = (1.0, 0.5, 0.0, -0.5, -1.0)
"""Of Table 6, A to E."""
USUAL = 0.5
"""Of the paper's own models."""
HEADS, LAYERS = 10, 3
"""Of the example below equation 12."""
MODEL = "multi_scale_transformer"
_OPTIONS = re.compile(r"\[(?P<options>[^\]]*)\]")
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
    level: float | None = None,
) -> Figure:
    """Means with intervals over a setting, every replicate beside them.

    With a `level` to compare them with, the values are drawn on a logarithmic axis.
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


def heads() -> Figure:
    """A panel per alpha: heads of each layer by scale, as numbers on a shaded grid."""
    edges, count = (0.7, 0.1, 0.5, 0.6), len(ALPHAS)
    figure, grid = panels(count, count, (1.65, 1.4), edges, sharey=True)
    for axes, alpha in zip(grid.flat, ALPHAS, strict=True):
        layers = heads_per_scale(len(CANDIDATES), alpha, HEADS, LAYERS)
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
        axes.set_xticks(range(len(CANDIDATES)), map(str, CANDIDATES), fontsize=7.5)
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


def options_of(name: str) -> dict[str, str]:
    """``{"alpha": "0.5"}`` of ``multi_scale_transformer.windowed[alpha=0.5]``."""
    match = _OPTIONS.search(name)
    if match is None:
        return {}
    parts = (part.partition("=") for part in match["options"].split(","))
    return {key.strip(): value.strip() for key, _, value in parts if value}


def alpha_of(model: str) -> float | None:
    """Alpha of a Multi-Scale Transformer; None of others, and where it decides nothing."""
    if not model.startswith(f"{MODEL}."):
        return None
    options = options_of(model)
    if "scales" in options or scale_of(model) is not None:
        return None
    preset = PRESETS.get(options.get("preset", ""))
    if preset is not None:
        if "scales" in preset.options:
            return None
        return float(preset.options.get("alpha", DEFAULTS["alpha"]))
    try:
        return float(options.get("alpha", DEFAULTS["alpha"]))
    except ValueError:  # from a record that no model of ours has made
        return None


def scale_of(model: str) -> str | None:
    """The one scale of a Multi-Scale Transformer all of whose heads have it: ``n/16``."""
    if not model.startswith(f"{MODEL}."):
        return None
    candidates = [c for c in options_of(model).get("candidates", "").split(";") if c]
    return candidates[0] if len(candidates) == 1 else None


def of_scales(model: str) -> bool:
    """Whether its scales are what a model is about: at an alpha, or all heads of one."""
    return alpha_of(model) is not None or scale_of(model) is not None


def layers_of(model: str) -> str:
    """How many layers its name says, empty for the usual number."""
    return options_of(model).get("layers", "")


def k_of(task: str) -> int | None:
    """K of a mirrored summation: what its name says, or the task's own."""
    text = options_of(task).get("k", "")
    if text.isdigit():
        return int(text)
    known = tasks().get(task.partition("[")[0])
    value = None if known is None else known.options.get("k")
    return int(value) if isinstance(value, int) else None


def line_of(one: Against) -> Line:
    """A comparison as a row of a forest plot, in the metric's unit."""
    decided = one.verdict in tables.APART
    model = one.model
    return Line.of(
        model.model,
        model.mechanism,
        one.difference,
        model.unit.scale,
        decided=decided,
        printed=printed.difference(model, one.other),
    )
