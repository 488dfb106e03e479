"""From goals to cases, and to the sessions of the harness that measure them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.case import Case, unique
from harness.errors import UsageError
from harness.measure.session import Session
from harness.plan import cases_of
from harness.profile import Profile
from harness.registry import Registry
from suites.programs.goals.goal import Goal
from suites.programs.goals.records import GIVEN

TIMED = ("time", "speed-up")
"""Kinds whose ratios need a noise floor."""


@dataclass(frozen=True)
class Planned:
    """A goal and what is measured for it: a case for each length, and none for accuracy.

    ``missing`` says why it can't be: there is no such implementation, say.
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


def _cases(
    goal: Goal, names: Sequence[str], width: tuple[int, int], profile: Profile, known: Registry
) -> tuple[Case, ...]:
    """The cases of ``mechanism.implementation[options]+settings`` at a goal's size."""
    found: list[Case] = []
    for name in names:
        bare, *settings = name.split("+")
        group = {
            "implementations": [bare],
            "batch": [goal.batch],
            "length": goal.lengths,
            "width": [width],
            "heads": goal.heads,
            "dtype": [goal.dtype],
            "phase": [goal.phase],
            "settings": ["+".join([*settings, profile.setting])],
        }
        found += cases_of(group, goal.device, known, profile)
    return tuple(found)


def planned(
    goals: Sequence[Goal], profiles: Mapping[str, Profile], known: Registry
) -> list[Planned]:
    """The cases of all goals; a goal whose implementation is not there says so."""
    plans = []
    for goal in goals:
        profile = profiles[goal.device]
        try:
            if goal.kind == "accuracy":
                known.find(goal.measured)
                plans.append(Planned(goal))
                continue
            measured = _cases(goal, [goal.measured], goal.width, profile, known)
            baselines = _cases(goal, goal.baselines, goal.baseline_width, profile, known)
            plans.append(Planned(goal, measured, baselines))
        except UsageError as reason:
            plans.append(Planned(goal, missing=str(reason)))
    return plans


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
