"""Who is right, and how often: bench's verdict, and pytest-benchmark's compare beside it.

Bench decides as for any case: case and base are timed in turn in a process of a fresh interpreter,
whose ratio is the block's, and the verdict on the interval over blocks holds the A/A control's
noise floor against it. All of that is the code that bench runs.

pytest-benchmark decides with ``--benchmark-compare-fail=median:5%``: a median more than 5 % above
the base's is a failure. It is asked through its own classes, on the wall times of the same samples,
because it knows no other (they are taken in turn, as it would not take them itself). Two readings,
since it knows no blocks either: of one *run*, the samples of one block, which is how it is used
(every block is a run of its own: 15 times as many answers);
and *pooled*, all samples of all blocks as if one run had been that long. It looks for slowdowns
only, so that a difference in the other direction, which counts as a false alarm of bench's verdict,
can't be one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pandas as pd
from pytest_benchmark.stats import Stats
from pytest_benchmark.utils import parse_compare_fail

from harness.stats import Interval, noise_floor, ratio_interval, verdict
from suites.programs.calibration.plan import ARMS, CONTROL, GOALS, Goal, Plan

THRESHOLD = "median:5%"
FEWER = (2, 3, 5, 7)
"""Blocks of which most published tables are, beside a calibration's own number."""
ATTNBENCH, ONE_RUN, POOLED = "attnbench", "pytest-benchmark, one run", "pytest-benchmark, pooled"


@dataclass(frozen=True)
class Share:
    """In how many of so many comparisons an arm was told apart from the base."""

    condition: str
    arm: str
    judge: str
    count: int
    total: int

    @property
    def goal(self) -> Goal | None:
        """What bench's verdict is held to; nobody else is."""
        goals = (g for g in GOALS if g.arm == self.arm)
        return next(goals, None) if self.judge == ATTNBENCH else None


@dataclass(frozen=True)
class Noise:
    """How noisy a condition was.

    ``spread`` is the median over comparisons of how far the A/A control's interval reaches from 1,
    ``waited`` the share of the wall time in which the arms had no core, ``load`` the least and
    greatest of the machine (one minute's mean) before and after passages.
    """

    condition: str
    spread: float
    waited: float
    load: tuple[float, float]


@dataclass(frozen=True)
class Score:
    """What a journal shows of one plan; what is ``missing`` of a condition is not counted.

    `fewer` is what fewer blocks of the same would have found, by their number.
    """

    plan: Plan
    shares: list[Share]
    fewer: Mapping[int, list[Share]]
    noise: list[Noise]
    missing: Mapping[str, int]

    @property
    def reached(self) -> bool:
        """Whether everything was measured and all goals are met."""
        judged = [s for s in self.shares if s.goal is not None]
        met = all(s.goal.met(s.count, s.total) for s in judged if s.goal)
        return bool(judged) and not any(self.missing.values()) and met


Blocks = Mapping[int, Mapping[str, Mapping[str, Any]]]
"""Arms by block and name, of one comparison."""


def interval(blocks: Blocks, arm: str) -> Interval:
    """Ratio of an arm to the base, with its interval."""
    return ratio_interval([blocks[block][arm]["ratio"] for block in sorted(blocks)])


def told_apart(blocks: Blocks, arm: str, floor: float) -> bool:
    """Whether bench's verdict claims what it must (slower), or must not (any difference)."""
    says = verdict(interval(blocks, arm), floor)
    return says == "slower" or (says == "faster" and arm == "same")


def wall(side: Mapping[str, Any]) -> list[float]:
    """Samples of an arm as a wall clock has them; published are the steps from each to the next."""
    if "steps_us" in side:
        return [round(us, 6) for us in accumulate(side["steps_us"])]
    return [us + side["waited_us"].get(str(i), 0.0) for i, us in enumerate(side["us"])]


def in_all(record: Mapping[str, Any]) -> tuple[float, float]:
    """Microseconds that the arms of a block ran, and that they waited for a core."""
    if "ran_us" in record:  # it is published
        return record["ran_us"], record["waited_us"]
    sides = [
        arm[side]
        for arms in record["arms"].values()
        for arm in arms.values()
        for side in ("mine", "base")
    ]
    ran = sum(side["inner"] * sum(side["us"]) for side in sides)
    return ran, sum(side["inner"] * sum(side["waited_us"].values()) for side in sides)


