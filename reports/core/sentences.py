"""A bench in words: cost, crossover, memory, correctness, and what moved meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.records.drift import Drift
from harness.records.ratios import NO_ORACLE, WITHHELD, Row
from harness.stats import Interval, ratio_text
from reports.core.crossovers import crossover_sentence
from reports.core.words import memory_text

MemoryRatio = Callable[[Row], Interval | None]


def _here(rows: Sequence[Row], name: str, size: Mapping[str, Any]) -> list[Row]:
    """Rows of the subject at the reference size and setting, forward before training.

    Where that was not measured: at the subject's first problem.
    """
    mine = [r for r in rows if r.columns["name"] == name]

    def like(wanted: Mapping[str, Any], *heads: object) -> list[Row]:
        keys = ("batch", "length", "dtype", "settings")
        same = [r for r in mine if all(r.columns[k] == wanted[k] for k in keys)]
        return [r for r in same if r.columns["heads"] in heads]

    found = like({"dtype": "f32", "settings": "eager", **size}, 0, size["heads"])
    if mine and not found:
        found = like(mine[0].columns, mine[0].columns["heads"])
    return sorted(found, key=lambda r: str(r.columns["phase"]))


def _cost(rows: Sequence[Row], name: str, baseline: str) -> str:
    timed = [r for r in rows if r.time is not None and r.verdict != WITHHELD]
    known = [r for r in timed if r.verified or r.unverified.startswith(NO_ORACLE)]
    if not known:
        failed = [f"{r.status}: {r.detail}" for r in rows if r.status != "ok"]
        withheld = [f"verdict withheld: {r.detail}" for r in rows if r.verdict == WITHHELD]
        if timed and not failed:
            return f"{name} has no headline at this size ({timed[0].unverified})."
        why = [*failed, *withheld, "not measured"][0]
        return f"{name} has no cost to report at this size ({why})."
    c = known[0].columns
    parts = []
    for r in known:
        says = {"same": "no difference", "undecided": f"undecided: {_why(r)}"}.get(
            r.verdict, r.verdict
        )
        parts.append(f"{r.time} ({r.columns['phase']}, {says})")
    heads = f" ({c['heads']} heads)" if c["heads"] else ""
    return (
        f"{name}{heads} takes {' and '.join(parts)} the time of {baseline} "
        f"at N = {c['length']}, batch {c['batch']}, {c['d_in']} to {c['d_out']}, {c['dtype']}, "
        f"{c['device']}, {c['settings']}."
    )


def _why(row: Row) -> str:
    """Why a time ratio decides nothing."""
    if row.time is None or not row.time.known:
        return "one block"
    if math.isinf(row.floor):
        return "no A/A control"
    if 1 / row.floor <= row.time.ratio <= row.floor:
        return f"within the noise floor of {100 * (row.floor - 1):.1f} %"
    return "too noisy"


def _memory(rows: Sequence[Row], baseline: str, memory: MemoryRatio | None) -> str:
    parts: list[str] = []
    unknown: list[str] = []
    for r in rows:
        found = memory(r) if memory else None
        if found is not None:
            text = str(found) if found.known else f"{ratio_text(found.ratio)} (one reading)"
        elif not (text := memory_text(r)):
            continue
        (unknown if r.below_floor else parts).append(f"{text} in {r.columns['phase']}")
    if not (parts or unknown):
        return "Memory was not measured here."
    said = [f"{' and '.join(parts)} of {baseline}'s"] * bool(parts) + unknown
    return f"Its peak memory (weights and input included) is {', and '.join(said)}."


def _correct(rows: Sequence[Row]) -> str:
    checked = [r for r in rows if not math.isnan(r.error)]
    floors = [r.floor for r in rows if not math.isinf(r.floor)]
    noise = (
        f"; the A/A control reached {100 * (max(floors) - 1):.1f} %, and nothing nearer is claimed"
        if floors
        else "; the A/A control needs a second block before anything is claimed"
    )
    if not any(r.status == "ok" for r in rows):
        return "Nothing is known of its error at this size."
    if not checked and (one := next((r for r in rows if r.unverified.startswith(NO_ORACLE)), None)):
        return f"Nobody vouches for its values ({one.unverified}){noise}."
    if not checked:
        return f"Its error at this shape is not known, so its ratios are no headline{noise}."
    worst = min(checked, key=lambda r: r.margin)
    if worst.error > worst.budget:
        return (
            f"It is WRONG at this shape: error {worst.error:.2g}, budget {worst.budget:.2g}{noise}."
        )
    against, but = "the float64 oracle", ""
    if worst.by_itself:
        against, but = "its own float64", "; no oracle vouches for it"
    return (
        f"Its error against {against} at this shape is {worst.error:.1e}, within the "
        f"budget of {worst.budget:.1e} (margin {worst.margin:.1f}x){but}{noise}."
    )


def closing(
    rows: Sequence[Row],
    name: str,
    baseline: str,
    size: Mapping[str, Any],
    memory: MemoryRatio | None = None,
) -> list[str]:
    """The four sentences about one implementation.

    Parameters
    ----------
    name, baseline : str
        ``mechanism.implementation``.
    size : mapping
        batch, length and heads of the profile's reference size, and ``settings``; ``dtype`` unless
        it is f32.
    memory : callable, optional
        Gives the interval of a row's memory ratio.
    """
    here = _here(rows, name, size)
    return [
        _cost(here, name, baseline),
        crossover_sentence(rows, name, baseline, size),
        _memory(here, baseline, memory),
        _correct(here),
    ]


def _change(change: float) -> str:
    """``1.18x longer``; a shorter time the other way round."""
    if change > 1:
        return f"{ratio_text(change)} longer"
    return f"{ratio_text(1 / change)} shorter"


def problem_text(c: Mapping[str, object]) -> str:
    """``training, batch 64, N = 64, f32, 1-thread``."""
    return f"{c['phase']}, batch {c['batch']}, N = {c['length']}, {c['dtype']}, {c['settings']}"


def drift_sentences(drifts: Sequence[Drift], rows: Sequence[Row], baseline: str) -> list[str]:
    """One line for the machine, one for its way through a block, one for each ratio that moved.

    Parameters
    ----------
    drifts : sequence of Drift
        Largest first, from `harness.records.drift.machine_drift`.
    baseline : str
        ``mechanism.implementation``.

    Returns
    -------
    list of str
        Empty where nothing is shown to have moved.
    """
    lines = []
    session = [d for d in drifts if d.over == "session"]
    if session:
        most = session[0]
        others = len(session) - 1
        more = f", and {others} more problem{'s' * (others > 1)} moved" if others else ""
        lines.append(
            f"The machine drifted: {baseline} ({problem_text(most.problem)}) took "
            f"{_change(most.trend.change)} in the last third of the session than in the first"
            f"{more}; ratios are formed inside blocks and cancel it."
        )
    lines += [
        f"The machine drifts inside a block: a case measured last takes "
        f"{_change(d.trend.change)} than one measured first; the order is random, so this widens "
        "intervals and shifts none."
        for d in drifts
        if d.over == "block"
    ]
    lines += [
        f"WARNING: the ratio of {r.columns['name']} ({problem_text(r.columns)}) drifted itself: "
        f"{_change(r.drift)} in the last third of the session than in the first, relative to "
        f"{baseline}; its interval stands for the mean over the session only."
        for r in rows
        if not math.isnan(r.drift) and r.drift != 1
    ]
    return lines
