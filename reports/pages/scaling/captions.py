"""Captions of ``scaling.ipynb``, in whole sentences from the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.records.ratios import Row
from harness.stats import ratio_text
from reports.core.sweeps import LengthSweep, label_of, length_of
from reports.core.words import bytes_text, time_text
from reports.pages.scaling.figures import PASSES, Fit
from reports.pages.scaling.growth import Grown


def curve(what: str, sweep: LengthSweep, phase: str, base: str) -> str:
    """What a figure of a cost against length shows; `what` as of `figures.curve`."""
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


def slopes(fits: Sequence[Fit], cost: str, phase: str) -> str:
    """The power of the length that each cost grows with."""
    parts = [f"{label} N^{(end or whole).slope:.1f}" for label, whole, end in fits]
    return (
        f"Over the longest lengths measured, {cost} of one {PASSES[phase]} grows as "
        f"{', '.join(parts)}."
    )


def growth(grown: Sequence[Grown], what: str) -> str:
    """What the most threads, or the largest batch, make of the time."""
    most, least = max(g.amount for g in grown), grown[0].least
    ends = sorted((g for g in grown if g.amount == most), key=lambda g: g.time.ratio)
    said = "; ".join(f"{g.label} {g.shown(what)}" for g in ends)
    if what == "threads":
        return f"With {most} threads instead of {least}, time is: {said}."
    return f"At batch {most} instead of {least}, the time that falls to one sequence is: {said}."
