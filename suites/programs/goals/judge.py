"""Met, missed or undecided: what the journal says of a goal.

A ratio of times is judged as `attnbench bench` judges one, with the bound in the place of 1: the
interval must exclude the bound, and the ratio must be further from it than the noise floor reaches.
Of several baselines each must be beaten; that against which a goal stands worst is shown first.
Memory and errors do not scatter as times do: they have no noise floor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.case import Case, parse
from harness.errors import UsageError
from harness.measure.ceilings import gauge_of, with_shares, work_of
from harness.records import journal
from harness.records.ratios import WITHHELD, block_ratios, memory_frame, summarise, time_frame
from harness.records.schema import MEASURED, short_commit
from harness.stats import Interval, noise_floor, ratio_interval, ratio_text, verdict
from reference_impls.mechanism import Mechanism
from suites.programs.goals.accuracy import KIND, case_of
from suites.programs.goals.plan import TIMED, Goal, Planned

MET, MISSED, UNDECIDED, SHOWN = "met", "missed", "undecided", "shown"
CANNOT = ("oom", "unsupported")
"""What a baseline can't do at a size: then the others decide."""
HARDEST = (MISSED, UNDECIDED, MET, SHOWN)
"""Each baseline must be beaten: one miss is a miss, and one doubt leaves it undecided."""
NOT_HERE, MISSING, UNMEASURED = "not here", "missing", "not measured"
RESULTS = (MET, MISSED, UNDECIDED, SHOWN, NOT_HERE)
"""What a goal can end as without anything having gone wrong."""
ROUNDING = 1e-9
"""Of a ratio through its logarithm: bytes that are just at the bound are not beyond it."""


@dataclass(frozen=True)
class Held:
    """Records of one device: of cases, and of kind ``accuracy``.

    ``commits`` are those of the code that was measured, the oldest first; none where it is today's.
    """

    fingerprint: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]
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
        known = sessions[-1].get("fingerprint", {})
        held[device] = Held(known, newest, tuple(dict.fromkeys(commits)))
    return held, found.warnings


class Readings:
    """Records of one device, of one code of every mechanism, by case."""

    def __init__(
        self, records: Sequence[Mapping[str, Any]], mechanisms: Mapping[str, Mechanism]
    ) -> None:
        rows = with_shares(summarise(records, baseline=""), records, mechanisms)
        self.rows = {row.case: row for row in rows}
        self.errors = {str(r["case"]): r for r in records if r["kind"] == KIND}
        self._taken: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for r in records:
            self._taken.setdefault((str(r["kind"]), str(r["case"])), []).append(r)
        self._mechanisms = mechanisms
        self._times, self._memory = (
            frame[frame["status"] == "ok"] for frame in (time_frame(records), memory_frame(records))
        )

    def status(self, case: Case) -> tuple[str, str]:
        """What became of a case and why; ``not measured`` without a record."""
        row = self.rows.get(case.id)
        return (UNMEASURED, "") if row is None else (row.status, row.detail)

    def lacking(self, kind: str, case: Case) -> str:
        """Why there is no margin or no reading of memory of a case; empty where there is one."""
        taken = self._taken.get((kind, case.id), [])
        if any(r["status"] in ("ok", "wrong") for r in taken):
            return ""
        why = (str(taken[-1][part] or "") for part in ("status", "detail")) if taken else ()
        return f"no {kind} of {case.name}: {': '.join(filter(None, why)) or UNMEASURED}"

    def time_ratio(self, case: Case, other: Case) -> Interval | None:
        """Ratio of two times with its interval; None where no interpreter measured both."""
        mine, base = (self._times[self._times["case"] == c.id] for c in (case, other))
        ratios = block_ratios(mine, base)
        return ratio_interval(ratios) if ratios else None

    def bytes_by_block(self, case: Case, column: str = "peak_bytes") -> dict[int, float]:
        """Peak of a pass, or what it holds beyond weights and input (``transient_bytes``)."""
        good = self._memory[(self._memory["case"] == case.id) & (self._memory[column] > 0)]
        return {int(b): float(v) for b, v in zip(good["block"], good[column], strict=True)}

    def memory_ratio(self, case: Case, other: Case) -> Interval | None:
        """Ratio of two peaks, formed inside blocks; None where no block has both."""
        mine, base = self.bytes_by_block(case), self.bytes_by_block(other)
        ratios = [mine[block] / base[block] for block in mine if block in base]
        return ratio_interval(ratios) if ratios else None

    def operations(self, case: Case) -> float:
        """Operations of one pass by the formulas; nan where none says."""
        return work_of(self._mechanisms.get(case.mechanism), case).operations


