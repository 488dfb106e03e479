"""Figures of ``audit.ipynb``: differences with intervals, from printed numbers."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.stats import ALPHA
from reports.claims.reanalysis import Contrast, FoldDeviation, ImpliedInterval
from reports.core.axes import bare, titled
from reports.core.figure_data import INTERVAL
from reports.core.style import NOT_SHOWN, SOFT, colour

WIDTH = 6.0


def row_axes(count: int, left: float, right: float) -> tuple[Figure, Axes]:
    """Axes for rows of one height, with room for texts at both sides."""
    height = 1.4 + 0.36 * count
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.subplots()
    figure.subplots_adjust(left=left, right=right, bottom=0.52 / height, top=1 - 0.68 / height)
    axes.set_ylim(count - 0.4, -0.9)
    bare(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(False)
    axes.axvline(0, color="0.4", linewidth=1, zorder=0)
    return figure, axes


def draw_interval(
    axes: Axes, y: float, low: float, middle: float, high: float, ink: str, label: str
) -> None:
    """A horizontal interval with its middle; `label` names them in the figure's data."""
    axes.plot(
        [low, high], [y, y], color=ink, linewidth=2, solid_capstyle="butt", label=label + INTERVAL
    )
    axes.plot([middle], [y], "o", color=ink, markersize=6, label=label)


def p_text(p: float) -> str:
    """``.017``, ``4.4e-5``, ``1``."""
    if p >= 0.9995:
        return "1"
    return f"{p:.3f}".lstrip("0") if p >= 0.001 else f"{p:.1e}".replace("e-0", "e-")


def forest(contrasts: Sequence[Contrast], title: str, under: str) -> Figure:
    """Differences with 95 % Welch intervals; grey where Holm leaves no significance."""
    figure, axes = row_axes(len(contrasts), 0.27, 0.74)
    for y, c in enumerate(contrasts):
        ink = colour("mtsa") if c.adjusted_p < ALPHA else NOT_SHOWN
        draw_interval(
            axes, y, c.test.low, c.test.difference, c.test.high, ink, f"{c.data}: MTSA − {c.other}"
        )
        for x, text in ((1.06, p_text(c.test.p)), (1.28, p_text(c.adjusted_p))):
            axes.annotate(
                text,
                (x, y),
                xycoords=axes.get_yaxis_transform(),
                fontsize=8.5,
                va="center",
                color=ink if c.adjusted_p < ALPHA else "0.3",
                annotation_clip=False,
            )
    for x, text in ((1.06, "p"), (1.28, "p (Holm)")):
        axes.annotate(
            text,
            (x, -0.7),
            xycoords=axes.get_yaxis_transform(),
            fontsize=8,
            color=SOFT,
            va="center",
            annotation_clip=False,
        )
    labels = [f"{c.data}: MTSA − {c.other}" for c in contrasts]
    axes.set_yticks(range(len(contrasts)), labels, fontsize=8.5)
    axes.set_xlabel("MTSA minus the other (points of accuracy)", fontsize=8.5)
    titled(axes, title, under)
    return figure


def implied(readings: Sequence[ImpliedInterval]) -> Figure:
    """Intervals that printed difference and p-value imply, one row for every reading."""
    figure, axes = row_axes(len(readings), 0.46, 0.83)
    for y, r in enumerate(readings):
        ink = colour("mtsa") if r.low > 0 else NOT_SHOWN
        draw_interval(axes, y, r.low, r.difference, r.high, ink, f"{r.setup}: {r.reading}")
        axes.annotate(
            f"[{r.low:+.2f}, {r.high:+.2f}]",
            (1.03, y),
            xycoords=axes.get_yaxis_transform(),
            fontsize=8,
            va="center",
            color=ink if r.low > 0 else "0.3",
            annotation_clip=False,
        )
    labels = [f"{r.setup}: {r.reading}" for r in readings]
    axes.set_yticks(range(len(readings)), labels, fontsize=8)
    axes.set_xlabel("MTSA minus multi-head (BLEU)", fontsize=8.5)
    titled(
        axes,
        "Table 6: what the printed p-values imply",
        "95 % t-intervals from difference, two-sided p and runs",
    )
    return figure


def deviations(folds: Sequence[FoldDeviation], implausible: Sequence[FoldDeviation]) -> Figure:
    """Printed deviation over the one from counting alone, by data set and model."""
    models = list(dict.fromkeys(f.model for f in folds))
    data = list(dict.fromkeys(f.data for f in folds))
    figure, axes = row_axes(len(models), 0.2, 0.95)
    axes.lines[0].set_xdata([1, 1])
    shades = dict(zip(data, ("#0072B2", "#009E73", "#CC79A7"), strict=True))
    shapes = dict(zip(data, ("o", "^", "D"), strict=True))
    for f in folds:
        y = models.index(f.model) + 0.2 * (data.index(f.data) - 1)
        axes.plot(
            [f.printed / f.expected],
            [y],
            shapes[f.data],
            color=shades[f.data],
            markersize=6,
            markerfacecolor=shades[f.data] if f in implausible else "white",
            label=f"{f.data}: {f.model}",
        )
        if f in implausible or f.model == models[0]:
            text = (
                f"{f.data}: printed {f.printed:.1f}, counting {f.expected:.1f}"
                if f in implausible
                else f.data
            )
            axes.annotate(
                text,
                (f.printed / f.expected, y),
                xytext=(8, 0),
                textcoords="offset points",
                fontsize=8,
                va="center",
                color=shades[f.data],
                annotation_clip=False,
            )
    axes.set_yticks(range(len(models)), models, fontsize=8.5)
    axes.set_xlim(0, None)
    axes.annotate(
        "counting alone",
        (1, -0.7),
        xytext=(-5, 0),
        textcoords="offset points",
        fontsize=8,
        color=SOFT,
        ha="right",
        va="center",
    )
    axes.set_xlabel("printed deviation / deviation from counting alone", fontsize=8.5)
    titled(
        axes,
        "Table 5: deviations over ten folds",
        "filled: too small to be chance (chi squared, Holm over all, p < .05)",
    )
    return figure
