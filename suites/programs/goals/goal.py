"""The goals as they stand in ``goals.toml``, read and checked."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.profile import Profile, load_profile

FILE = Path(__file__).with_name("goals.toml")
DEVICES = ("cpu", "cuda")

_CASE = {"pass", "batch", "lengths", "width", "heads"}
KINDS: Mapping[str, set[str]] = {
    "time": _CASE | {"baselines", "at_most"},
    "speed-up": _CASE | {"baselines", "at_least"},
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
    goals = [goal for entry in raw["goal"] for goal in _read(entry)]
    ids = [goal.id for goal in goals]
    if twice := sorted({i for i in ids if ids.count(i) > 1}):
        raise UsageError(f"two goals are called {twice[0]!r}; give each an id of its own")
    profiles = {device: load_profile("measuring", device, path) for device in DEVICES}
    return Goals(profiles, tuple(goals))


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
