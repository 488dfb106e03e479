"""Claims about time, memory and growth: queries over the tidy frames of one device."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from harness.records.ratios import TELLING, block_ratios, says_nothing
from harness.stats import ratio_interval
from reports.claims.device import DeviceFrames, alternatives, not_measured, place_of, same_form
from reports.claims.printed import size_text
from reports.claims.record import Claim
from reports.claims.verdict import Answer, Evidence, Precedence
from reports.core.source import TIMED
from reports.core.sweeps import by_block, fit_slope, longest

LEAST_READINGS = 3
"""Of memory: with fewer nothing is concluded."""


def _where(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Columns that a claim's parameters fix."""
    names = {"batch": "batch", "length": "length", "width_in": "d_in", "phase": "phase"}
    found = {column: parameters[name] for name, column in names.items() if name in parameters}
    return {**found, "dtype": parameters.get("dtype", "f32")}


def _name(case: pd.DataFrame) -> str:
    row = case.iloc[0]
    heads = f" {row['heads']}h" if row["heads"] else ""
    return f"{row['name']}{heads} (N = {row['length']}, batch {row['batch']})"


def _pairs(claim: Claim, device: DeviceFrames) -> Iterator[tuple[int, tuple[str, str]]]:
    """All pairs of cases that the claim's names stand for, the preferred ones first.

    Before each how near its names are to the preferred ones, which are 0 (`Precedence.near`).
    """
    p = claim.parameters
    own = {"d_out": p["second_width"]} if "second_width" in p else {}
    firsts, seconds = (
        [
            (place, case)
            for place, name in enumerate(alternatives(p[side]))
            for case in device.cases(name, {**_where(p), **only})
        ]
        for side, only in (("first", {}), ("second", own))
    )
    for (at, one), (behind, other) in itertools.product(firsts, seconds):
        mine, theirs = (str(device.by_case[case]["name"].iloc[0]) for case in (one, other))
        if one != other and same_form(mine, theirs, p["first"]):
            yield -(at + behind), (one, other)


def _bench(names: Sequence[str], batch: int, lengths: Sequence[int], profile: str = "") -> str:
    only = " ".join(f"--only {shlex.quote(name)}" for name in names)
    chosen = f"--profile {profile} " if profile else ""
    return f"attnbench bench {chosen}{only} --batch {batch} --lengths {','.join(map(str, lengths))}"


def _ratio(
    claim: Claim,
    device: DeviceFrames,
    kinds: Sequence[str],
    found: Callable[[DeviceFrames, str, str], Evidence | None],
) -> Evidence:
    """What is found of the first pair of cases that both were measured, and are verified."""
    failed = ""
    for near, pair in _pairs(claim, device):
        rows = pd.concat([device.by_case[case] for case in pair])
        bad = rows[rows["status"] != "ok"]
        if len(bad):
            failed = f"{bad['name'].iloc[0]}: {bad['status'].iloc[0]}"
            continue
        if (one := found(device, *pair)) is None:
            failed = ""
            continue
        one = replace(one, precedence=Precedence(near=near))
        keys = device.keys(*pair, kinds=kinds)
        over = " over ".join(_name(device.by_case[case]) for case in pair)
        if fault := _fault(device, pair, kinds):
            return replace(one, reason=f"{over}: {fault}.", keys=keys, answer="undecided")
        return replace(one, reason=f"{over}: {one.reason}", keys=keys)
    if failed:
        return Evidence(reason=f"{failed}: no ratio.", answer="undecided")
    p = claim.parameters
    names = [alternatives(p[side])[0] for side in ("first", "second")]
    what = f"no {names[0]} beside {names[1]} at batch {p['batch']}, N = {p['length']}"
    profile = "paper" if "second_width" in p else ""  # which has both widths in one session
    return not_measured(what, _bench(names, p["batch"], [p["length"]], profile))


def _fault(device: DeviceFrames, cases: Iterable[str], kinds: Sequence[str]) -> str:
    """Why nothing is concluded from the first of some cases that is so; empty for none."""
    for case in cases:
        if case not in device.verified:
            return f"{case} is not verified at this shape"
        if "time" in kinds and case in device.withheld:
            return f"{case}: withheld: {device.withheld[case].rstrip('.')}"
    return ""


def time_ratio(claim: Claim, device: DeviceFrames) -> Evidence:
    """Time of the first over that of the second, formed inside blocks.

    Parameters: ``first``, ``second`` (names, the preferred first), ``batch``, ``length``,
    ``width_in``, ``phase``, ``dtype``; ``second_width``: of the second's output, where it is
    another one.
    """
    return _ratio(claim, device, TIMED, _times)


def _times(device: DeviceFrames, first: str, second: str) -> Evidence | None:
    ratios = block_ratios(device.by_case[first], device.by_case[second])
    if not ratios:
        return None
    t = ratio_interval(ratios)
    if not {first, second} <= set(device.verified):
        return Evidence(t.ratio, t.low, t.high)
    floor = device.floor(device.by_case[first])
    if not t.known or math.isinf(floor):
        reason = f"{t}; no interval, or no A/A control."
        return Evidence(t.ratio, reason=reason, answer="undecided")
    # At least the noise floor on either side: nothing smaller is claimed.
    low, high = min(t.low, t.ratio / floor), max(t.high, t.ratio * floor)
    reason = f"{t} over {t.count} blocks; the noise floor is {floor:.3f}x."
    return Evidence(t.ratio, low, high, reason)


