"""Captions of ``scaling.ipynb``, in whole sentences from the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from harness.records.ratios import Row
from reports.core.sweeps import LengthSweep, label_of, length_of
from reports.core.words import bytes_text, time_text
from reports.pages.scaling.figures import PASSES
from reports.pages.scaling.growth import Grown
from reports.pages.scaling.tables import Fit


def time_caption(sweep: LengthSweep, phase: str, base: str) -> str:
    """Subject, baseline and the least at the longest common length; then what failed."""

    def unproven(rows: Sequence[Row]) -> str:
        """Whose time is not shown to differ from the baseline's, however the medians lie."""
        near = [label_of(r) for r in rows if r.verdict in ("same", "undecided")]
        return f"; no difference from {base} is shown for {', '.join(near)}" if near else ""

    return _extremes(
        sweep, phase, lambda r: r.seconds, time_text, "takes", "sorted by the median", unproven
    )


def memory_caption(sweep: LengthSweep, phase: str) -> str:
    """The same of peak memory."""
    return _extremes(
        sweep,
        phase,
        lambda r: r.peak_bytes,
        bytes_text,
        "needs",
        "from the smallest on",
        lambda _: "",
    )


def _extremes(
    sweep: LengthSweep,
    phase: str,
    value: Callable[[Row], float],
    text: Callable[[float], str],
    verb: str,
    order: str,
    caution: Callable[[Sequence[Row]], str],
) -> str:
    rows = [r for line in sweep.lines(phase).values() for r in line]
    good = [r for r in rows if r.status == "ok" and not math.isnan(value(r))]
    failed = [
        f"{label_of(r)} at N = {length_of(r):,}: {r.status}"
        for r in rows
        if r.status not in ("ok", "unsupported")
    ]
    if not good:
        return f"Nothing was measured ({'; '.join(failed)})." if failed else "Not measured here."
    top = max(map(length_of, good))
    at = sorted((r for r in good if length_of(r) == top), key=value)
    parts = [f"{label_of(r)} {text(value(r))}" for r in at]
    end = f" Not finished: {'; '.join(failed)}." if failed else ""
    return (
        f"At N = {top:,} one {PASSES[phase]} {verb}, {order}: {', '.join(parts)}{caution(at)}.{end}"
    )


def ratio_caption(sweep: LengthSweep, phase: str, base: str) -> str:
    """Ratios at the longest length of each line, and what the band is."""
    ends = [
        (label, last)
        for label, line in sweep.lines(phase).items()
        if (last := next((r for r in reversed(line) if r.time is not None), None)) is not None
    ]
    parts = [
        f"{label} {r.time} at N = {length_of(r):,} ({r.verdict})" for label, r in ends if r.time
    ]
    band = " The grey band is the noise floor of the A/A control."
    known = any(not math.isinf(r.floor) for _, r in ends)
    return f"Time over that of {base}, {PASSES[phase]}: {'; '.join(parts)}.{band if known else ''}"


def memory_ratio_caption(sweep: LengthSweep, phase: str, base: str) -> str:
    """Ratios of peak memory at the longest length of each line."""
    parts = []
    for label, line in sweep.lines(phase).items():
        known = [r for r in line if not math.isnan(r.memory_ratio) and r.verdict != "baseline"]
        if known:
            parts.append(f"{label} {known[-1].memory_ratio:.2f}x at N = {length_of(known[-1]):,}")
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
    if what == "threads":
        said = "; ".join(f"{g.label} {g.time}" for g in ends)
        return f"With {most} threads instead of {least}, time is: {said}."
    said = "; ".join(f"{g.label} {g.by_item}" for g in ends)
    return f"At batch {most} instead of {least}, the time that falls to one sequence is: {said}."
