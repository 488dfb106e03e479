"""What the journal holds of a case: its times, peaks, error, and the machine's ceilings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.case import Case
from harness.measure.ceilings import Ceiling, ceilings, gauge_of, work_of
from harness.records.ratios import block_ratios, margin_frame, memory_frame, time_frame
from harness.stats import Interval, ratio_interval
from reference_impls.mechanism import Mechanism


class Readings:
    """Records of one device by case.

    Parameters
    ----------
    records : sequence of mapping
        Of one code of every mechanism.
    mechanisms : mapping
        With the formulas for operations.
    """

    def __init__(
        self, records: Sequence[Mapping[str, Any]], mechanisms: Mapping[str, Mechanism]
    ) -> None:
        self._mechanisms = mechanisms
        times = time_frame(records)
        self._no_times = times.iloc[:0]
        self._times = {str(case): group for case, group in times.groupby("case", sort=False)}
        memory = memory_frame(records)
        self._memory = {str(case): group for case, group in memory.groupby("case", sort=False)}
        margins = margin_frame(records).to_dict("records")
        self._margins = {str(row["case"]): row for row in margins}
        self._ceilings: dict[str, Ceiling] = ceilings(records)

    def status(self, case: Case) -> tuple[str, str]:
        """What became of a case and why; ``not measured`` without a record."""
        rows = self._times.get(case.id)
        if rows is None:
            return "not measured", ""
        bad = rows[rows["status"] != "ok"]
        if not bad.empty:
            return str(bad["status"].iloc[0]), str(bad["detail"].iloc[0] or "")
        check = self._margins.get(case.id, {})
        if check.get("status") == "wrong":
            return "wrong", str(check.get("detail") or "")
        return "ok", ""

    def times(self, case: Case) -> pd.DataFrame:
        """Block, interpreter and seconds of every time that was taken."""
        rows = self._times.get(case.id, self._no_times)
        return rows[rows["status"] == "ok"]

    def time_ratio(self, case: Case, other: Case) -> Interval | None:
        """Ratio of two times with its interval; None where no interpreter measured both."""
        ratios = block_ratios(self.times(case), self.times(other))
        return ratio_interval(ratios) if ratios else None

    def seconds(self, case: Case) -> float:
        """Median over blocks; nan without any."""
        return float(self.times(case)["seconds"].median())

    def bytes_by_block(self, case: Case, column: str = "peak_bytes") -> dict[int, float]:
        """Peak of a pass, or what it holds beyond weights and input (``transient_bytes``)."""
        rows = self._memory.get(case.id)
        if rows is None:
            return {}
        good = rows[(rows["status"] == "ok") & (rows[column] > 0)]
        return {int(b): float(v) for b, v in zip(good["block"], good[column], strict=True)}

    def memory_ratio(self, case: Case, other: Case) -> Interval | None:
        """Ratio of two peaks, formed inside blocks; None where no block has both."""
        mine, base = self.bytes_by_block(case), self.bytes_by_block(other)
        ratios = [mine[block] / base[block] for block in mine if block in base]
        return ratio_interval(ratios) if ratios else None

    def peak(self, case: Case) -> float:
        """Median peak in bytes; nan without any."""
        return float(pd.Series(self.bytes_by_block(case), dtype=float).median())

    def operations(self, case: Case) -> float:
        """Operations of one pass by the formulas; nan where none says."""
        return work_of(self._mechanisms.get(case.mechanism), case).operations

    def share(self, case: Case) -> float:
        """Operations per second, of the session's best matrix product; nan where not known."""
        ceiling = self._ceilings.get(gauge_of(case).id)
        if ceiling is None:
            return math.nan
        return self.operations(case) / self.seconds(case) / ceiling.operations

    def margin(self, case: Case) -> float:
        """Error budget over error at this very shape; nan where it was not verified."""
        check = self._margins.get(case.id, {})
        value = check.get("margin")
        return value if check.get("status") == "ok" and isinstance(value, float) else math.nan
