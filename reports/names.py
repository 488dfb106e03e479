"""Texts from records as parts of file names: records may hold slashes, or anything."""

from __future__ import annotations

import re

from harness.records.schema import digest

LONGEST = 40


def file_name(text: str) -> str:
    """``sst5`` as it is; anything else reduced to letters and digits, with a digest behind."""
    plain = re.sub(r"[^0-9A-Za-z]+", "-", text).strip("-").lower()[:LONGEST]
    if plain and plain == text:
        return plain
    return "-".join(part for part in (plain, digest(text)[:6]) if part)
