"""Whether the machine moved during a session, from the times of the baseline and its control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from harness.records.ratios import PROBLEM
from harness.stats.drift import Trend, block_trend, session_trend, shown


@dataclass(frozen=True)
class Drift:
    """A movement of the machine that is shown. Ratios are formed inside blocks and cancel it."""

    # ``session``: the baseline's own time over the blocks. ``block``: all cases, with their place
    # inside a block; the order is random, so this widens intervals and shifts none.
    over: Literal["session", "block"]
    problem: dict[str, Any]  # the baseline's problem; empty for ``block``
    trend: Trend


def machine_drift(times: pd.DataFrame, baseline: str, heads: int = 8) -> list[Drift]:
    """Find movements of the machine in the times of a session.

    Parameters
    ----------
    times : DataFrame
        From `harness.records.ratios.time_frame`, of one fingerprint.
    baseline : str
        ``mechanism.implementation``; its control stands in for it as well.
    heads : int
        The baseline's heads.

    Returns
    -------
    list of Drift
        Largest first; the problems are one family (Holm), the place inside a block is tested alone.
    """
    good = times[(times["status"] == "ok") & (times["seconds"] > 0)]
    base = good[(good["name"] == baseline) & good["heads"].isin([0, heads])]
    found = _over_session(base) + _inside_blocks(good)
    return sorted(found, key=lambda d: -abs(np.log(d.trend.change)))


def _over_session(base: pd.DataFrame) -> list[Drift]:
    problems: list[dict[str, Any]] = []
    trends: list[Trend | None] = []
    for values, group in base.groupby(PROBLEM, sort=False):
        logs = np.log(group["seconds"]).groupby([group["case"], group["block"]]).mean().unstack(0)
        # A block that lacks the control would move the mean by what parts the two names.
        means = logs.dropna().mean(axis=1)
        problems.append(dict(zip(PROBLEM, values, strict=True)))
        trends.append(session_trend({int(b): float(np.exp(v)) for b, v in means.items()}))
    return [
        Drift("session", problem, trend)
        for problem, trend, is_shown in zip(problems, trends, shown(trends), strict=True)
        if is_shown and trend is not None
    ]


def _inside_blocks(good: pd.DataFrame) -> list[Drift]:
    placed = good.dropna(subset=["order"])
    last = placed.groupby("interpreter")["order"].transform("max")
    # A resumed block has two interpreters, and two orders.
    block, _ = pd.factorize(placed["interpreter"])
    readings = [
        (str(case), int(b), float(order) / float(end), float(seconds))
        for case, b, order, end, seconds in zip(
            placed["case"], block, placed["order"], last, placed["seconds"], strict=True
        )
        if end > 0
    ]
    trend = block_trend(readings)
    return [Drift("block", {}, trend)] if trend is not None and shown([trend])[0] else []
