"""Claims about time, memory and growth: queries over the tidy frames of one device."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from harness.profile import load_profile
from harness.ratios import PROBLEM, block_ratios
from harness.records import table
from harness.stats import Interval, noise_floor, ratio_interval
from reports.claims.names import alternatives, parse, same_form
from reports.claims.record import Claim
from reports.claims.verdict import NOT_MEASURED, Finding, size_text
from reports.core.slopes import by_block, fit_slope, longest

PHASES = {"training": "forward and backward", "forward": "forward"}
Record = Mapping[str, Any]


def not_measured(what: str, command: str) -> Finding:
    """A finding that a command could change."""
    reason = f"{NOT_MEASURED}: {what}; {command} makes such records."
    return Finding(reason=reason, answer="not testable here")


@dataclass(frozen=True)
class Measured:
    """The records of one device, as frames.

    Attributes
    ----------
    records : sequence of mapping
        By the newest code only (`reports.core.source.current`).
    """

    records: Sequence[Record]

    @cached_property
    def times(self) -> pd.DataFrame:
        """Time per case and block."""
        return table.times(self.records)

    @cached_property
    def memory(self) -> pd.DataFrame:
        """Peak memory per case and block, of readings that succeeded."""
        frame = table.memory(self.records)
        return frame[frame["status"] == "ok"]

    @cached_property
    def verified(self) -> frozenset[str]:
        """Cases within the error budget at their own shape."""
        frame = table.margins(self.records)
        good = frame[(frame["status"] == "ok") & frame["margin"].notna()]
        return frozenset(good["case"])

    @cached_property
    def setting(self) -> str:
        """How the device is usually run; the same in all profiles."""
        kinds = {str(d) for d in self.times["device"]}
        return str(load_profile("quick", "cuda" if "cuda" in kinds else "cpu").setting)

    @cached_property
    def runs(self) -> list[Record]:
        """Finished training runs."""
        return [r for r in self.records if r["kind"] == "run" and r["status"] == "ok"]

    @cached_property
    def exact(self) -> dict[str, Record]:
        """The newest record of every exact check, by its name."""
        found = [r for r in self.records if r["kind"] == "exact"]
        return {str(r["check"]): r for r in sorted(found, key=lambda r: str(r.get("at")))}

    def keys(self, *cases: str, kinds: Sequence[str] = ("time", "anchor")) -> tuple[str, ...]:
        """Keys of the records of some cases."""
        return tuple(
            str(r["key"]) for r in self.records if r["kind"] in kinds and r["case"] in cases
        )

    @cached_property
    def by_case(self) -> dict[str, pd.DataFrame]:
        """Rows of the time frame by case; the usual setting, without controls."""
        frame = self.times
        usual = frame[~frame["control"].astype(bool) & (frame["settings"] == self.setting)]
        return {str(case): rows for case, rows in usual.groupby("case", sort=False)}

    @cached_property
    def _known(self) -> dict[str, dict[str, Any]]:
        """The columns of every case."""
        return {
            case: {str(name): value for name, value in rows.iloc[0].items()}
            for case, rows in self.by_case.items()
        }

    def cases(self, names: str | Sequence[str], where: Mapping[str, Any]) -> list[str]:
        """Cases whose names fit and whose columns have these values, the preferred name first."""
        found = [
            case
            for text in alternatives(names)
            for case, columns in self._known.items()
            if all(columns[column] == value for column, value in where.items())
            and parse(text).fits(str(columns["name"]), int(columns["heads"]))
        ]
        return list(dict.fromkeys(found))

    def floor(self, case: pd.DataFrame) -> float:
        """Noise floor of a case's problem, from its A/A control; infinite without one."""
        one = case.iloc[0]
        same = self.times
        for column in PROBLEM:
            same = same[same[column] == one[column]]
        good = same[same["status"] == "ok"]
        control = good[good["control"].astype(bool)]
        for case_id, twin in control.groupby("case", sort=False):
            base = good[good["case"] == str(case_id).removesuffix("+control")]
            if ratios := block_ratios(twin, base):
                return noise_floor(ratio_interval(ratios))
        return math.inf


