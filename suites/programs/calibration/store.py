"""Calibration records of a folder: of one plan, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.records import journal
from suites.programs.calibration.plan import Plan, from_description
from suites.programs.calibration.run import KIND


def load(folder: Path, plan_id: str = "") -> tuple[Plan, list[dict[str, Any]], list[str]]:
    """Plan, finished records and warnings of a folder.

    Parameters
    ----------
    plan_id : str
        Of the plan that is wanted; by default the only one that is there.

    Raises
    ------
    UsageError
        If there is no calibration in the folder, or more than one and none is named.
    """
    found = journal.read(folder)
    plans = {s["plan_id"]: s["plan"] for s in found.sessions.values() if s.get("purpose") == KIND}
    if not plan_id and len(plans) != 1:
        raise UsageError(
            f"{folder} holds {len(plans)} different calibrations; expected one: give a folder of "
            "its own to each"
        )
    plan_id = plan_id or next(iter(plans))
    if plan_id not in plans:
        raise UsageError(f"{folder} holds no record of this calibration")
    records = [
        r
        for r in found.records
        if r["kind"] == KIND and r["plan_id"] == plan_id and r["status"] == "ok"
    ]
    if len({(r["condition"], r["repeat"], r["block"]) for r in records}) < len(records):
        raise UsageError(
            f"{folder} holds this calibration twice (of other code or another machine); give a "
            "folder of its own to each"
        )
    return from_description(plans[plan_id]), records, found.warnings
