"""How time grows with CPU threads and with the batch: readings of one interpreter, by blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from harness.case import setting
from harness.records.ratios import WITHHELD, Row, block_ratios
from harness.stats import Interval, ratio_interval
from reports.core.sweeps import label_of, length_of


@dataclass(frozen=True)
class Grown:
    """One case beside itself with the fewest threads, or at the smallest batch.

    Attributes
    ----------
    row : Row
        The case.
    problem : str
        What both share: ``N = 64, 300 wide, f32, 1-thread``; not the pass.
    amount, least : int
        Threads or sequences, of this case and of the one it is held against.
    time : Interval
        Its time over the other's; exactly 1 where the two are the same.
    """

    row: Row
    problem: str
    amount: int
    least: int
    time: Interval

    @property
    def label(self) -> str:
        """``mtsa.fused 8h``."""
        return label_of(self.row)

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


def threads(row: Row) -> tuple[int | None, str]:
    """Number of threads of a case, None where it has none of its own, and its other settings."""
    names = str(row.columns["settings"]).split("+")
    counts = {n: setting(n).threads for n in names if n != "eager"}
    own = next((count for count in counts.values() if count), None)
    return own, "+".join(n for n, count in counts.items() if not count)


def over_threads(rows: Sequence[Row], times: pd.DataFrame) -> list[Grown]:
    """Cases that were measured with several numbers of threads.

    Parameters
    ----------
    rows : sequence of Row
        Of one device; what failed or is withheld is left out.
    times : DataFrame
        Readings of that device, of `harness.records.ratios.time_frame`.
    """

    def shared(row: Row) -> str:
        c, rest = row.columns, threads(row)[1]
        size = f"batch {c['batch']}, N = {length_of(row):,}, {c['d_in']} wide, {c['dtype']}"
        return size + (f", {rest}" if rest else "")

    return _grown(rows, times, lambda row: threads(row)[0], shared)


def over_batches(rows: Sequence[Row], times: pd.DataFrame) -> list[Grown]:
    """Cases that were measured at several batch sizes; see `over_threads`."""

    def shared(row: Row) -> str:
        c = row.columns
        return f"N = {length_of(row):,}, {c['d_in']} wide, {c['dtype']}, {c['settings']}"

    return _grown(rows, times, lambda row: int(str(row.columns["batch"])), shared)


def _grown(
    rows: Sequence[Row],
    times: pd.DataFrame,
    amount: Callable[[Row], int | None],
    shared: Callable[[Row], str],
) -> list[Grown]:
    groups: dict[tuple[str, ...], dict[int, Row]] = {}
    for row in rows:
        found = amount(row)
        if found is not None and row.status == "ok" and row.verdict != WITHHELD:
            c = row.columns
            key = (shared(row), str(c["phase"]), label_of(row), str(c["d_out"]))
            groups.setdefault(key, {})[found] = row

    def of(row: Row) -> pd.DataFrame:
        return times[times["case"] == row.case]

    grown: list[Grown] = []
    for (problem, *_), group in groups.items():
        least = min(group)
        others = [
            Grown(row, problem, n, least, ratio_interval(ratios))
            for n, row in sorted(group.items())
            if n != least and (ratios := block_ratios(of(row), of(group[least])))
        ]
        if others:
            itself = Grown(
                group[least], problem, least, least, Interval(1.0, math.nan, math.nan, 0)
            )
            grown += [itself, *others]
    return grown
