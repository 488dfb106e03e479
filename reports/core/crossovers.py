"""From which length on a mechanism is faster than the baseline, in numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.records.ratios import WITHHELD, Row
from harness.stats import Crossover, crossover
from reports.core.sweeps import label_of, length_of

SWEEP = ("name", "batch", "d_in", "d_out", "dtype", "settings", "heads", "phase")
"""What the rows of one sweep over lengths share."""


def _sweeps(rows: Sequence[Row]) -> dict[tuple[object, ...], list[Row]]:
    """Rows with a ratio, by sweep; what failed, is over budget or can't be right is left out."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for r in rows:
        if r.time is not None and r.status == "ok" and r.verdict != WITHHELD:
            groups.setdefault(tuple(r.columns[k] for k in SWEEP), []).append(r)
    return {k: sorted(g, key=length_of) for k, g in groups.items() if len(g) > 1}


def _of(rows: Sequence[Row], slower: bool = False) -> Crossover:
    """From which length on it is faster; or slower: the same of the inverted ratios."""
    ratios = {length_of(r): r.by_block for r in rows}
    if slower:
        ratios = {n: {b: 1 / v for b, v in blocks.items()} for n, blocks in ratios.items()}
    return crossover(ratios, {length_of(r): r.floor for r in rows})


def crossovers(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Crossover of every sweep over lengths, with what its rows share, as plain values."""
    return [
        {**dict(zip(SWEEP, key, strict=True)), **asdict(_of(line))}
        for key, line in _sweeps(rows).items()
    ]


def _like(rows: Sequence[Row], size: Mapping[str, Any]) -> list[Row]:
    """The longest sweep of the dtype, setting and heads asked for, of equals the nearest batch.

    Of any others, if there is none: what is said of it names dtype and setting.
    """
    lines = list(_sweeps(rows).values())
    fitting = [
        line
        for line in lines
        if line[0].columns["dtype"] == size.get("dtype", "f32")
        and line[0].columns["settings"] == size.get("settings", "eager")
        and line[0].columns["heads"] in (0, size["heads"])
    ]

    def rank(line: list[Row]) -> tuple[int, float]:
        batch = int(str(line[0].columns["batch"]))
        return len(line), -abs(math.log(batch / size["batch"]))

    return max(fitting or lines, key=rank, default=[])


def crossover_sentence(
    rows: Sequence[Row], name: str, baseline: str, size: Mapping[str, Any]
) -> str:
    """Say it of the subject's longest sweep that is like a size, for both passes.

    Parameters
    ----------
    size : mapping
        As for `reports.core.sentences.closing`.
    """
    parts = []
    where = ""
    for phase in ("forward", "training"):
        mine = [r for r in rows if r.columns["name"] == name and r.columns["phase"] == phase]
        if line := _like(mine, size):
            c = line[0].columns
            where = f"batch {c['batch']}, {c['dtype']}, {c['settings']}"
            parts.append(f"in {phase} {_says(line)}")
    if not parts:
        return f"No crossover to report: {name} was measured at one length only."
    return f"Against {baseline}, over lengths at {where}, it is " + "; ".join(parts) + "."


def short_crossover(rows: Sequence[Row], like: Row) -> str:
    """In short, for a table: ``from N = 172 [168, 177]``; empty without two lengths.

    Parameters
    ----------
    like : Row
        Whose implementation, heads, pass, dtype, setting and, if it has a sweep, batch are meant.
    """
    keys = ("heads", "dtype", "settings", "batch")
    shared = ("phase", "dtype", "settings")
    same = [
        r
        for r in rows
        if label_of(r) == label_of(like) and all(r.columns[k] == like.columns[k] for k in shared)
    ]
    line = _like(same, {key: like.columns[key] for key in keys})
    return (
        f"{_says(line).removeprefix('faster ')} (batch {line[0].columns['batch']})" if line else ""
    )


def _says(line: Sequence[Row]) -> str:
    found = _of(line)
    span = f"N = {found.lengths[0]:,} to {found.lengths[-1]:,}"
    if found.answer == "always":
        return f"faster at every length measured ({span})"
    if found.answer == "never":
        all_slower = set(found.verdicts) == {"slower"}
        return f"{'slower at every' if all_slower else 'faster at no'} length measured ({span})"
    if found.answer == "from":
        return f"faster from {_place(found)} on{_unsure(found)}"
    if found.answer == "dip":
        if _turns_once(found):
            return (
                f"faster up to, and slower from, {_place(_of(line, slower=True))}{_unsure(found)}"
            )
        return f"faster at {_listed(found.lengths_with('faster'))} only{_unsure(found)}"
    if found.blocks < 2:
        return "not to be decided from one block"
    slower = found.lengths_with("slower")
    known = f"slower at {_listed(slower)}; " if slower else ""
    return f"shown faster at no length measured ({span}; {known}undecided at {_open(found)})"


def _turns_once(found: Crossover) -> bool:
    """Whether it is faster at the shortest lengths, slower at the longest, and never back."""
    decided = [v for v in found.verdicts if v in ("faster", "slower")]
    back = decided != sorted(decided)  # "faster" sorts before "slower"
    return found.verdicts[0] == "faster" and found.verdicts[-1] == "slower" and not back


def _place(found: Crossover) -> str:
    """``N = 172 [168, 177]``: the mean curve's crossing, and the interval around it."""
    high = math.ceil(found.high)
    if not found.low:
        return f"N = {high:,} at the latest"
    low = math.floor(found.low)
    return f"N = {round(found.at):,} [{low:,}, {high:,}]"


def _listed(lengths: Sequence[int]) -> str:
    return "N = " + ", ".join(f"{n:,}" for n in lengths)


def _open(found: Crossover) -> str:
    return _listed(found.lengths_with("undecided"))


def _unsure(found: Crossover) -> str:
    return f" (undecided at {_open(found)})" if "undecided" in found.verdicts else ""
