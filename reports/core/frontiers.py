"""How long a sequence may be: the results of ``attnbench frontier``, from their records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from harness.case import parse
from harness.measure.bisection import stand

NONE = "No frontier was searched on this device: attnbench frontier finds the longest sequences."
PROBLEM = ("batch", "d_in", "d_out", "dtype", "phase", "settings")
LIMITS = ("memory_limit_bytes", "seconds_limit")


@dataclass(frozen=True)
class Reach:
    """The longest sequence of one case within one pair of limits.

    `label` is the name with its heads, `longest` None if no length fitted, `first_miss` the
    shortest length above it that did not (None where the largest tried fitted), `why` its status.
    Peak and seconds are at the longest; nan without one.
    """

    name: str
    label: str
    batch: int
    d_in: int
    d_out: int
    heads: int
    dtype: str
    phase: str
    settings: str
    memory_limit_bytes: float
    seconds_limit: float
    longest: int | None
    first_miss: int | None
    why: str
    peak_bytes: float
    pass_seconds: float

    @property
    def problem(self) -> tuple[Any, ...]:
        """What rows of one figure share."""
        return attrgetter(*PROBLEM, *LIMITS)(self)

    @property
    def span(self) -> str:
        """``N = 1,024 (1,088 ends in oom)``."""
        if self.longest is None:
            return f"no length ({self.why} at N = {self.first_miss:,})"
        if self.first_miss is None:
            return f"N = {self.longest:,} or more (the longest tried)"
        return f"N = {self.longest:,} (N = {self.first_miss:,}: {self.why})"


def reaches(records: Iterable[Mapping[str, Any]]) -> list[Reach]:
    """Every frontier of a journal, by its newest code; unsupported cases have none."""
    groups: dict[tuple[Any, ...], dict[str, dict[int, Mapping[str, Any]]]] = {}
    newest: dict[tuple[Any, ...], tuple[str, str]] = {}
    for r in records:
        if r["kind"] != "frontier" or not isinstance(r.get("case"), str):
            continue
        case = parse(r["case"])
        p = case.problem
        of = {
            "name": case.name,
            **{n: getattr(p, n) for n in ("batch", "d_in", "d_out", "heads", "dtype", "phase")},
            "settings": "+".join(case.own_settings) or "eager",
            **{n: float(r[n]) for n in LIMITS},
        }
        key, code = tuple(of.items()), str(r.get("code"))
        groups.setdefault(key, {}).setdefault(code, {})[p.length] = r
        newest[key] = max(newest.get(key, ("", "")), (str(r.get("at")), code))
    found = [_reach(dict(key), probes[newest[key][1]]) for key, probes in groups.items()]
    return sorted((r for r in found if r is not None), key=lambda r: (r.problem, -(r.longest or 0)))


def _reach(of: Mapping[str, Any], probes: Mapping[int, Mapping[str, Any]]) -> Reach | None:
    if any(r["status"] == "unsupported" for r in probes.values()):
        return None
    at = stand({n: r["status"] == "ok" for n, r in probes.items()})
    best = probes[at.longest] if at.longest is not None else {}
    why = "" if at.first_miss is None else str(probes[at.first_miss]["status"])
    return Reach(
        **of,
        label=of["name"] + (f" {of['heads']}h" if of["heads"] else ""),
        longest=at.longest,
        first_miss=at.first_miss,
        why=why,
        peak_bytes=float(best.get("peak_bytes") or math.nan),
        pass_seconds=float(best.get("pass_seconds") or math.nan),
    )


def groups(found: Sequence[Reach]) -> list[list[Reach]]:
    """Frontiers that may be compared, of `reaches`: one problem, one pair of limits."""
    return [list(group) for _, group in groupby(found, key=attrgetter("problem"))]
