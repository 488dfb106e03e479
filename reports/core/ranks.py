"""Critical-difference diagrams: mean ranks on a line, and bars over what can't be told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scikit_posthocs import critical_difference_diagram

from harness.stats import ALPHA, Ties
from reports.core.axes import headed, panel
from reports.core.page import Output, Shown, says, together
from reports.core.style import BLACK, colour, mechanism_of, text_colour

ROW = 0.22
"""Inches of a name, or of a bar."""
NAMED = "{label} ({rank:.2f})"


def ties_shown(
    place: Output, name: str, ties: Ties, where: str, units: str, said: Sequence[str]
) -> Shown:
    """The diagram of models ranked inside of tasks or seeds, and below it what is said of them."""
    caption = f"{where}: mean ranks of {len(ties.omnibus.ranks)} models, and which are tied."
    figure = place.figure(name, lambda: critical_differences(ties, where, units), caption)
    return together(figure, says(f"{one}." for one in said))


def critical_differences(ties: Ties, where: str, units: str) -> Figure:
    """Models at their mean ranks, the best at the left; dots on one bar are tied.

    Drawn by scikit-posthocs, of the groups alone: two models are apart where none holds both.
    """
    models = list(ties.omnibus.ranks)
    joined = [[any({a, b} <= set(g) for g in ties.groups) for b in models] for a in models]
    apart = pd.DataFrame(np.where(joined, 1.0, 0.0), models, models)
    bars = [group for group in ties.groups if len(group) > 1]
    rows = math.ceil(len(models) / 2) + len(bars) + 1
    height = 1.15 + ROW * rows
    margins = {"left": 0.29, "right": 0.71, "bottom": 0.12 / height, "top": 1 - 0.8 / height}
    figure, axes = panel((7.4, height), margins)
    axes.grid(visible=False)
    drawn = critical_difference_diagram(
        dict(ties.omnibus.ranks),
        apart,
        alpha=ALPHA,
        ax=axes,
        label_fmt_left=NAMED,
        label_fmt_right=NAMED,
        label_props={"fontsize": 8},
        marker_props={"s": 22},
        elbow_props={"linewidth": 1},
        crossbar_props={"color": BLACK, "linewidth": 2.6, "marker": "o", "markersize": 5},
        color_palette={model: text_colour(colour(mechanism_of(model))) for model in models},
        text_h_margin=0.02 * len(models),
    )
    # The library names nothing that it draws.
    for text, point in zip(drawn["labels"], drawn["markers"], strict=True):
        point.set_label(text.get_text().rpartition(" (")[0])
    for (bar,) in drawn["crossbars"]:
        bar.set_xdata(sorted(bar.get_xdata()))  # in another order every time, as it has it of a set
        bar.set_label(f"not told apart: {len(bar.get_xdata())} models")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(axis="x", labelsize=8)
    bars_are = (
        "dots on one bar: not told apart" if ties.possible else f"too few {units} to tell any apart"
    )
    under = f"mean rank over {ties.omnibus.blocks} {units}, 1 is best; {bars_are}"
    headed(figure, f"{where}: what can't be told apart", under, left=0.29, gap=0.2 / height)
    return figure
