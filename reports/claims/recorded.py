"""Claims that ``attnbench verify`` settles: equality, numbers of weights, numbers of heads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reports.claims.measured import Measured, not_measured
from reports.claims.record import Claim
from reports.claims.verdict import Answer, Finding

COMMAND = "attnbench verify --exact"


def exact(claim: Claim, device: Measured) -> Finding:
    """What a recorded check says. Parameters: ``check``, and ``part`` for one part of it."""
    p = claim.parameters
    record = device.exact.get(p["check"])
    if record is None:
        return not_measured(f"no record of the check {p['check']!r}", COMMAND)
    part: Mapping[str, Any] = record
    if "part" in p:
        parts = record.get("parts")
        found = parts.get(p["part"]) if isinstance(parts, Mapping) else None
        if not isinstance(found, Mapping):
            return not_measured(f"no part {p['part']!r} of the check {p['check']!r}", COMMAND)
        part = found
    answers: dict[Any, Answer] = {"ok": "reproduced", "wrong": "not reproduced"}
    verdict = part.get("verdict")
    value = part.get("value")
    size = float(value) if isinstance(value, int | float) else math.nan
    return Finding(
        size, size, size, f"{part.get('detail') or record.get('detail') or verdict}",
        (str(record["key"]),), answer=answers.get(verdict, "undecided"),
    )  # fmt: skip
