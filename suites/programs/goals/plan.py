"""From goals to cases, and to the sessions of the harness that measure them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.case import Case, Problem, parse, setting, split_name, unique
from harness.errors import UsageError
from harness.measure.session import Session
from harness.profile import Profile
from harness.registry import Registry
from suites.programs.goals.goal import Goal, Measuring
from suites.programs.goals.records import GIVEN

TIMED = ("time", "speed-up")
"""Kinds whose ratios need a noise floor."""


@dataclass(frozen=True)
class Planned:
    """A goal and what is measured for it.

    Attributes
    ----------
    goal : Goal
    measured : tuple of Case
        One for each length; empty for accuracy, which has no case.
    baselines : tuple of Case
    missing : str
        Why it can't be measured: there is no such implementation, say. Empty if it can.
    """

    goal: Goal
    measured: tuple[Case, ...] = ()
    baselines: tuple[Case, ...] = ()
    missing: str = ""

    @property
    def pairs(self) -> list[tuple[Case, Case]]:
        """What is divided by what; the control of a baseline by the baseline."""
        found = [(case, base) for case in self.measured for base in self.baselines]
        if self.goal.kind in TIMED:
            found += [(base.control(), base) for base in self.baselines]
        return found

    @property
    def cases(self) -> list[Case]:
        """All that a session has to measure."""
        controls = [case for case, _ in self.pairs if case.is_control]
        return unique([*self.measured, *self.baselines, *controls])


def registry() -> Registry:
    """All mechanisms, the bare cores too."""
    return Registry([GIVEN])


def case_of(
    name: str, goal: Goal, length: int, width: tuple[int, int], own: str, known: Registry
) -> Case:
    """The case of ``mechanism.implementation[options]+settings`` at a goal's size.

    Parameters
    ----------
    own : str
        Settings of all cases of the device, as in a profile.

    Raises
    ------
    UsageError
        If there is no such implementation, option or setting.
    """
    named, *settings = name.split("+")
    settings += [s for s in own.split("+") if s != "eager"]
    for one in settings:
        setting(one)
    bare, options = split_name(named)
    mechanism, implementation = known.find(bare)
    d_in, d_out = width
    if mechanism.keeps_width:
        d_out = d_in
    heads = goal.heads if mechanism.takes_heads else 0
    problem = Problem(goal.batch, length, d_in, d_out, heads, goal.dtype, goal.phase, goal.device)
    case = Case(mechanism.name, implementation.name, problem, tuple(settings), options)
    case.run_settings()
    if parse(case.id) != case:
        raise UsageError(f"{name!r} can't stand in a case id; use a name without '.' or '-'")
    return case


def planned(goals: Sequence[Goal], measuring: Measuring, known: Registry) -> list[Planned]:
    """The cases of all goals; a goal whose implementation is not there says so."""

    def of(goal: Goal) -> Planned:
        if goal.kind == "accuracy":
            known.find(goal.measured)
            return Planned(goal)
        own = measuring.setting[goal.device]
        measured = [case_of(goal.measured, goal, n, goal.width, own, known) for n in goal.lengths]
        baselines = [
            case_of(name, goal, n, goal.baseline_width, own, known)
            for n in goal.lengths
            for name in goal.baselines
        ]
        return Planned(goal, tuple(measured), tuple(baselines))

    plans = []
    for goal in goals:
        try:
            plans.append(of(goal))
        except UsageError as reason:
            plans.append(Planned(goal, missing=str(reason)))
    return plans


def profile_of(measuring: Measuring, device: str, blocks: int | None) -> Profile:
    """Number of blocks and samples, as a profile; it has no baseline of its own.

    Raises
    ------
    UsageError
        For fewer than one block.
    """
    if blocks is not None and blocks < 1:
        raise UsageError(f"--blocks: given {blocks}; expected at least 1")
    return Profile(
        name="goals",
        summary="",
        baseline="",
        subject="",
        reference={"batch": 0, "length": 0, "heads": 0},
        blocks=blocks or measuring.blocks[device],
        memory_blocks=measuring.memory_blocks,
        min_rounds=measuring.min_rounds,
        seconds=measuring.seconds,
        setting=measuring.setting[device],
        budget_seconds=None,
        limit_seconds=measuring.limit_seconds,
        groups=(),
    )


def sessions(
    plans: Sequence[Planned],
    profile: Profile,
    known: Registry,
    folder: Path,
    fingerprint: Mapping[str, Any],
) -> list[Session]:
    """One session for every size and dtype: what is compared then stands side by side in time.

    Only goals of the fingerprint's device are in them.
    """
    groups: dict[tuple[Any, ...], list[Planned]] = {}
    for one in plans:
        for case in one.measured:
            p = case.problem
            if p.device == fingerprint["device"]:
                part = replace(
                    one,
                    measured=(case,),
                    baselines=tuple(c for c in one.baselines if c.problem.length == p.length),
                )
                groups.setdefault((p.batch, p.length, p.dtype), []).append(part)
    made = []
    for group in groups.values():
        cases = unique(case for one in group for case in one.cases)
        pairs = _with_common_partners([pair for one in group for pair in one.pairs])
        made.append(Session(cases, profile, known, folder, fingerprint, pairs=pairs))
    return made


def _with_common_partners(pairs: Sequence[tuple[Case, Case]]) -> list[tuple[Case, Case]]:
    """The pairs, and all that a case is divided by divided by the first of them.

    A case is timed in turn with one other, its first; its ratio to a second is then that to the
    first, divided by the second's own.
    """
    first: dict[Case, Case] = {}
    for case, other in pairs:
        first.setdefault(case, other)
    more = [
        (other, first[case])
        for case, other in pairs
        if other != first[case] and other not in first and not case.is_control
    ]
    return list(dict.fromkeys([*pairs, *more]))
