"""What is known of the goals on each device: from the sessions that run now, or from a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.case import parse
from harness.errors import UsageError
from harness.measure.ceilings import gauge_of
from harness.measure.session import Session
from harness.records import journal
from harness.records.schema import MEASURED, short_commit
from reference_impls.mechanism import Mechanism
from suites.programs.goals.accuracy import KIND, Accuracy, case_of
from suites.programs.goals.judge import Result, judge, judge_accuracy, not_here
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


def held_by(
    made: Sequence[Session],
    wanted: Sequence[Accuracy],
    folder: Path,
    fingerprint: Mapping[str, Any],
) -> Held:
    """What the journal holds of this plan, by today's code on this machine."""
    finished = journal.read(folder).finished()
    errors = {case_of(a.goal): finished[a.key] for a in wanted if a.key in finished}
    return Held(fingerprint, [r for s in made for r in s.records()], errors)


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
        records = _newest(records)
        sessions = [found.sessions[r["session"]] for r in records]
        commits = (short_commit(s.get("environment") or {}) for s in sessions)
        held[device] = Held(
            sessions[-1].get("fingerprint", {}),
            [r for r in records if r["kind"] != KIND],
            {str(r["case"]): r for r in records if r["kind"] == KIND},
            tuple(dict.fromkeys(commits)),
        )
    return held, found.warnings


def _newest(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each case and kind the records of the code that was measured last, in order of time."""

    def sort(record: Mapping[str, Any]) -> tuple[str, str]:
        # A case that was timed again is of the same kind.
        return str(record["case"]), "time" if record["kind"] == "anchor" else str(record["kind"])

    ordered = sorted(records, key=lambda r: str(r.get("at", "")))
    last = {sort(r): r.get("code") for r in ordered}
    return [r for r in ordered if r.get("code") == last[sort(r)]]


def judge_all(
    plans: Sequence[Planned], held: Mapping[str, Held], mechanisms: Mapping[str, Mechanism]
) -> list[Result]:
    """Judge every goal by what is held of its device."""
    readings = {device: Readings(h.records, mechanisms) for device, h in held.items()}
    results = []
    for plan in plans:
        goal = plan.goal
        if goal.kind != KIND:
            results.append(judge(plan, readings.get(goal.device)))
        elif goal.device not in held and not plan.missing:
            results.append(not_here(goal))
        else:
            errors = held[goal.device].errors if goal.device in held else {}
            results.append(judge_accuracy(goal, plan.missing, errors.get(case_of(goal))))
    return results
