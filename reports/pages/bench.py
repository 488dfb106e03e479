"""``results/index.html``: what a bench leaves behind to look at."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from harness.records import journal
from harness.records.gpu import GpuReading
from harness.records.ratios import WITHHELD, Row
from harness.records.schema import cpu_threads
from reports.core.curves import draw_cost
from reports.core.gpu import COLUMNS, LEGEND, gpu_lines, gpu_remarks
from reports.core.html import fill
from reports.core.page import svg
from reports.core.source import facts
from reports.core.sweeps import LengthSweep, sweeps
from reports.core.words import bytes_text, known, margin_text, memory_text, number_text, time_text

PARTS = tuple(
    f"{part}_{column}" for part in ("value", "gradient") for column in ("error", "budget", "margin")
)
"""Columns of what was verified."""


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
    machine = facts(fingerprint, matching)
    commit = machine.get("commit", "")[:10]
    footer = (
        f"{machine.get('model')} ({machine.get('device')}), torch {machine.get('torch')}, "
        f"{cpu_threads(machine)}, commit {commit}"
    )
    figure = cost(rows, baseline, footer)
    figure.savefig(folder / "cost.svg", bbox_inches="tight", metadata={"Date": None})
    figure.savefig(folder / "cost.png", bbox_inches="tight", dpi=130)
    path = folder / "index.html"
    page = fill(
        "bench.html.jinja",
        f"attnbench: cost on {machine.get('model')}",
        sentences=sentences,
        figure=Markup(svg(figure)),
        cases=list(cases(rows)),
        gpu=gpu_lines(on_gpu, rows),
        gpu_columns=COLUMNS,
        gpu_says=[LEGEND, *gpu_remarks(on_gpu)],
        verified=checks(verified),
        facts=machine,
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


def _problem(row: Row) -> tuple[str, str]:
    c = row.columns
    floor = "" if math.isinf(row.floor) else f" (noise floor {100 * (row.floor - 1):.1f} %)"
    return (
        f"{c['phase']}, batch {c['batch']}, N = {c['length']}, {c['d_in']} to {c['d_out']}, "
        f"{c['dtype']}, {c['settings']}, {c['device']}",
        floor,
    )


def cases(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Every case: ``name`` and ``cells``; before the first of a problem, that ``problem``.

    One without a measurement has ``failure`` instead of cells.
    """
    last = ""
    for r in rows:
        problem, floor = _problem(r)
        heads = f" ({r.columns['heads']} heads)" if r.columns["heads"] else ""
        found: dict[str, Any] = {
            "problem": problem if problem != last else "",
            "floor": floor,
            "name": f"{r.columns['name']}{heads}",
            "failure": "",
        }
        last = problem
        if r.status != "ok":
            yield found | {"failure": f"{r.status}: {r.detail}" if r.detail else r.status}
            continue
        yield found | {
            "time": known(r.seconds, time_text) + ("*" if r.near_floor else ""),
            "ratio": str(r.time) if r.time else "",
            "verdict": r.verdict,
            "why": f": {r.detail}" if r.verdict == WITHHELD else "",
            "numbers": [
                number_text(100 * r.compute_share, ".2g" if r.compute_share < 0.01 else ".0f", " %")
                + (f" ({r.operations_by})" if r.operations_by else ""),
                known(r.peak_bytes, bytes_text),
                memory_text(r),
                number_text(r.error, ".1e"),
                margin_text(r),
            ],
        }


def checks(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What was checked against an oracle: name, dtype, numbers, verdict, detail."""

    def text(value: Any) -> str:
        return f"{value:.2g}" if isinstance(value, float) else ""

    return [
        {
            "name": str(r["name"]),
            "dtype": str(r["dtype"]),
            "numbers": [text(r.get(part)) for part in PARTS],
            "verdict": str(r["verdict"]),
            "detail": str(r.get("detail") or ""),
        }
        for r in rows
    ]
