"""The goals as they stand in ``goals.toml``, the cases they become, and the sessions of those."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.case import Case, unique
from harness.errors import UsageError
from harness.measure.session import Session
from harness.plan import cases_of
from harness.profile import Profile, load_profile
from harness.registry import Registry
from suites.programs.goals.records import GIVEN

FILE = Path(__file__).with_name("goals.toml")
DEVICES = ("cpu", "cuda")

_CASE = {"pass", "batch", "lengths", "width", "heads"}
KINDS: Mapping[str, set[str]] = {
    "time": _CASE | {"baselines", "at_most"},
    "speed-up": _CASE | {"baselines", "at_least"},
    "work": _CASE | {"baselines", "at_most"},
    "memory": _CASE | {"baselines", "at_most"},
    "growth": _CASE | {"at_most"},
    "fits": _CASE,
    "accuracy": {"score_scales", "at_most"},
}
"""Kinds of goal, and what each must say beside what all of them say."""
_ALL = {"id", "row", "what", "kind", "measured", "dtype"}
_ALLOWED = {"device", "prototype"}


@dataclass(frozen=True)
class Goal:
    """One goal of one implementation (at one length, unless it is about growth).

    Words are those of the file, whose head explains them. ``entry`` is the id in the file, which
    may stand for several goals; of ``at_most`` and ``at_least`` one is the bound, or none where
    nothing is judged but that it can be done.
    """

    id: str
    entry: str
    row: int
    what: str
    kind: str
    measured: str
    dtype: str
    device: str = "cpu"
    baselines: tuple[str, ...] = ()
    phase: str = "forward"
    batch: int = 1
    heads: int = 0
    lengths: tuple[int, ...] = ()
    width: tuple[int, int] = (0, 0)
    baseline_width: tuple[int, int] = (0, 0)
    score_scales: tuple[float, ...] = ()
    at_most: float | None = None
    at_least: float | None = None
    prototype: float | None = None

    @property
    def bound(self) -> float | None:
        """The number that decides, whichever side of it is good."""
        return self.at_most if self.at_least is None else self.at_least


@dataclass(frozen=True)
class Goals:
    """All goals in the order of the file, and by device how they are measured."""

    profiles: Mapping[str, Profile]
    goals: tuple[Goal, ...]

    def chosen(self, only: Sequence[str] = ()) -> list[Goal]:
        """Goals by id or by that of their entry; by default all that are goals.

        Raises
        ------
        UsageError
            For an id that is not there.
        """
        known = {name for goal in self.goals for name in (goal.id, goal.entry)}
        for name in only:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=3)
                hint = f"did you mean {' or '.join(close)}?" if close else "see: --dry-run"
                raise UsageError(f"--only: there is no goal {name!r}; {hint}")
        if only:
            return [g for g in self.goals if g.id in only or g.entry in only]
        return [g for g in self.goals if g.row]


def load(path: Path = FILE) -> Goals:
    """Read the goals.

    Raises
    ------
    UsageError
        If an entry is not what the head of the file says; the message names it and the word.
    """
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    goals = [goal for entry in raw["goal"] for one in _by_pass(entry) for goal in _read(one)]
    ids = [goal.id for goal in goals]
    if twice := sorted({i for i in ids if ids.count(i) > 1}):
        raise UsageError(f"two goals are called {twice[0]!r}; give each an id of its own")
    profiles = {device: load_profile("measuring", device, path) for device in DEVICES}
    return Goals(profiles, tuple(goals))


def _by_pass(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """An entry for each of its passes: ``{pass}`` in a text is that, a table has a value for it."""
    passes = entry.get("pass")
    if not isinstance(passes, list):
        yield entry
        return
    for one in passes:
        own = {k: v.get(one) if isinstance(v, dict) else v for k, v in entry.items()}
        own |= {k: v.replace("{pass}", one) for k, v in own.items() if isinstance(v, str)}
        yield {k: v for k, v in own.items() if v is not None} | {"pass": one}


def _read(entry: Mapping[str, Any]) -> Iterator[Goal]:
    """The goals of one entry."""
    name = f"goal {entry.get('id', '(without id)')!r}"
    if absent := sorted(_ALL - set(entry)):
        raise UsageError(f"{name} has no {', '.join(absent)}; give it")
    if entry["kind"] not in KINDS:
        raise UsageError(f"{name}: kind is {entry['kind']!r}; expected one of {', '.join(KINDS)}")
    needed = set(KINDS[entry["kind"]])
    allowed = _ALL | _ALLOWED | needed
    if "baselines" in needed:
        allowed.add("baseline_width")
    if not entry["row"]:
        needed -= {"at_most", "at_least"}  # what is only shown needs no bound
    for words, says in ((needed - set(entry), "needs"), (set(entry) - allowed, "can't have")):
        if words:
            raise UsageError(f"{name} of kind {entry['kind']!r} {says} {', '.join(sorted(words))}")
    if entry["kind"] == "growth" and len(entry["lengths"]) < 2:
        raise UsageError(f"{name}: lengths is {entry['lengths']}; growth needs two or more")
    yield from _expanded(entry)


def _expanded(entry: Mapping[str, Any]) -> Iterator[Goal]:
    """One goal for every implementation and, unless it is about growth, for every length."""
    values: dict[str, Any] = {
        "phase" if k == "pass" else k: tuple(v) if isinstance(v, list) else v
        for k, v in entry.items()
    }
    given = values.pop("measured")
    names = (given,) if isinstance(given, str) else given
    values.setdefault("baseline_width", values.get("width", (0, 0)))
    for name in names:
        one = Goal(**values, entry=entry["id"], measured=name)
        if len(names) > 1:
            one = replace(one, id=f"{one.id}-{name}")
        if one.kind == "growth" or len(one.lengths) < 2:
            yield one
        else:
            yield from (replace(one, id=f"{one.id}-n{n}", lengths=(n,)) for n in one.lengths)


TIMED = ("time", "speed-up", "work")
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
