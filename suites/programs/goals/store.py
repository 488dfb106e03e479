"""What is known of the goals on each device, and what that says of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.case import parse
from harness.errors import UsageError
from harness.measure.ceilings import gauge_of
from harness.records import journal
from harness.records.schema import MEASURED, short_commit
from reference_impls.mechanism import Mechanism
from suites.programs.goals.accuracy import KIND, case_of
from suites.programs.goals.judge import MISSING, NOT_HERE, Result, judge, judge_accuracy
from suites.programs.goals.plan import Planned
from suites.programs.goals.readings import Readings


@dataclass(frozen=True)
class Held:
    """Records of one device.

    Attributes
    ----------
    fingerprint : mapping
    records : list of dict
        Of cases.
    errors : mapping
        Records of kind ``accuracy`` by their case.
    commits : tuple of str
        Of the code that was measured, the oldest first; empty where it is today's.
    """

    fingerprint: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]
    errors: Mapping[str, Mapping[str, Any]]
    commits: tuple[str, ...] = ()

    @property
    def blocks(self) -> int:
        """How many blocks there are at most."""
        return len({r["block"] for r in self.records if r["kind"] == "time"})


def read_folder(folder: Path, plans: Sequence[Planned]) -> tuple[dict[str, Held], list[str]]:
    """What a folder holds of some goals, by device, and warnings.

    Of several versions of the code the last one counts.

    Raises
    ------
    UsageError
        If there is nothing, or one device's records come from two machines.
    """
    found = journal.read(folder)
    device_of = {case.id: case.problem.device for plan in plans for case in plan.cases}
    device_of |= {gauge_of(parse(case)).id: device for case, device in device_of.items()}
    device_of |= {case_of(p.goal): p.goal.device for p in plans if p.goal.kind == KIND}
    by_device: dict[str, list[dict[str, Any]]] = {}
    for r in found.records:
        if r["kind"] in (*MEASURED, KIND) and r["case"] in device_of:
            by_device.setdefault(device_of[r["case"]], []).append(r)
    if not by_device:
        raise UsageError(f"{folder} holds no record of these goals; measure them first")
    held = {}
    for device, records in by_device.items():
        machines = {str(r.get("fingerprint")) for r in records}
        if len(machines) > 1:
            raise UsageError(
                f"{folder} holds goals of {len(machines)} different machines or surroundings for "
                f"{device}; give a folder of its own to each"
            )
        newest = journal.newest_code(records)
        # By the code that was measured last; the order tells which commits are the older ones.
        newest.sort(key=lambda r: str(r.get("at")))
        sessions = [found.sessions[r["session"]] for r in newest]
        commits = (short_commit(s.get("environment") or {}) for s in sessions)
        held[device] = Held(
            sessions[-1].get("fingerprint", {}),
            [r for r in newest if r["kind"] != KIND],
            {str(r["case"]): r for r in newest if r["kind"] == KIND},
            tuple(dict.fromkeys(commits)),
        )
    return held, found.warnings


def judge_all(
    plans: Sequence[Planned], held: Mapping[str, Held], mechanisms: Mapping[str, Mechanism]
) -> list[Result]:
    """Judge every goal by what is held of its device."""
    readings = {device: Readings(h.records, mechanisms) for device, h in held.items()}
    results = []
    for plan in plans:
        goal = plan.goal
        if plan.missing:
            results.append(Result(goal, MISSING, plan.missing))
        elif goal.device not in held:
            results.append(Result(goal, NOT_HERE, f"needs {goal.device.upper()}"))
        elif goal.kind == KIND:
            results.append(judge_accuracy(goal, held[goal.device].errors.get(case_of(goal))))
        else:
            results.append(judge(plan, readings[goal.device]))
    return results
