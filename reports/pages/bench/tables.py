"""Rows of the page after a bench, as its template takes them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.records.ratios import WITHHELD, Row
from reports.core.words import (
    bytes_text,
    known,
    margin_text,
    memory_text,
    number_text,
    time_text,
)

PARTS = tuple(
    f"{part}_{column}" for part in ("value", "gradient") for column in ("error", "budget", "margin")
)
"""Columns of what was verified."""


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


def verified(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
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