@dataclass(frozen=True)
class Against:
    """A goal's case beside one baseline."""

    baseline: str  # its name; empty where there is none (growth, accuracy)
    # What the bound is for: a ratio of times (for work: over that of operations) or peaks, a
    # speed-up, an exponent, an error.
    value: Interval
    floor: float  # noise floor; 1 where there is none
    verdict: str
    operations_ratio: float = math.nan  # of ours over the baseline's
    share: float = math.nan  # the baseline's of the best matrix product
    memory_ratio: float = math.nan  # our peak over the baseline's


@dataclass(frozen=True)
class Result:
    """What is known of a goal."""

    goal: Goal
    # met, missed, undecided, shown (no bound), withheld, not here (another device), missing (no
    # such implementation), or the status of what could not be measured.
    verdict: str
    detail: str = ""  # why, where that is not plain
    against: tuple[Against, ...] = ()  # by baseline, that against which it stands worst first
    # share, peak_bytes, margin: of what was measured (for growth, at the last length).
    share: float = math.nan
    peak_bytes: float = math.nan
    margin: float = math.nan
    lacking: tuple[str, ...] = ()  # readings beside it that could not be taken, and why

    @property
    def worst(self) -> Against | None:
        """The comparison that decides."""
        return self.against[0] if self.against else None

    @property
    def distance(self) -> float:
        """How far the value is from the bound, as a share of it: above 0 is on the wrong side."""
        if self.worst is None or not self.goal.bound:
            return math.nan
        part = self.worst.value.ratio / self.goal.bound
        return (part if self.goal.at_least is None else 1 / part) - 1


def _times(value: Interval, factor: float) -> Interval:
    return Interval(value.ratio * factor, value.low * factor, value.high * factor, value.count)


def _inverse(value: Interval) -> Interval:
    return Interval(1 / value.ratio, 1 / value.high, 1 / value.low, value.count)


def said(goal: Goal, value: Interval, floor: float) -> str:
    """Met, missed or undecided; shown where there is no bound."""
    bound = goal.bound
    if bound is None:
        return SHOWN
    beside = _times(value, 1 / bound)
    if goal.at_least is not None:
        beside = _inverse(beside)
    if goal.kind in TIMED:
        return {"faster": MET, "slower": MISSED}.get(verdict(beside, floor), UNDECIDED)
    if not beside.known:
        return UNDECIDED
    most = 1 + ROUNDING
    return MET if beside.high <= most else MISSED if beside.low > most else UNDECIDED


def judge(plan: Planned, readings: Readings) -> Result:
    """Judge a goal by the readings of its device."""
    if plan.goal.kind == KIND:
        return judge_accuracy(plan.goal, readings.errors.get(case_of(plan.goal)))
    for case in plan.measured:
        status, detail = readings.status(case)
        if status != "ok":
            return Result(plan.goal, status, f"{case.id}: {detail}" if detail else case.id)
    row = readings.rows[plan.measured[-1].id]
    margin = row.margin if row.verified else math.nan
    found = Result(plan.goal, MET, "", (), row.compute_share, row.peak_bytes, margin)
    if plan.goal.kind == "fits":
        return found
    return (_growth if plan.goal.kind == "growth" else _compared)(plan, readings, found)


def _growth(plan: Planned, readings: Readings, found: Result) -> Result:
    """The exponent of what a pass holds, between the last two lengths."""
    short, long = plan.measured[-2:]
    held, more = (readings.bytes_by_block(case, "transient_bytes") for case in (short, long))
    longer = math.log(long.problem.length / short.problem.length)
    exponents = [math.log(more[block] / held[block]) / longer for block in held if block in more]
    if not exponents or min(exponents) <= 0:
        return replace(found, verdict=UNMEASURED, detail="no memory was read at both lengths")
    value = ratio_interval(exponents)
    one = Against("", value, 1.0, said(plan.goal, value, 1.0))
    return replace(found, verdict=one.verdict, against=(one,))


