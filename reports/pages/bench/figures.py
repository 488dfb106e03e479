"""The figure of a bench: every quantity and pass at once."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from harness.records.ratios import Row
from reports.core.curves import draw_ratios, draw_values, peak_mib, seconds_to_ms
from reports.core.sweeps import LengthSweep, sweeps


def cost(rows: Sequence[Row], baseline: str, footer: str) -> Figure:
    """Time, ratio to the baseline and peak memory against length, forward and training.

    Bars are 95 % t-intervals over blocks; the grey band is the noise floor of the A/A control;
    OOM and timeout are marked at the upper edge. A pass that was not measured has no row.
    """
    found = {phase: _longest(rows, phase) for phase in ("forward", "training")}
    shown = {phase: one for phase, one in found.items() if one[0]} or found
    size = (14, 4.1 * len(shown))
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(hspace=0.07))
    axes = figure.subplots(len(shown), 3, squeeze=False)
    for row, (phase, (sweep, lines)) in enumerate(shown.items()):
        time_axes, ratio_axes, memory_axes = axes[row]
        draw_values(time_axes, lines, seconds_to_ms)
        time_axes.set_ylabel("time per call (ms)")
        draw_ratios(ratio_axes, lines, baseline)
        draw_values(memory_axes, lines, peak_mib)
        memory_axes.set_ylabel("peak memory (MiB)")
        where = f", {sweep.size}" if sweep else ""
        for a, title in zip(axes[row], ("time", "ratio", "memory"), strict=True):
            a.set_title(f"{phase}: {title}{where}", fontsize=10, loc="left")
            a.margins(x=0.05)
            left, right = a.get_xlim()
            # Room for the names at the line ends (the axis is logarithmic).
            a.set_xlim(left, right * (right / left) ** 0.45)
    figure.text(0.005, -0.012, footer, fontsize=7.5, color="0.35", va="top")
    return figure


def _longest(rows: Sequence[Row], phase: str) -> tuple[LengthSweep | None, dict[str, list[Row]]]:
    """The sweep of a pass with most lengths (one is enough here)."""
    found = sweeps([r for r in rows if r.columns["phase"] == phase], least=1)
    return (found[0], found[0].lines(phase)) if found else (None, {})
