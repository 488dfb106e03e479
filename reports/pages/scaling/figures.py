"""Figures of ``scaling.ipynb``: one quantity and one pass each, readable on a phone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from matplotlib.transforms import ScaledTranslation

from harness.records.ratios import Row
from harness.stats import Interval, ratio_text
from reports.core.axes import (
    SIZE,
    End,
    label_ends,
    length_axis,
    name_rows,
    note,
    panel,
    ratio_axis,
    row_panel,
    titled,
)
from reports.core.curves import QUANTITIES, Point, draw_cost, draw_lines, looks
from reports.core.forest import Line, draw_rows
from reports.core.frontiers import Reach
from reports.core.style import colour, look, mechanism_of, text_colour
from reports.core.sweeps import LengthSweep, Slope, label_of, length_of
from reports.core.words import bytes_text, time_text
from reports.pages.scaling.growth import Grown

PASSES = {"forward": "forward pass", "training": "training step"}
Fit = tuple[str, Slope, Slope | None]
"""Implementation, slope over all lengths, slope over the longest."""
APART = 3.0
"""Points between neighbours."""
REACH = 2.0
"""Intervals that go further beyond all values than this factor are cut off by the axes."""


def curve(what: str, sweep: LengthSweep, phase: str, baseline: str, where: str) -> Figure:
    """Cost against length, or over the baseline's: "time", "memory", "ratio" or "memory-ratio"."""
    figure, axes = panel()
    lines = sweep.lines(phase)
    cost, over = "Peak memory" if what.startswith("memory") else "Time", ""
    if QUANTITIES[what].over:
        own = {k: [r for r in line if r.verdict != "baseline"] for k, line in lines.items()}
        lines = {label: line for label, line in own.items() if line}
        over = f", ratio to {baseline}"
    draw_cost(axes, lines, what, baseline, guides=not over)
    titled(axes, f"{cost} of one {PASSES[phase]}{over}", f"{sweep.size}; {where}")
    return figure


def slopes(fits: Sequence[Fit], cost: str, phase: str) -> Figure:
    """Fitted slopes: over all lengths hollow, over the longest ones filled."""
    figure, axes = row_panel(len(fits), 0.3, 0.95, each=0.5)
    for place, (name, whole, end) in enumerate(fits):
        mechanism = mechanism_of(name.split()[0])
        ink = text_colour(colour(mechanism))
        for fit, shift, what in ((whole, -0.16, "all lengths"), (end, 0.16, "the longest")):
            if fit is None:
                continue
            y, hollow = place + shift, fit is whole
            line = Line(
                f"{name}, {what}", mechanism, fit.slope, fit.low, fit.high, True, (), hollow
            )
            draw_rows(axes, {y: line})
            edge = fit.slope if math.isnan(fit.high) else fit.high
            note(axes, f"{fit.slope:.2f}", (edge, y), (6, 0), ink=ink)
    name_rows(axes, [name for name, *_ in fits], "slope: cost grows as N to this power", size=8.5)
    axes.grid(False)
    values = [f.slope for _, *pair in fits for f in pair if f is not None]
    axes.set_xlim(min(0.0, *values) - 0.05, max(2.25, *values) + 0.15)
    for power, name in ((1, "∝ N"), (2, "∝ N²")):
        axes.axvline(power, color="0.7", linewidth=1, linestyle=":", zorder=0)
        edge_of = axes.get_xaxis_transform()
        note(axes, name, (power, 1), (3, -3), align="left top", within=edge_of)
    under = "hollow: all lengths; filled: the longest, within a factor of 4"
    titled(axes, f"Growth of {cost}, {PASSES[phase]}", under)
    return figure