def compare_fails(base: Sequence[float], other: Sequence[float]) -> bool:
    """Whether pytest-benchmark's own check fails `other` against `base`."""
    before, after = Stats(), Stats()
    for stats, times in ((before, base), (after, other)):
        for sample in times:
            stats.update(sample)
    medians = ({"median": after.median}, {"median": before.median})
    return parse_compare_fail(THRESHOLD).fails(*medians) is not None


def _fails(blocks: Blocks, arm: str) -> tuple[int, bool]:
    """In how many blocks pytest-benchmark's check fails, and whether it does over all."""
    sides = [(wall(arms[arm]["base"]), wall(arms[arm]["mine"])) for arms in blocks.values()]
    pooled = [[v for times in side for v in times] for side in zip(*sides, strict=True)]
    return sum(compare_fails(*side) for side in sides), compare_fails(*pooled)


def comparisons(
    plan: Plan, records: Iterable[Mapping[str, Any]]
) -> tuple[list[dict[int, dict[str, dict[str, Any]]]], int]:
    """Complete comparisons by the records of a condition, and how many are not."""
    found: dict[tuple[int, str], dict[int, dict[str, dict[str, Any]]]] = {}
    for r in records:
        for problem, arms in r["arms"].items():
            found.setdefault((r["repeat"], problem), {})[r["block"]] = arms
    wanted = {(repeat, problem.name) for repeat, problem in plan.pairs()}
    names = {arm.name for arm in ARMS}
    complete = [
        blocks
        for pair in sorted(wanted & set(found))
        if len(blocks := found[pair]) == plan.blocks
        and all(set(arms) == names for arms in blocks.values())
    ]
    return complete, len(wanted) - len(complete)


def score(plan: Plan, records: Sequence[Mapping[str, Any]]) -> Score:
    """Judge every comparison of a plan by finished records, condition by condition."""
    shares: list[Share] = []
    fewer: dict[int, list[Share]] = {count: [] for count in FEWER if count < plan.blocks}
    noise: list[Noise] = []
    absent: dict[str, int] = {}
    for condition in dict.fromkeys(r["condition"] for r in records):
        mine = [r for r in records if r["condition"] == condition]
        complete, absent[condition] = comparisons(plan, mine)
        for ours in _by_blocks(condition, complete, plan.blocks):
            theirs = [_fails(blocks, ours.arm) for blocks in complete]
            counts = (
                (ONE_RUN, sum(runs for runs, _ in theirs), len(complete) * plan.blocks),
                (POOLED, sum(pooled for _, pooled in theirs), len(complete)),
            )
            shares += [ours, *(Share(condition, ours.arm, *count) for count in counts)]
        for count, found in fewer.items():
            found += _by_blocks(condition, complete, count)
        floors = [noise_floor(interval(blocks, CONTROL)) for blocks in complete]
        noise.append(_noise(condition, floors, mine))
    return Score(plan, shares, fewer, noise, absent)


def _by_blocks(condition: str, complete: Sequence[Blocks], count: int) -> list[Share]:
    """What bench's verdict says of each so many blocks, with the floor of their own control."""
    groups = [
        {block: of[block] for block in ordered[at : at + count]}
        for of in complete
        for ordered in [sorted(of)]
        for at in range(0, len(ordered) - count + 1, count)
    ]
    floors = [noise_floor(interval(blocks, CONTROL)) for blocks in groups]
    return [
        Share(
            condition,
            arm.name,
            ATTNBENCH,
            sum(told_apart(b, arm.name, f) for b, f in zip(groups, floors, strict=True)),
            len(groups),
        )
        for arm in ARMS
        if arm.name != CONTROL
    ]


def _noise(condition: str, floors: list[float], records: list[Mapping[str, Any]]) -> Noise:
    ran, waited = (sum(column) for column in zip(*map(in_all, records), strict=True))
    loads = [r[when]["load"][0] for r in records for when in ("before", "after") if r[when]["load"]]
    return Noise(
        condition,
        float(pd.Series(floors, dtype=float).median()) - 1,
        waited / (waited + ran) if ran else 0.0,
        (min(loads), max(loads)) if loads else (float("nan"), float("nan")),
    )
