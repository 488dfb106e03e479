"""Where the time of a session went, from its records alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class SessionCost:
    """Seconds of a session by what they were spent on.

    Attributes
    ----------
    total : float
        Of all its blocks; what a front end adds around them comes by `within`.
    timed : float
        Inside the samples.
    warm_up, building, compiling : float
        Before the samples; reported apart, because a user would pay for them as well.
    memory, margins, ceilings : float
        Whole tasks.
    failed : float
        Tasks that gave no result: they ran out of time or memory, say.
    """

    total: float
    timed: float
    warm_up: float
    building: float
    compiling: float
    memory: float
    margins: float
    failed: float
    ceilings: float = 0.0

    @property
    def overhead(self) -> float:
        """What is left: interpreters started, forks, pipes, journal, display, replay."""
        spent = (
            self.timed, self.warm_up, self.building, self.compiling, self.memory, self.margins,
            self.failed, self.ceilings,
        )  # fmt: skip
        return max(0.0, self.total - math.fsum(spent))

    @property
    def overhead_share(self) -> float:
        """Overhead as a part of the total; nan of nothing."""
        return self.overhead / self.total if self.total else math.nan

    def within(self, total: float) -> SessionCost:
        """The same as part of a longer time: what is added is overhead."""
        return replace(self, total=max(total, self.total))

    def __str__(self) -> str:
        """``of 212 s: 61 % timed, 20 % warm-up, 9 % building, 6 % margins, 4 % overhead``."""
        parts = {
            "timed": self.timed, "warm-up": self.warm_up, "building": self.building,
            "compiling": self.compiling, "memory": self.memory, "margins": self.margins,
            "ceilings": self.ceilings, "failed": self.failed,
        }  # fmt: skip
        said = [f"{_percent(v, self.total)} {name}" for name, v in parts.items() if v]
        said.append(f"{_percent(self.overhead, self.total)} overhead")
        return f"of {self.total:.0f} s: {', '.join(said)}"

    def as_json(self) -> dict[str, float]:
        """All parts, and the overhead's share."""
        fields = {f"{k}_seconds": v for k, v in vars(self).items()}
        return {
            **fields,
            "overhead_seconds": self.overhead,
            "overhead_share": self.overhead_share,
        }


def _percent(part: float, total: float) -> str:
    return f"{100 * part / total:.0f} %" if total else "0 %"


def session_cost(records: Iterable[Mapping[str, Any]]) -> SessionCost | None:
    """Add up the records of one session.

    Parameters
    ----------
    records : iterable of mapping
        Of one session (one ``session`` id). Blocks without an end record (killed in the middle,
        or written before blocks recorded their length) and their tasks are left out.

    Returns
    -------
    SessionCost or None
        None without a whole block.
    """
    known = list(records)
    blocks = {
        r["interpreter"]: float(r["seconds"])
        for r in known
        if r["kind"] == "block" and r.get("seconds") is not None
    }
    if not blocks:
        return None
    spent = dict.fromkeys(
        ("timed", "warm_up", "building", "compiling", "memory", "margins", "failed", "ceilings"),
        0.0,
    )
    for r in known:
        if r["kind"] == "block" or r.get("interpreter") not in blocks:
            continue
        for part, seconds in _parts(r).items():
            spent[part] += seconds
    return SessionCost(total=math.fsum(blocks.values()), **spent)


def _parts(record: Mapping[str, Any]) -> dict[str, float]:
    """Where the seconds of one task went; what is left of a timing is overhead."""
    kind, seconds = record["kind"], float(record.get("task_seconds") or 0.0)
    if kind == "memory" and record["status"] == "ok":
        return {"memory": seconds}
    if kind == "margin" and record["status"] in ("ok", "wrong"):
        return {"margins": seconds}
    if kind == "peaks" and record["status"] == "ok":
        return {"ceilings": seconds}
    if kind not in ("time", "anchor", "memory", "margin"):
        return {}
    if record["status"] != "ok":
        return {"failed": seconds}
    compiling = float(record.get("compile_seconds") or 0.0)
    return {
        "timed": math.fsum(record["samples"]) * int(record["inner"])
        + float(record.get("waited_seconds", 0.0))
        + float(record.get("company_seconds", 0.0)),
        "warm_up": float(record["warmup_seconds"])
        + float(record.get("company_setup_seconds", 0.0)),
        "building": float(record["build_seconds"]),
        "compiling": compiling,
    }
