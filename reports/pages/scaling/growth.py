"""How time grows with CPU threads and with the batch: readings of one interpreter, by blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from harness.case import setting
from harness.records.ratios import WITHHELD, Row, block_ratios
from harness.stats import Interval, ratio_interval
from reports.core.sweeps import label_of, length_of, to_width


@dataclass(frozen=True)
class Grown:
    """One case beside itself with the fewest threads, or at the smallest batch.

    What both share stands in `problem`: ``N = 64, 300 wide, f32, 1-thread``; not the pass. Threads
    or sequences are its `amount`, and `least` of the one it is held against; `time` is over that
    one's, exactly 1 where the two are the same.
    """

    row: Row
    problem: str
    label: str  # ``mtsa.fused 8h``
    amount: int
    least: int
    time: Interval

    @property
    def phase(self) -> str:
        """``forward`` or ``training``."""
        return str(self.row.columns["phase"])

    @property
    def by_item(self) -> Interval:
        """The same of the time that falls to one sequence, where the amount is a batch."""
        share = self.least / self.amount
        t = self.time
        return Interval(t.ratio * share, t.low * share, t.high * share, t.count)

    def shown(self, what: str) -> Interval:
        """What is drawn and told: of a batch the time of one sequence."""
        return self.by_item if what == "batch" else self.time


def grown(rows: Sequence[Row], times: pd.DataFrame, what: str) -> list[Grown]:
    """Cases that were measured with several "threads", or at several sizes of the "batch".

    Parameters
    ----------
    rows : sequence of Row
        Of one device; what failed or is withheld is left out.
    times : DataFrame
        Readings of that device, of `harness.records.ratios.time_frame`.
    """
    groups: dict[tuple[str, ...], dict[int, Row]] = {}
    for row in rows:
        amount, problem = _place(row, what)
        if amount is not None and row.status == "ok" and row.verdict != WITHHELD:
            key = (problem, *map(str, (row.columns["phase"], label_of(row), row.columns["d_out"])))
            groups.setdefault(key, {})[amount] = row

    def of(row: Row) -> pd.DataFrame:
        return times[times["case"] == row.case]

    width = to_width(rows)
    found: list[Grown] = []
    for (problem, *_), group in groups.items():
        least = min(group)
        label = label_of(group[least]) + width(group[least])
        others = [
            Grown(row, problem, label, n, least, ratio_interval(ratios))
            for n, row in sorted(group.items())
            if n != least and (ratios := block_ratios(of(row), of(group[least])))
        ]
        if others:
            itself = Interval(1.0, math.nan, math.nan, 0)
            found += [Grown(group[least], problem, label, least, least, itself), *others]
    return found


def _place(row: Row, what: str) -> tuple[int | None, str]:
    """Threads or batch of a case, None where it has no threads of its own; what it shares."""
    c = row.columns
    size = f"N = {length_of(row):,}, input {c['d_in']} wide, {c['dtype']}"
    if what == "batch":
        return int(str(c["batch"])), f"{size}, {c['settings']}"
    names = str(c["settings"]).split("+")
    counts = {n: setting(n).threads for n in names if n != "eager"}
    own = next((count for count in counts.values() if count), None)
    rest = "+".join(n for n, count in counts.items() if not count)
    return own, f"batch {c['batch']}, {size}" + (f", {rest}" if rest else "")