def _where(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Columns that a claim's parameters fix."""
    names = {"batch": "batch", "length": "length", "width_in": "d_in", "phase": "phase"}
    found = {column: parameters[name] for name, column in names.items() if name in parameters}
    return {**found, "dtype": parameters.get("dtype", "f32")}


def _pairs(claim: Claim, device: Measured) -> Iterator[tuple[str, pd.DataFrame, str, pd.DataFrame]]:
    """All pairs of cases that the claim's names stand for, the preferred ones first."""
    p = claim.parameters
    where = _where(p)
    firsts, seconds = (device.cases(p[side], where) for side in ("first", "second"))
    for one in firsts:
        for other in seconds:
            mine, theirs = (str(device.by_case[c]["name"].iloc[0]) for c in (one, other))
            if one != other and same_form(mine, theirs, p["first"]):
                yield one, device.by_case[one], other, device.by_case[other]


def _absent(claim: Claim) -> Finding:
    p = claim.parameters
    names = [alternatives(p[side])[0] for side in ("first", "second")]
    what = f"no {names[0]} beside {names[1]} at batch {p['batch']}, N = {p['length']}"
    return not_measured(what, _bench(names, p["batch"], [p["length"]]))


def _bench(names: Sequence[str], batch: int, lengths: Sequence[int]) -> str:
    only = " ".join(f"--only {shlex.quote(name)}" for name in names)
    return f"attnbench bench {only} --batch {batch} --lengths {','.join(map(str, lengths))}"


def _failed(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """The status of a case that could not be measured; empty if both could."""
    for case in (first, second):
        bad = case[case["status"] != "ok"]
        if len(bad):
            return f"{bad['name'].iloc[0]}: {bad['status'].iloc[0]}"
    return ""


def _widened(interval: Interval, floor: float) -> tuple[float, float]:
    """The interval, and at least the noise floor on either side: nothing smaller is claimed."""
    return min(interval.low, interval.ratio / floor), max(interval.high, interval.ratio * floor)


def time_ratio(claim: Claim, device: Measured) -> Finding:
    """Time of the first over that of the second, formed inside blocks.

    Parameters: ``first``, ``second`` (names, the preferred first), ``batch``, ``length``,
    ``width_in``, ``phase``, ``dtype``.
    """
    failed = ""
    for first_id, first, second_id, second in _pairs(claim, device):
        if failed := _failed(first, second):
            continue
        if not (ratios := block_ratios(first, second)):
            continue
        keys = device.keys(first_id, second_id)
        what = f"{_label(first)} over {_label(second)}"
        interval = ratio_interval(ratios)
        unverified = [c for c in (first_id, second_id) if c not in device.verified]
        if unverified:
            return Finding(
                interval.ratio, interval.low, interval.high,
                f"{what}: {unverified[0]} is not verified at this shape.", keys, answer="undecided",
            )  # fmt: skip
        floor = device.floor(first)
        if not interval.known or math.isinf(floor):
            return Finding(
                interval.ratio, reason=f"{what}: {interval}; no interval, or no A/A control.",
                keys=keys, answer="undecided",
            )  # fmt: skip
        low, high = _widened(interval, floor)
        return Finding(
            interval.ratio, low, high,
            f"{what}: {interval} over {interval.count} blocks; the noise floor is {floor:.3f}x.",
            keys,
        )  # fmt: skip
    if failed:
        return Finding(reason=f"{failed}: no ratio.", answer="undecided")
    return _absent(claim)


def _label(case: pd.DataFrame) -> str:
    row = case.iloc[0]
    heads = f" {row['heads']}h" if row["heads"] else ""
    return f"{row['name']}{heads} (N = {row['length']}, batch {row['batch']})"


def memory_ratio(claim: Claim, device: Measured) -> Finding:
    """Peak memory of the first over that of the second; parameters as of `time_ratio`.

    With several readings the interval is over them; one reading repeats within about a per cent.
    """
    failed = ""
    for first_id, first, second_id, second in _pairs(claim, device):
        if failed := _failed(first, second):
            continue
        peaks = []
        for case in (first_id, second_id):
            frame = device.memory[device.memory["case"] == case]
            peaks.append({int(b): float(v) for b, v in
                          zip(frame["block"], frame["peak_bytes"], strict=True)})  # fmt: skip
        blocks = sorted(peaks[0].keys() & peaks[1].keys())
        if not blocks:
            continue
        interval = ratio_interval([peaks[0][b] / peaks[1][b] for b in blocks])
        value = interval.ratio
        low, high = (interval.low, interval.high) if interval.known else (value, value)
        sizes = " and ".join(f"{p[blocks[0]] / 2**20:,.0f} MiB" for p in peaks)
        unverified = [c for c in (first_id, second_id) if c not in device.verified]
        if unverified:
            return Finding(
                value, low, high,
                f"{_label(first)} over {_label(second)}: {unverified[0]} is not verified at this "
                "shape.", device.keys(first_id, second_id, kinds=("memory",)), answer="undecided",
            )  # fmt: skip
        return Finding(
            value, low, high,
            f"{_label(first)} over {_label(second)}: {size_text(value)}x ({sizes}; "
            f"{len(blocks)} reading{'s' * (len(blocks) > 1)}).",
            device.keys(first_id, second_id, kinds=("memory",)),
        )  # fmt: skip
    if failed:
        return Finding(reason=f"{failed}: no ratio.", answer="undecided")
    return _absent(claim)


def slope(claim: Claim, device: Measured) -> Finding:
    """Growth with length as a power of it, fitted to the longest lengths (within a factor of 4).

    Parameters: ``first`` (names), ``cost`` ("time" or "memory"), ``phase``, and ``reach``: a sweep
    that ends before it says nothing of the power, because terms of a lower one still lead.
    """
    p = claim.parameters
    cases = device.cases(p["first"], {"phase": p["phase"], "dtype": p.get("dtype", "f32")})
    if not cases:
        return _no_sweep(claim)
    frame = pd.concat([device.by_case[case] for case in cases])
    sweeps = [
        (int(group["length"].max()), group)
        for _, group in frame[frame["status"] == "ok"].groupby(
            ["name", "heads", "batch", "d_in"], sort=False
        )
        if group["length"].nunique() > 1
    ]
    if not sweeps:
        return _no_sweep(claim)
    # Of the preferred name that goes far enough the longest sweep; of all, where none does.
    enough = [group["name"].iloc[0] for reached, group in sweeps if reached >= p["reach"]]
    own = [one for one in sweeps if not enough or one[1]["name"].iloc[0] == enough[0]]
    group = max(own, key=lambda one: one[0])[1]
    cases = [str(c) for c in dict.fromkeys(group["case"])]
    timed = p["cost"] == "time"
    blocks = by_block(group if timed else _with_memory(group, device), "seconds", timed)
    fit = fit_slope(longest(blocks))
    if fit is None:
        return _no_sweep(claim)
    kinds = ("time", "anchor") if p["cost"] == "time" else ("memory",)
    what = f"{group['name'].iloc[0]}, {p['cost']}, N = {fit.lengths[0]} to {fit.lengths[-1]}: {fit}"
    low, high = (fit.slope, fit.slope) if math.isnan(fit.low) else (fit.low, fit.high)
    keys = device.keys(*cases, kinds=kinds)
    if fit.lengths[-1] < p["reach"]:
        reason = f"{what}; the sweep ends before N = {p['reach']}, where the leading term shows."
        return Finding(fit.slope, low, high, reason, keys, answer="undecided")
    if timed and math.isnan(fit.low):
        reason = f"{what}; one block holds all lengths: a machine that moved would look the same."
        return Finding(fit.slope, low, high, reason, keys, answer="undecided")
    return Finding(fit.slope, low, high, f"{what}.", keys)


def _no_sweep(claim: Claim) -> Finding:
    p = claim.parameters
    name, reach = alternatives(p["first"])[0], p["reach"]
    lengths = [reach // 4, reach // 2, reach]
    return not_measured(f"no {p['cost']} of {name} over lengths", _bench([name], 4, lengths))


def _with_memory(frame: pd.DataFrame, device: Measured) -> pd.DataFrame:
    """One row per reading, with the bytes beyond weights and input in the place of seconds."""
    lengths = frame[["case", "length"]].drop_duplicates()
    merged = device.memory.merge(lengths, on="case")
    return merged.assign(seconds=merged["transient_bytes"])
