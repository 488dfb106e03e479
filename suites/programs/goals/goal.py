"""The goals as they stand in ``goals.toml``, read and checked."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.case import DTYPES, PHASES
from harness.errors import UsageError

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

    Attributes
    ----------
    id : str
    entry : str
        Id of the entry in the file, which may stand for several goals.
    row : int
        Row of the project's table of goals; 0 is shown, and no goal.
    what : str
    kind : str
        One of `KINDS`.
    measured : str
        ``mechanism.implementation[options]+settings``.
    baselines : tuple of str
        Each of them must be beaten.
    device, dtype, phase : str
    batch, heads : int
    lengths : tuple of int
    width, baseline_width : tuple of int
        d_in and d_out.
    score_scales : tuple of float
        Factors on all scores, for accuracy.
    at_most, at_least : float or None
        The bound; one of them, or none where nothing is judged but that it can be done.
    prototype : float or None
        What a prototype reached.
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
class Measuring:
    """How goals are measured; mappings are by device.

    Attributes
    ----------
    setting, blocks : mapping
    memory_blocks, min_rounds : int
    seconds, limit_seconds : float
        As in a `harness.profile.Profile`.
    """

    setting: Mapping[str, str]
    blocks: Mapping[str, int]
    memory_blocks: int
    min_rounds: int
    seconds: float
    limit_seconds: float


@dataclass(frozen=True)
class Goals:
    """All goals, those that are only shown too, in the order of the file."""

    measuring: Measuring
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
        If the file is not what its head says; the message names the goal and the word.
    """
    try:
        with path.open("rb") as file:
            raw = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"can't read the goals in {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    entries, measuring = raw.get("goal"), raw.get("measuring")
    if set(raw) != {"measuring", "goal"} or not isinstance(entries, list) or not measuring:
        raise UsageError(f"{path}: expected one [measuring] and at least one [[goal]]")
    goals = [goal for entry in entries for goal in _read(path, entry)]
    ids = [goal.id for goal in goals]
    if twice := sorted({i for i in ids if ids.count(i) > 1}):
        raise UsageError(f"{path}: two goals are called {twice[0]!r}; give each an id of its own")
    try:
        return Goals(Measuring(**measuring), tuple(goals))
    except TypeError as error:
        raise UsageError(f"{path}: [measuring]: {error}") from None


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf


def _is_text(value: Any) -> bool:
    return type(value) is str and bool(value.strip())


def _is_list(of: Callable[[Any], bool], length: int | None = None) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        fits = type(value) is list and bool(value) and all(map(of, value))
        return fits and length in (None, len(value))

    return check


def _one_of(*known: str) -> Callable[[Any], bool]:
    return lambda value: value in known


_VALUES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "id": (_is_text, "a text"),
    "what": (_is_text, "a text"),
    "row": (lambda v: type(v) is int and v >= 0, "the number of a row, or 0"),
    "kind": (_one_of(*KINDS), f"one of {', '.join(KINDS)}"),
    "measured": (lambda v: _is_text(v) or _is_list(_is_text)(v), "a name or a list of names"),
    "baselines": (_is_list(_is_text), "a list of names"),
    "dtype": (_one_of(*DTYPES), f"one of {', '.join(DTYPES)}"),
    "device": (_one_of(*DEVICES), f"one of {', '.join(DEVICES)}"),
    "pass": (_one_of(*PHASES), f"one of {', '.join(PHASES)}"),
    "batch": (_is_count, "a whole number above 0"),
    "heads": (_is_count, "a whole number above 0"),
    "lengths": (_is_list(_is_count), "a list of whole numbers above 0"),
    "width": (_is_list(_is_count, 2), "[d_in, d_out]"),
    "baseline_width": (_is_list(_is_count, 2), "[d_in, d_out]"),
    "score_scales": (_is_list(_is_number), "a list of numbers above 0"),
    "at_most": (_is_number, "a number above 0"),
    "at_least": (_is_number, "a number above 0"),
    "prototype": (_is_number, "a number above 0"),
}


def _read(path: Path, entry: Mapping[str, Any]) -> Iterator[Goal]:
    """The goals of one entry."""
    name = f"{path}: goal {entry.get('id', '(without id)')!r}"
    for key, value in entry.items():
        if key not in _VALUES:
            raise UsageError(f"{name} has the word {key!r}; expected {', '.join(_VALUES)}")
        fits, expected = _VALUES[key]
        if not fits(value):
            raise UsageError(f"{name}: {key} is {value!r}; expected {expected}")
    if absent := sorted(_ALL - set(entry)):
        raise UsageError(f"{name} has no {', '.join(absent)}; give it")
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
    given = entry["measured"]
    names = given if isinstance(given, list) else [given]
    words = {"pass": "phase"}
    values: dict[str, Any] = {
        words.get(k, k): tuple(v) if isinstance(v, list) else v
        for k, v in entry.items()
        if k != "measured"
    }
    values["baseline_width"] = values.get("baseline_width", values.get("width", (0, 0)))
    for name in names:
        one = Goal(**values, entry=entry["id"], measured=name)
        if len(names) > 1:
            one = replace(one, id=f"{one.id}-{name}")
        if entry["kind"] == "growth" or len(one.lengths) < 2:
            yield one
        else:
            yield from (replace(one, id=f"{one.id}-n{n}", lengths=(n,)) for n in one.lengths)


def instead(goals: Iterable[Goal], given: Sequence[str]) -> list[Goal]:
    """Goals with other implementations in the place of those measured.

    Parameters
    ----------
    given : sequence of str
        ``mtsa.fused=mtsa.algorithm1`` each.

    Raises
    ------
    UsageError
        If one has another form, or no goal measures what it replaces.
    """
    goals = list(goals)
    for text in given:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise UsageError(f"--instead: given {text!r}; expected e.g. mtsa.fused=mtsa.algorithm1")
        if not any(_bare(goal.measured) == old for goal in goals):
            raise UsageError(f"--instead: no goal that was chosen measures {old!r}")
        goals = [
            replace(goal, measured=new + goal.measured.removeprefix(old))
            if _bare(goal.measured) == old
            else goal
            for goal in goals
        ]
    return goals


def _bare(name: str) -> str:
    """A name without options and settings."""
    return name.partition("[")[0].partition("+")[0]
