"""The figure of frontiers: how long a sequence each mechanism can take, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from reports.core.axes import SIZE, bare, titled
from reports.core.frontiers import Reach
from reports.core.style import look, mechanism_of, text_colour
from reports.pages.scaling.figures import PASSES


def frontier(found: Sequence[Reach]) -> Figure:
    """A row per mechanism: from the longest length that fits to the first that does not."""
    rows = sorted(found, key=lambda r: -(r.longest or 0))
    height = 1.25 + 0.27 * len(rows)
    figure = Figure(figsize=(SIZE[0] + 0.6, height))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.3, right=0.83, bottom=0.5 / height, top=1 - 0.62 / height)
    for y, r in enumerate(rows):
        style = look(mechanism_of(r.name))
        end = r.longest or 1
        if r.longest is not None:
            axes.plot(
                [r.longest], [y], style.marker, color=style.colour, markersize=6.5, label=r.label
            )
            axes.plot([1, r.longest], [y, y], color=style.colour, linewidth=1, alpha=0.5, zorder=1)
        if r.first_miss is not None:
            axes.plot(
                [end, r.first_miss],
                [y, y],
                color=style.colour,
                linewidth=1.4,
                linestyle=":",
                label=f"{r.label}: bracket",
            )
            axes.plot(
                [r.first_miss],
                [y],
                "x",
                color=style.colour,
                markersize=6,
                markeredgewidth=1.8,
                label=f"{r.label}: {r.why}",
            )
        said = r.why.upper() if r.first_miss is not None else "or more"
        edge = r.first_miss or end
        axes.annotate(
            f"{r.longest:,}  {said}" if r.longest is not None else said,
            (edge, y),
            xytext=(8, 0),
            textcoords="offset points",
            fontsize=7.5,
            va="center",
            annotation_clip=False,
            color=text_colour(style.colour),
        )
    axes.set_xscale("log", base=2)
    lowest = min((r.longest or 1) for r in rows)
    axes.set_xlim(left=max(1, lowest / 4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(rows)), [r.label for r in rows], fontsize=8.5)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("longest sequence N (tokens)", fontsize=8.5)
    bare(axes)
    axes.grid(axis="y", visible=False)
    r = rows[0]
    titled(
        axes,
        f"Longest sequence for one {PASSES[r.phase]}",
        f"{r.memory_limit_bytes / 2**30:.3g} GiB, {r.seconds_limit:g} s; batch {r.batch}, {r.d_in} "
        f"to {r.d_out}, {r.dtype}, {r.settings}",
    )
    return figure
