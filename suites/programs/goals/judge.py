"""Met, missed or undecided: what the readings say of a goal.

A ratio of times is judged as `attnbench bench` judges one, with the bound in the place of 1: the
interval must exclude the bound, and the ratio must be further from it than the noise floor reaches.
Of several baselines each must be beaten; that against which a goal stands worst is shown first.
Memory and errors do not scatter as times do: they have no noise floor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.case import Case
from harness.measure.ceilings import MOST
from harness.records.ratios import WITHHELD
from harness.stats import Interval, noise_floor, ratio_interval, ratio_text, verdict
from suites.programs.goals.goal import Goal
from suites.programs.goals.plan import TIMED, Planned
from suites.programs.goals.readings import Readings

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
class Against:
    """A goal's case beside one baseline.

    Attributes
    ----------
    baseline : str
        Its name; empty where there is none (growth, accuracy).
    value : Interval
        What the bound is for: a ratio of times or peaks, a speed-up, an exponent, an error.
    floor : float
        Noise floor; 1 where there is none.
    verdict : str
    operations_ratio, share, memory_ratio : float
        Operations of ours over the baseline's; the baseline's share of the best matrix product;
        our peak over its.
    """

    baseline: str
    value: Interval
    floor: float
    verdict: str
    operations_ratio: float = math.nan
    share: float = math.nan
    memory_ratio: float = math.nan


@dataclass(frozen=True)
class Result:
    """What is known of a goal.

    Attributes
    ----------
    verdict : str
        met, missed, undecided, shown (no bound), withheld, not here (another device), missing (no
        such implementation), or the status of what could not be measured.
    detail : str
        Why, where that is not plain.
    against : tuple of Against
        By baseline, the one against which it stands worst first.
    seconds, share, peak_bytes, margin : float
        Of what was measured (for growth, at the last length).
    """

    goal: Goal
    verdict: str
    detail: str = ""
    against: tuple[Against, ...] = ()
    seconds: float = math.nan
    share: float = math.nan
    peak_bytes: float = math.nan
    margin: float = math.nan

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


def said(goal: Goal, value: Interval, floor: float) -> str:
    """Met, missed or undecided; shown where there is no bound."""
    bound = goal.bound
    if bound is None:
        return SHOWN
    ends = (value.ratio / bound, value.low / bound, value.high / bound)
    if goal.at_least is not None:
        ends = (1 / ends[0], 1 / ends[2], 1 / ends[1])
    beside = Interval(*ends, value.count)
    if goal.kind in TIMED:
        return {"faster": MET, "slower": MISSED}.get(verdict(beside, floor), UNDECIDED)
    if not beside.known:
        return UNDECIDED
    most = 1 + ROUNDING
    return MET if beside.high <= most else MISSED if beside.low > most else UNDECIDED


def judge(plan: Planned, readings: Readings) -> Result:
    """Judge a goal that is no question of accuracy, by the readings of its device."""
    failed = [(case, *readings.status(case)) for case in plan.measured]
    for case, status, detail in failed:
        if status != "ok":
            return Result(plan.goal, status, f"{case.id}: {detail}" if detail else case.id)
    last = plan.measured[-1]
    found = Result(
        plan.goal,
        SHOWN,
        "",
        (),
        readings.seconds(last),
        readings.share(last),
        readings.peak(last),
        readings.margin(last),
    )
    if plan.goal.kind == "fits":
        return replace(found, verdict=MET)
    if plan.goal.kind == "growth":
        return _growth(plan, readings, found)
    return _compared(plan, readings, found)


def _growth(plan: Planned, readings: Readings, found: Result) -> Result:
    """The exponent of what a pass holds, between the last two lengths."""
    short, long = plan.measured[-2:]
    column = "transient_bytes"
    held, more = (readings.bytes_by_block(case, column) for case in (short, long))
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
    if not against:
        return replace(found, verdict=UNMEASURED, detail="; ".join(failed))
    sign = 1 if plan.goal.at_least is None else -1
    against.sort(key=lambda one: (HARDEST.index(one.verdict), -sign * one.value.ratio))
    says = against[0].verdict
    detail = "; ".join(failed)
    if impossible := _impossible(found, against):
        says, detail = WITHHELD, impossible
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
    if goal.kind == "speed-up":
        value = Interval(1 / value.ratio, 1 / value.high, 1 / value.low, value.count)
    return Against(
        base.name,
        value,
        floor,
        said(goal, value, floor),
        readings.operations(mine) / readings.operations(base),
        readings.share(base),
        readings.peak(mine) / readings.peak(base),
    )


def _impossible(found: Result, against: Sequence[Against]) -> str:
    """Why a row can't be right: more operations per second than the machine's best product."""
    for whose, share in (("ours", found.share), *((a.baseline, a.share) for a in against)):
        if share > MOST:
            return (
                f"{whose}: {share:.0%} of the session's best matrix product: a wrong formula, a "
                "wrong clock, or work that was not done"
            )
    return ""


def judge_accuracy(goal: Goal, record: Mapping[str, Any] | None) -> Result:
    """Judge the largest error over all factors on the scores.

    Parameters
    ----------
    record : mapping or None
        What `suites.programs.goals.accuracy.run` wrote.
    """
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


def bounded_by(result: Result) -> str:
    """What a ratio of times is made of: operations, and how fast each side does them."""
    one, goal = result.worst, result.goal
    if one is None or goal.kind not in TIMED:
        return ""
    if any(map(math.isnan, (one.operations_ratio, result.share, one.share))):
        return ""
    return (
        f"{ratio_text(one.operations_ratio)} the operations of {one.baseline}, done at "
        f"{result.share:.0%} of the best matrix product where that reaches {one.share:.0%}"
    )
