"""Rows of the tables of ``scaling.ipynb``: as texts for the page, as numbers for the CSV files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from harness.records.ratios import Row
from reports.core.sweeps import Slope
from reports.core.tables import Saved
from reports.core.words import known, margin_text, memory_text, number_text, time_text
from reports.pages.scaling.figures import Fit
from reports.pages.scaling.growth import Grown


def cells(row: Row) -> dict[str, str]:
    """A case as texts; or why it has none."""
    found = {
        "time": known(row.seconds, time_text),
        "ratio [95 %]": str(row.time) if row.time else "",
        "verdict": row.verdict,
        "peak memory": number_text(row.peak_bytes / 2**20, ".1f", " MiB"),
        "ratio": memory_text(row),
        "margin": margin_text(row),
        "kernels": "; ".join(row.kernels),
    }
    if row.status == "ok":
        return found
    failed = f"{row.status}: {row.detail}" if row.detail else row.status
    return {**dict.fromkeys(found, ""), "time": failed}


def numbers(row: Row) -> dict[str, Any]:
    """A case with all its numbers; units stand in the names."""
    c = row.columns
    known = ("mechanism", "implementation", "batch", "heads", "dtype", "settings", "device")
    t = row.time
    return {
        "case": row.case,
        **{k: c[k] for k in known},
        "pass": c["phase"],
        "length_tokens": c["length"],
        "width_in": c["d_in"],
        "width_out": c["d_out"],
        "status": row.status,
        "detail": row.detail,
        "time_seconds": row.seconds,
        "time_ratio_to_baseline": t.ratio if t else None,
        "time_ratio_low": t.low if t else None,
        "time_ratio_high": t.high if t else None,
        "blocks": t.count if t else None,
        "noise_floor_ratio": None if math.isinf(row.floor) else row.floor,
        "verdict": row.verdict,
        "peak_memory_bytes": row.peak_bytes,
        "memory_ratio_to_baseline": row.memory_ratio,
        "error": row.error,
        "error_budget": row.budget,
        "verified": row.verified,
        "baseline_case": row.baseline,
        "share_of_gemm_peak": row.compute_share,
        "share_of_copy_bandwidth": row.bandwidth_share,
        "near_launch_floor": row.near_floor,
        "kernels": "; ".join(row.kernels),
    }


def _lengths(fit: Slope | None) -> str:
    return ", ".join(f"{n:,}" for n in fit.lengths) if fit else ""


def slopes(found: Sequence[tuple[str, str, Fit]]) -> Saved:
    """All slopes (cost, pass and fit) as numbers and as texts."""
    flat = [
        {
            "cost": cost,
            "pass": phase,
            "implementation": label,
            "lengths_tokens": " ".join(map(str, fit.lengths)),
            "slope": fit.slope,
            "slope_low": fit.low,
            "slope_high": fit.high,
            "blocks": fit.blocks,
        }
        for cost, phase, (label, whole, end) in found
        for fit in (whole, end)
        if fit is not None
    ]
    rows = [
        {
            "": f"{cost}, {phase}: {label}",
            "slope, all lengths": str(whole),
            "all N": _lengths(whole),
            "slope, the longest": str(end or ""),
            "the longest N": _lengths(end),
        }
        for cost, phase, (label, whole, end) in found
    ]
    return flat, rows


def growth(grown: Sequence[Grown], what: str, baseline: str) -> Saved:
    """Growth with "threads" or the "batch", as numbers and as texts."""
    flat, rows = [], []
    for g in grown:
        flat.append(
            {
                "case": g.row.case,
                what: g.amount,
                f"least_{what}": g.least,
                "time_seconds": g.row.seconds,
                "time_ratio_to_least": g.time.ratio,
                "time_ratio_low": g.time.low,
                "time_ratio_high": g.time.high,
                "blocks": g.time.count,
            }
        )
        fewest = {"threads": "fewest threads", "batch": "smallest batch"}[what]
        over = {f"over the {fewest} [95 %]": str(g.time)}
        if what == "batch":
            over[f"one sequence, over the {fewest} [95 %]"] = str(g.by_item)
        rows.append(
            {
                "": f"{g.phase}, {g.problem}: {g.label}",
                what: f"{g.amount:,}",
                "time": time_text(g.row.seconds),
                **(dict.fromkeys(over, "") if g.amount == g.least else over),
                f"over {baseline}, {what} alike [95 %]": str(g.row.time) if g.row.time else "",
            }
        )
    return flat, rows
