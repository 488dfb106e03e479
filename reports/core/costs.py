"""What was measured on one device, against its baseline: the rows that several pages show."""

from __future__ import annotations

import math
from functools import cached_property

import pandas as pd

from harness.measure.ceilings import with_shares
from harness.profile import Profile, load_profile
from harness.records.drift import Drift, machine_drift
from harness.records.ratios import Row, memory_frame, summarise, time_frame
from harness.registry import builtins
from harness.stats import Interval, ratio_interval
from reports.core.source import TIMED, DeviceRecords
from reports.core.sweeps import LengthSweep, problem_order, sweeps


class Costs:
    """Costs on one device.

    The profile is for baseline, subject and reference size, which are the same in all of them. All
    ratios are formed to `baseline`, the profile's unless given; only that one has a control, and so
    a noise floor.
    """

    def __init__(self, device: DeviceRecords, baseline: str = "") -> None:
        self.device = device
        self.profile: Profile = load_profile("quick", device.kind)
        self.baseline = baseline or self.profile.baseline

    @cached_property
    def times(self) -> pd.DataFrame:
        """Time per case and block, controls too."""
        return time_frame(self.device.records)

    @cached_property
    def memory(self) -> pd.DataFrame:
        """Peak memory per case and block, of readings that succeeded."""
        frame = memory_frame(self.device.records)
        return frame[frame["status"] == "ok"]

    @cached_property
    def rows(self) -> list[Row]:
        """Every case against its baseline, sorted by problem."""
        if not self.device.has(*TIMED):
            return []
        records = self.device.records
        rows = summarise(records, self.baseline, self.profile.reference["heads"])
        shared = with_shares(rows, records, builtins())
        return sorted(shared, key=problem_order)

    @cached_property
    def sweeps(self) -> list[LengthSweep]:
        """Sweeps over length, the longest first."""
        return sweeps(self.rows)

    @cached_property
    def subject(self) -> str:
        """Whom the sentences speak about; empty if nothing but the baseline was measured."""
        names = dict.fromkeys(str(r.columns["name"]) for r in self.rows)
        others = [name for name in names if name != self.baseline]
        if self.profile.subject in others:
            return self.profile.subject
        return others[0] if others else ""

    @cached_property
    def drifts(self) -> list[Drift]:
        """Movements of the machine that are shown."""
        return machine_drift(self.times, self.baseline, self.profile.reference["heads"])

    def memory_ratio(self, row: Row) -> Interval | None:
        """Peak memory over the baseline's, one ratio per block; None where none can be told."""
        if row.below_floor:
            return None
        case = self.memory["case"]
        mine = self.memory[case == row.case].groupby("block")["peak_bytes"].median()
        base = self.memory[case == row.baseline].groupby("block")["peak_bytes"].median()
        ratios = [float(v) for v in (mine / base).dropna()]
        if not ratios:
            # Measured, but never in the same block.
            if math.isnan(row.memory_ratio):
                return None
            return Interval(row.memory_ratio, math.nan, math.nan, 1)
        return ratio_interval(ratios)