def memory_ratio(claim: Claim, device: DeviceFrames) -> Evidence:
    """Peak memory of the first over that of the second; parameters as of `time_ratio`.

    The interval is over readings; of fewer than `LEAST_READINGS` nothing is concluded.
    """
    return _ratio(claim, device, ("memory",), _peaks)


def _peaks(device: DeviceFrames, first: str, second: str) -> Evidence | None:
    held = [device.memory[device.memory["case"] == case] for case in (first, second)]
    peaks = [dict(zip(f["block"].astype(int), f["peak_bytes"], strict=True)) for f in held]
    blocks = sorted(peaks[0].keys() & peaks[1].keys())
    if not blocks:
        return None
    t = ratio_interval([float(peaks[0][b]) / float(peaks[1][b]) for b in blocks])
    low, high = (t.low, t.high) if t.known else (t.ratio, t.ratio)
    sizes = " and ".join(f"{p[blocks[0]] / 2**20:,.0f} MiB" for p in peaks)
    readings = f"{len(blocks)} reading{'s' * (len(blocks) > 1)}"
    few = len(blocks) < LEAST_READINGS
    least = f", a verdict needs {LEAST_READINGS}" if few else ""
    noise = any(says_nothing(f["peak_bytes"].median(), f["floor_bytes"].max()) for f in held)
    small = f"; a peak is within {TELLING} times what two readings differ by" if noise else ""
    said = f"{size_text(t.ratio)}x ({sizes}; {readings}{least}{small})."
    return Evidence(t.ratio, low, high, said, answer="undecided" if few or noise else None)


def slope(claim: Claim, device: DeviceFrames) -> Evidence:
    """Growth with length as a power of it, fitted to the longest lengths (within a factor of 4).

    Of fewer than `LEAST_READINGS` of memory nothing is concluded, and of times in one block.

    Parameters: ``first`` (names), ``cost`` ("time" or "memory"), ``phase``, and ``reach``: a sweep
    that ends before it says nothing of the power, because terms of a lower one still lead.
    """
    p = claim.parameters
    cases = device.cases(p["first"], {"phase": p["phase"], "dtype": p.get("dtype", "f32")})
    if not cases:
        return _no_sweep(claim)
    frame = pd.concat([device.by_case[case] for case in cases])
    sweeps = [
        group
        for _, group in frame[frame["status"] == "ok"].groupby(
            ["name", "heads", "batch", "d_in", "d_out"], sort=False
        )
        if group["length"].nunique() > 1
    ]
    if not sweeps:
        return _no_sweep(claim)
    # Of the preferred name that goes far enough the longest sweep; of all, where none does.
    enough = [group["name"].iloc[0] for group in sweeps if group["length"].max() >= p["reach"]]
    own = [one for one in sweeps if not enough or one["name"].iloc[0] == enough[0]]
    group = max(own, key=lambda one: int(one["length"].max()))
    cases = [str(c) for c in dict.fromkeys(group["case"])]
    timed = p["cost"] == "time"
    blocks = by_block(group if timed else _with_memory(group, device), "seconds", timed)
    fit = fit_slope(longest(blocks))
    if fit is None:
        return _no_sweep(claim)
    kinds = TIMED if timed else ("memory",)
    said = f"{group['name'].iloc[0]}, {p['cost']}, N = {fit.lengths[0]} to {fit.lengths[-1]}: {fit}"
    low, high = (fit.slope, fit.slope) if math.isnan(fit.low) else (fit.low, fit.high)
    answer: Answer | None = "undecided"
    used = dict.fromkeys(str(c) for c in group["case"][group["length"].isin(fit.lengths)])
    if fault := _fault(device, used, kinds):
        said += f"; {fault}"
    elif fit.lengths[-1] < p["reach"]:
        said += f"; no sweep of one session reaches N = {p['reach']}, where the leading term shows"
    elif timed and math.isnan(fit.low):
        said += "; one block holds all lengths: a machine that moved would look the same"
    elif not timed and fit.blocks < LEAST_READINGS:
        said += f"; fewer than the {LEAST_READINGS} readings that a verdict needs"
    else:
        answer = None
    keys = device.keys(*used, kinds=kinds)
    place = place_of(p["first"], str(group["name"].iloc[0]), int(group["heads"].iloc[0]))
    assert place is not None, "its cases are those that the claim's names fit"
    near = Precedence(near=-place)
    return Evidence(fit.slope, low, high, f"{said}.", keys, answer=answer, precedence=near)


def _no_sweep(claim: Claim) -> Evidence:
    p = claim.parameters
    name, reach = alternatives(p["first"])[0], p["reach"]
    lengths = [reach // 4, reach // 2, reach]
    return not_measured(f"no {p['cost']} of {name} over lengths", _bench([name], 4, lengths))


def _with_memory(frame: pd.DataFrame, device: DeviceFrames) -> pd.DataFrame:
    """One row per reading, with the bytes beyond weights and input in the place of seconds."""
    lengths = frame[["case", "length"]].drop_duplicates()
    merged = device.memory.merge(lengths, on="case")
    return merged.assign(seconds=merged["transient_bytes"])
