"""Numbers as words, and texts from records as parts of file names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.records.ratios import Row
from harness.records.schema import digest
from harness.stats import ratio_text

LONGEST = 40
"""Letters of a file name."""


def file_name(text: str) -> str:
    """A text from a record, which may hold slashes or anything, as part of a file name.

    ``sst5`` as it is; anything else reduced to letters and digits, with a digest behind.
    """
    plain = re.sub(r"[^0-9A-Za-z]+", "-", text).strip("-").lower()[:LONGEST]
    if plain and plain == text:
        return plain
    return "-".join(part for part in (plain, digest(text)[:6]) if part)


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    factor, unit = next((u for u in units if value >= u[0]), units[-1])
    digits = max(0, 2 - math.floor(math.log10(value / factor))) if value > 0 else 0
    return f"{value / factor:,.{digits}f} {unit}"


def time_text(seconds: float) -> str:
    """Three digits and a unit that suits them."""
    return _scaled(seconds, ((1, "s"), (1e-3, "ms"), (1e-6, "µs")))


def bytes_text(count: float) -> str:
    """Three digits and a unit that suits them."""
    return _scaled(count, ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")))


def known(value: float, text: Callable[[float], str]) -> str:
    """A number as text; empty where there is none."""
    return "" if math.isnan(value) else text(value)


def number_text(value: float, form: str, suffix: str = "") -> str:
    """A number in a form, with what stands behind it; empty where there is none."""
    return known(value, lambda number: f"{number:{form}}{suffix}")


def days(records: Iterable[Mapping[str, Any]]) -> str:
    """``2026-11-25 to 2026-11-28``: first and last day of records; empty where none is told."""
    known_days = sorted({str(r["at"])[:10] for r in records if r.get("at")})
    return " to ".join(dict.fromkeys((known_days[0], known_days[-1]))) if known_days else ""


def margin_text(row: Row) -> str:
    """``3.4x``, or what of a row's values is known instead."""
    if not row.verified:
        return row.unverified.partition(":")[0]
    return f"{row.margin:.3g}x{' against its own float64' * row.by_itself}"


def memory_text(row: Row) -> str:
    """The ratio of peaks, or that the readings are too small for one; empty without readings."""
    if row.below_floor:
        return f"below what can be told (floor {bytes_text(row.memory_floor)})"
    return known(row.memory_ratio, ratio_text)


def error_text(value: float | None) -> str:
    """``1.2e-06``; an error that is no finite number has none."""
    return "not finite" if value is None else f"{float(value):.1e}"