def frontier(found: Sequence[Reach]) -> Figure:
    """A row per mechanism: from the longest length that fits to the first that does not."""
    rows = sorted(found, key=lambda r: -(r.longest or 0))
    figure, axes = row_panel(len(rows), 0.3, 0.83, each=0.27, width=SIZE[0] + 0.6)
    for y, r in enumerate(rows):
        style = look(mechanism_of(r.name))
        ink, end = style.colour, r.longest or 1
        if r.longest is not None:
            axes.plot([end], [y], style.marker, color=ink, markersize=6.5, label=r.label)
            axes.plot([1, end], [y, y], color=ink, linewidth=1, alpha=0.5, zorder=1)
        said = "or more"
        if r.first_miss is not None:
            said = r.why.upper()
            label = f"{r.label}: bracket"
            axes.plot([end, r.first_miss], [y, y], ":", color=ink, linewidth=1.4, label=label)
            label = f"{r.label}: {r.why}"
            (cross,) = axes.plot([r.first_miss], [y], "x", color=ink, label=label)
            cross.set(markersize=6, markeredgewidth=1.8)
        text = said if r.longest is None else f"{r.longest:,}  {said}"
        note(axes, text, (r.first_miss or end, y), (8, 0), ink=text_colour(ink))
    axes.set_xscale("log", base=2)
    axes.set_xlim(left=max(1, min((r.longest or 1) for r in rows) / 4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    name_rows(axes, [r.label for r in rows], "longest sequence N (tokens)", size=8.5)
    r = rows[0]
    titled(
        axes,
        f"Longest sequence for one {PASSES[r.phase]}",
        f"{r.memory_limit_bytes / 2**30:.3g} GiB, {r.seconds_limit:g} s; batch {r.batch}, {r.d_in} "
        f"to {r.d_out}, {r.dtype}, {r.settings}",
    )
    return figure


def growth(grown: Sequence[Grown], what: str, where: str) -> Figure:
    """Time over that on the fewest threads, or of one sequence over that at the smallest batch.

    With threads there is the line of what an ideal division of the work would take.
    """
    figure, axes = panel()
    lines: dict[str, list[Grown]] = {}
    for g in grown:
        lines.setdefault(g.label, []).append(g)
    styles = looks({label: [g.row for g in line] for label, line in lines.items()})
    ends: list[End] = []
    for number, (label, line) in enumerate(lines.items()):
        # Beside each other by a few points, or intervals at the same amount hide one another.
        beside = ScaledTranslation(
            (number - (len(lines) - 1) / 2) * APART / 72, 0, figure.dpi_scale_trans
        )
        points = [Point(g.amount, t.ratio, t.low, t.high) for g in line for t in [g.shown(what)]]
        draw_lines(axes, {label: points}, styles, transform=axes.transData + beside)
        ink = text_colour(styles[label][0].colour)
        ends.append((float(points[-1].x), points[-1].y, label, ink))
    axes.axhline(1, color="0.4", linewidth=1)
    ratio_axis(axes)
    counts, least = sorted({g.amount for g in grown}), grown[0].least
    length_axis(axes, counts)
    # By hand: what is shifted is not seen by autoscaling.
    axes.set_xlim(*_with_margin(counts))
    axes.set_ylim(*_with_margin([1.0, *_ends([g.shown(what) for g in grown])]))
    label_ends(axes, ends)
    if what == "threads":
        ideal = [least / n for n in counts]
        axes.plot(counts, ideal, color="0.6", linewidth=1, linestyle=":", label="ideal")
        note(axes, "ideal", (counts[-1], ideal[-1]), (-3, -10), align="right baseline")
        axes.set_xlabel("CPU threads")
        axes.set_ylabel(f"time / time on {least} thread{'s' if least > 1 else ''}")
    else:
        axes.set_xlabel("batch (sequences)")
        axes.set_ylabel(f"time of one sequence / that at batch {least}")
    more = "on more threads" if what == "threads" else "in larger batches"
    title = f"{PASSES[grown[0].phase].capitalize()} {more}"
    titled(axes, title, f"{grown[0].problem}; {where}")
    return figure


def _ends(found: Sequence[Interval]) -> list[float]:
    """Values and ends of intervals, these as far as a few times the values reach."""
    values = [t.ratio for t in found]
    low, high = min(values) / REACH, max(values) * REACH
    ends = [end for t in found if t.known for end in (t.low, t.high)]
    return [*values, *(min(max(end, low), high) for end in ends)]


def _with_margin(values: Sequence[float]) -> tuple[float, float]:
    """Limits of a logarithmic axis."""
    low, high = min(values), max(values)
    margin = (high / low) ** 0.06
    return low / margin, high * margin


def curve_caption(what: str, sweep: LengthSweep, phase: str, base: str) -> str:
    """What a figure of a cost against length shows; `what` as of `curve`."""
    if what == "ratio":
        return _ratios(sweep, phase, base)
    if what == "memory-ratio":
        return _memory_ratios(sweep, phase, base)
    return _extremes(sweep, phase, base, what)


def _extremes(sweep: LengthSweep, phase: str, base: str, what: str) -> str:
    """All at the longest common length, and what failed; of times what is not shown to differ."""

    def value(row: Row) -> float:
        return row.seconds if what == "time" else row.peak_bytes

    rows = [r for line in sweep.lines(phase).values() for r in line]
    good = [r for r in rows if r.status == "ok" and not math.isnan(value(r))]
    failed = "; ".join(
        f"{label_of(r)} at N = {length_of(r):,}: {r.status}"
        for r in rows
        if r.status not in ("ok", "unsupported")
    )
    if not good:
        return f"Nothing was measured ({failed})." if failed else "Not measured here."
    top = max(map(length_of, good))
    at = sorted((r for r in good if length_of(r) == top), key=value)
    text = time_text if what == "time" else bytes_text
    said = ", ".join(f"{label_of(r)} {text(value(r))}" for r in at)
    how = "takes, sorted by the median" if what == "time" else "needs, from the smallest on"
    # Whose time is not shown to differ from the baseline's, however the medians lie.
    near = [label_of(r) for r in at if what == "time" and r.verdict in ("same", "undecided")]
    caution = f"; no difference from {base} is shown for {', '.join(near)}" if near else ""
    end = f" Not finished: {failed}." if failed else ""
    return f"At N = {top:,} one {PASSES[phase]} {how}: {said}{caution}.{end}"


def _ratios(sweep: LengthSweep, phase: str, base: str) -> str:
    """Ratios at the longest length of each line, and what the band is."""
    timed = {k: [r for r in line if r.time] for k, line in sweep.lines(phase).items()}
    ends = {label: line[-1] for label, line in timed.items() if line}
    said = "; ".join(
        f"{label} {r.time} at N = {length_of(r):,} ({r.verdict})" for label, r in ends.items()
    )
    band = " The grey band is the noise floor of the A/A control."
    known = any(not math.isinf(r.floor) for r in ends.values())
    return f"Time over that of {base}, {PASSES[phase]}: {said}.{band if known else ''}"


def _memory_ratios(sweep: LengthSweep, phase: str, base: str) -> str:
    """Ratios of peak memory at the longest length of each line."""
    parts = []
    for label, line in sweep.lines(phase).items():
        known = [r for r in line if not math.isnan(r.memory_ratio) and r.verdict != "baseline"]
        if known:
            longest = known[-1]
            parts.append(
                f"{label} {ratio_text(longest.memory_ratio)} at N = {length_of(longest):,}"
            )
    return f"Peak memory over that of {base}, {PASSES[phase]}: {'; '.join(parts)}."


def slopes_caption(fits: Sequence[Fit], cost: str, phase: str) -> str:
    """The power of the length that each cost grows with."""
    parts = [f"{label} N^{(end or whole).slope:.1f}" for label, whole, end in fits]
    return (
        f"Over the longest lengths measured, {cost} of one {PASSES[phase]} grows as "
        f"{', '.join(parts)}."
    )


def growth_caption(grown: Sequence[Grown], what: str) -> str:
    """What the most threads, or the largest batch, make of the time."""
    most, least = max(g.amount for g in grown), grown[0].least
    ends = sorted((g for g in grown if g.amount == most), key=lambda g: g.time.ratio)
    said = "; ".join(f"{g.label} {g.shown(what)}" for g in ends)
    if what == "threads":
        return f"With {most} threads instead of {least}, time is: {said}."
    return f"At batch {most} instead of {least}, the time that falls to one sequence is: {said}."
