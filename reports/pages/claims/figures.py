"""Figures of the ledger: what was found beside what was published."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from reports.claims import Answer, Verdict
from reports.core.axes import titled
from reports.pages.audit.figures import Span, spans

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
    rows = []
    for v in drawn:
        ink = INKS[v.verdict]
        low, high = (v.low, v.high) if math.isfinite(v.low) else (v.value, v.value)
        rows.append(Span(label_of(v), v.id, low, v.value, high, ink, (v.verdict,), ink))
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
