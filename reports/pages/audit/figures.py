"""Figures of ``audit.ipynb`` and of the ledger: intervals from numbers, with words beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from reports.claims.printed import column_of, load
from reports.claims.reanalysis import FoldDeviation, ImpliedInterval
from reports.claims.retests import p_words
from reports.claims.verdict import Answer, Verdict
from reports.core.axes import name_rows, note, row_panel, titled
from reports.core.forest import Line, draw_rows
from reports.core.style import SOFT, Look, text_colour

WIDTH = 6.0
SHADES = ("#0072B2", "#009E73", "#CC79A7")
SHAPES = ("o", "^", "D")
INKS: dict[Answer, str] = {
    "reproduced": "#009E73",
    "not reproduced": "#D55E00",
    "undecided": "#7F7F7F",
    "not testable here": "#BBBBBB",
}
"""Green, vermilion and greys of Okabe and Ito; the words stand beside them."""
LONGEST = 66
"""Characters of a label."""
TICKS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16, 32, 64)


def spans(
    rows: Sequence[tuple[str, Line, tuple[str, ...]]],
    xlabel: str,
    room: tuple[float, float],
    *,
    places: Sequence[float] = (1.03,),
    centre: float = 0.0,
    size: float = 8,
) -> tuple[Figure, Axes]:
    """Draw rows: name, line, and what is said behind it.

    `room` is where the panel begins and ends, `places` where what is said stands.
    """
    figure, axes = _rows([name for name, *_ in rows], xlabel, room, centre, size)
    draw_rows(axes, {y: line for y, (_, line, _) in enumerate(rows)})
    for y, (_, line, said) in enumerate(rows):
        ink, within = text_colour(line.drawn.colour), axes.get_yaxis_transform()
        for x, text in zip(places, said, strict=True):
            note(axes, text, (x, y), ink=ink, size=8, within=within)
    return figure, axes


def _rows(
    names: Sequence[str], xlabel: str, room: tuple[float, float], centre: float, size: float = 8.5
) -> tuple[Figure, Axes]:
    figure, axes = row_panel(len(names), *room, each=0.36, width=WIDTH)
    name_rows(axes, names, xlabel, size=size)
    axes.set_ylim(len(names) - 0.4, -0.9)
    axes.grid(False)
    axes.axvline(centre, color="0.4", linewidth=1, zorder=0)
    return figure, axes


def p_text(p: float) -> str:
    """``.017``, ``4.4e-5``, ``1``."""
    return p_words(p).replace("e-0", "e-")


def implied(readings: Sequence[ImpliedInterval]) -> Figure:
    """Intervals that printed difference and p-value imply, one row for every reading."""
    rows = []
    for r in readings:
        name, low, high = f"{r.setup}: {r.reading}", r.low_bleu, r.high_bleu
        line = Line(name, "mtsa", r.difference_bleu, low, high, low > 0)
        rows.append((name, line, (f"[{low:+.2f}, {high:+.2f}]",)))
    figure, axes = spans(rows, "MTSA minus multi-head (BLEU)", (0.46, 0.83))
    under = "95 % t-intervals from difference, two-sided p and runs"
    titled(axes, "Table 6: what the printed p-values imply", under)
    return figure


def deviations(folds: Sequence[FoldDeviation]) -> Figure:
    """Printed deviation over the one from counting alone, by data set and model."""
    models = list(dict.fromkeys(f.model for f in folds))
    data = list(dict.fromkeys(f.data for f in folds))
    xlabel = "printed deviation / deviation from counting alone"
    figure, axes = _rows(models, xlabel, (0.2, 0.95), 1.0)
    for f in folds:
        number = data.index(f.data)
        at = (f.printed_points / f.counting_points, models.index(f.model) + 0.2 * (number - 1))
        axes.plot(
            *([one] for one in at),
            SHAPES[number],
            color=SHADES[number],
            markersize=6,
            markerfacecolor=SHADES[number] if f.implausible else "white",
            label=f"{f.data}: {f.model}",
        )
        if f.implausible or f.model == models[0]:
            more = (
                f": printed {f.printed_points:.1f}, counting {f.counting_points:.1f}"
                if f.implausible
                else ""
            )
            note(axes, f.data + more, at, (8, 0), ink=SHADES[number], size=8)
    axes.set_xlim(0, None)
    note(axes, "counting alone", (1, -0.7), (-5, 0), ink=SOFT, size=8, align="right center")
    under = "filled: too small to be chance (chi squared, Holm over all, p < .05)"
    titled(axes, "Table 5: deviations over ten folds", under)
    return figure


def data_sets() -> Figure:
    """Differences of the Multi-Scale Transformer to two others, data set by data set."""
    table = load("multi_scale")["table3"]
    ours, *others = "MS-Trans", "Transformer", "SLSTM"
    value = {c: {name: n.value for name, n in column_of(table, c).items()} for c in (ours, *others)}
    names = sorted(value[ours], key=lambda name: value[ours][name] - value[others[1]][name])
    xlabel = "Multi-Scale Transformer minus the other (points)"
    figure, axes = _rows(names, xlabel, (0.2, 0.95), 0.0)
    for other, marker, ink in zip(others, ("o", "D"), ("#0072B2", "#D55E00"), strict=True):
        apart = [value[ours][name] - value[other][name] for name in names]
        axes.plot(
            apart,
            range(len(names)),
            marker,
            color=ink,
            markersize=6,
            markerfacecolor=ink if other == others[0] else "white",
            label=f"minus {other} (mean {math.fsum(apart) / len(apart):+.2f})",
        )
    axes.legend(fontsize=8, frameon=False, loc="upper right")
    titled(axes, "Table 3: sixteen data sets", "one printed number each")
    return figure


def ratio_label(ratio: float) -> str:
    """``4x`` or, short enough for many octaves side by side, ``1/4x``."""
    return f"{ratio:g}x" if ratio >= 1 else f"1/{1 / ratio:.0f}x"


def label_of(verdict: Verdict) -> str:
    """The claim's statement, without how it was obtained, and not too long for an axis."""
    text = verdict.claim.statement.rstrip(".")
    for part in (", by the printed", " (published:"):
        text = text.partition(part)[0]
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def intervals(
    verdicts: Sequence[Verdict], title: str, under: str, unit: str, *, ratios: bool = False
) -> Figure:
    """Values with intervals, one row each; the published number as a hollow diamond.

    Parameters
    ----------
    ratios : bool
        On a logarithmic axis around 1; otherwise differences around 0.
    """
    drawn = [v for v in verdicts if math.isfinite(v.value)]
    rows = [
        (
            label_of(v),
            Line(v.id, "", v.value, v.low, v.high, True, style=Look(INKS[v.verdict], "o")),
            (v.verdict,),
        )
        for v in drawn
    ]
    centre = 1.0 if ratios else 0.0
    figure, axes = spans(rows, unit, (0.455, 0.9), places=(1.01,), centre=centre, size=7.5)
    for y, v in enumerate(drawn):
        if math.isfinite(v.published_value) and v.claim.kind != "audit":
            (diamond,) = axes.plot([v.published_value], [y], "D", label=f"{v.id}: published")
            diamond.set(markersize=6, markerfacecolor="none", markeredgewidth=1.1)
            diamond.set_markeredgecolor("black")
    if ratios:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(TICKS))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: ratio_label(x)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.tick_params(axis="x", labelsize=7.5)
    titled(axes, title, under)
    return figure
