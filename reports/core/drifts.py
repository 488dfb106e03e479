"""What moved during a session, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.records.drift import Drift
from harness.records.ratios import Row


def _change(change: float) -> str:
    """``1.18x longer``; a shorter time the other way round."""
    return f"{change:.2f}x longer" if change > 1 else f"{1 / change:.2f}x shorter"


def _problem(columns: dict[str, object]) -> str:
    c = columns
    return f"{c['phase']}, batch {c['batch']}, N = {c['length']}, {c['dtype']}, {c['settings']}"


def drift_sentences(drifts: Sequence[Drift], rows: Sequence[Row], baseline: str) -> list[str]:
    """One line for the machine, one for its way through a block, one for each ratio that moved.

    Parameters
    ----------
    drifts : sequence of Drift
        Largest first, from `harness.records.drift.machine_drift`.
    rows : sequence of Row
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
            f"The machine drifted: {baseline} ({_problem(most.problem)}) took "
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
        f"WARNING: the ratio of {r.columns['name']} ({_problem(dict(r.columns))}) drifted itself: "
        f"{_change(r.drift)} in the last third of the session than in the first, relative to "
        f"{baseline}; its interval stands for the mean over the session only."
        for r in rows
        if not math.isnan(r.drift) and r.drift != 1
    ]
    return lines