def _compared(plan: Planned, readings: Readings, found: Result) -> Result:
    """Times or peaks beside those of every baseline that could be measured."""
    [mine] = plan.measured
    against, failed, lost = [], [], False
    for base in plan.baselines:
        status, detail = readings.status(base)
        one = _beside(plan.goal, mine, base, readings) if status == "ok" else None
        if one is None:
            what = "not measured side by side" if status == "ok" else status
            failed.append(": ".join(filter(None, (base.name, what, detail))))
            lost = lost or status not in CANNOT
        else:
            against.append(one)
    detail = "; ".join(failed)
    if not against:
        return replace(found, verdict=UNMEASURED, detail=detail)
    with_times = [mine, *(base for base in plan.baselines if readings.status(base)[0] == "ok")]
    lacking = [readings.lacking("margin", mine)]
    lacking += [readings.lacking("memory", case) for case in with_times]
    found = replace(found, lacking=tuple(filter(None, lacking)))
    sign = 1 if plan.goal.at_least is None else -1
    against.sort(key=lambda one: (HARDEST.index(one.verdict), -sign * one.value.ratio))
    says = against[0].verdict
    rows = {"ours": readings.rows[mine.id]}
    rows |= {
        base.name: readings.rows[base.id] for base in plan.baselines if base.id in readings.rows
    }
    withheld = [f"{who}: {row.detail}" for who, row in rows.items() if row.verdict == WITHHELD]
    if withheld:
        says, detail = WITHHELD, withheld[0]
    elif says == MET and math.isnan(found.margin):
        says, detail = UNDECIDED, "within the bound, but its error was not verified at this size"
    elif says == MET and lost:  # who knows what that baseline would have taken
        says = UNDECIDED
    return replace(found, verdict=says, detail=detail, against=tuple(against))


def _beside(goal: Goal, mine: Case, base: Case, readings: Readings) -> Against | None:
    """Ours beside one baseline; None where nothing was measured side by side."""
    floor = 1.0
    if goal.kind == "memory":
        value = readings.memory_ratio(mine, base)
    else:
        value = readings.time_ratio(mine, base)
        control = readings.time_ratio(base.control(), base)
        floor = math.inf if control is None else noise_floor(control)
    if value is None:
        return None
    operations = readings.operations(mine) / readings.operations(base)
    if goal.kind == "speed-up":
        value = _inverse(value)
    elif goal.kind == "work":
        value = _times(value, 1 / operations)
    ours, its = readings.rows[mine.id], readings.rows[base.id]
    return Against(
        base.name,
        value,
        floor,
        said(goal, value, floor),
        operations,
        its.compute_share,
        ours.peak_bytes / its.peak_bytes,
    )


def judge_accuracy(goal: Goal, record: Mapping[str, Any] | None) -> Result:
    """Judge the largest error over all factors on the scores, by a record of kind ``accuracy``."""
    if record is None:
        return Result(goal, UNMEASURED, goal.measured)
    if record["status"] != "ok":
        return Result(goal, str(record["status"]), str(record.get("detail") or ""))
    # An error that is no number at all is beyond any bound.
    errors = [(s, math.inf if math.isnan(e) else float(e)) for s, e in record["by_scale"]]
    scale, largest = max(errors, key=lambda pair: pair[1])
    margin = float(record.get("margin", math.nan))
    value = Interval(largest, largest, largest, len(errors))
    if not (math.isfinite(largest) and math.isfinite(record.get("gradient_error", math.nan))):
        says, detail = MISSED, f"not finite at scores times {scale:g}, or a gradient is not"
    else:
        says, detail = said(goal, value, 1.0), f"largest at scores times {scale:g}"
        if says == MET and not margin >= 1:
            says, detail = MISSED, f"{detail}; output or a gradient is over its error budget"
    return Result(goal, says, detail, (Against("", value, 1.0, says),), margin=margin)


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
        else:
            results.append(judge(plan, readings[goal.device]))
    return results


def bounded_by(result: Result) -> str:
    """What a ratio of times is made of: operations, and how fast each side does them."""
    one, goal = result.worst, result.goal
    if one is None or goal.kind not in TIMED:
        return ""
    if any(map(math.isnan, (one.operations_ratio, result.share, one.share))):
        return ""
    said = (
        f"{ratio_text(one.operations_ratio)} the operations of {one.baseline}, done at "
        f"{result.share:.0%} of the best matrix product where that reaches {one.share:.0%}"
    )
    wanted = result.share * (1 + result.distance)
    return said if math.isnan(wanted) else f"{said}; the bound takes {wanted:.0%}"
