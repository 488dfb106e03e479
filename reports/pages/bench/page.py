"""``results/index.html``: what a bench leaves behind to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from harness.records import journal
from harness.records.gpu import GpuReading
from harness.records.ratios import Row
from reports.core.curves import draw_cost
from reports.core.gpu import COLUMNS, LEGEND, gpu_lines, gpu_remarks
from reports.core.html import fill
from reports.core.page import svg
from reports.core.source import facts
from reports.core.sweeps import LengthSweep, sweeps
from reports.pages.bench.tables import cases
from reports.pages.bench.tables import verified as checked


def write_page(
    folder: Path,
    fingerprint: Mapping[str, Any],
    baseline: str,
    sentences: Sequence[str],
    rows: Sequence[Row],
    verified: Sequence[Mapping[str, Any]],
    on_gpu: Sequence[GpuReading] = (),
) -> Path:
    """Draw the first figure and write the page into the journal folder.

    Returns
    -------
    Path
        Of ``index.html``; ``cost.svg`` and ``cost.png`` lie beside it.
    """
    sessions = journal.read(folder).sessions.values()
    matching = [s for s in sessions if s.get("fingerprint") == dict(fingerprint)]
    known = facts(fingerprint, matching)
    commit = known.get("commit", "")[:10]
    footer = (
        f"{known.get('model')} ({known.get('device')}), torch {known.get('torch')}, "
        f"{known.get('threads')} CPU threads, commit {commit}"
    )
    figure = cost(rows, baseline, footer)
    figure.savefig(folder / "cost.svg", bbox_inches="tight", metadata={"Date": None})
    figure.savefig(folder / "cost.png", bbox_inches="tight", dpi=130)
    path = folder / "index.html"
    page = fill(
        "bench.html.jinja",
        f"attnbench: cost on {known.get('model')}",
        sentences=sentences,
        figure=Markup(svg(figure)),
        cases=list(cases(rows)),
        gpu=gpu_lines(on_gpu, rows),
        gpu_columns=COLUMNS,
        gpu_says=[LEGEND, *gpu_remarks(on_gpu)],
        verified=checked(verified),
        facts=known,
    )
    path.write_text(page, encoding="utf-8")
    return path


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
        where = f", {sweep.size}" if sweep else ""
        for a, what in zip(axes[row], ("time", "ratio", "memory"), strict=True):
            draw_cost(a, lines, what, baseline)
            a.set_title(f"{phase}: {what}{where}", fontsize=10, loc="left")
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
