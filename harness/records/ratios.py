"""From a journal to ratios inside blocks, with intervals; the noise floor is the A/A control's."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from harness.case import Case, parse
from harness.stats import Interval, Verdict, noise_floor, ratio_interval, verdict
from harness.stats.drift import session_trend, shown

COLUMNS = [
    "case", "name", "mechanism", "implementation", "batch", "length", "d_in", "d_out", "heads",
    "dtype", "phase", "device", "settings", "control", "block", "interpreter", "status", "detail",
    "seconds", "rounds", "beside", "ratio", "order", "kernels", "found_by", "fingerprint",
    "session",
]  # fmt: skip


def _case_columns(case_id: str) -> dict[str, Any]:
    case = parse(case_id)
    p = case.problem
    return {
        "case": case_id, "name": case.name, "mechanism": case.mechanism,
        "implementation": case.implementation, "batch": p.batch, "length": p.length,
        "d_in": p.d_in, "d_out": p.d_out, "heads": p.heads, "dtype": p.dtype, "phase": p.phase,
        "device": p.device, "settings": "+".join(case.own_settings) or "eager",
        "control": case.is_control,
    }  # fmt: skip


def time_frame(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Time per case and block: ``seconds`` is `harness.stats.block_time` of its samples.

    On CUDA, and in records that name no ``seconds``, it is their median. ``ratio`` is that to the
    case ``beside``, where both were timed in turn. ``kernels`` are the libraries' and our own that
    its calls went to, ``none`` of them, or None in a block where nobody looked.

    Parameters
    ----------
    records : iterable of mapping
        Records of a journal, of any kind.

    Returns
    -------
    DataFrame
        With `COLUMNS`; failed cases have a row as well, with their status and no seconds.
    """
    cases: dict[str, dict[str, Any]] = {}
    rows = []
    for r in records:
        # A case whose error is over budget is not timed: its margin is its row.
        timed = r["kind"] in ("time", "anchor")
        if not timed and not (r["kind"] == "margin" and r["status"] == "wrong"):
            continue
        columns = cases.get(r["case"])
        if columns is None:
            columns = cases[r["case"]] = _case_columns(r["case"])
        rows.append(
            {
                **columns,
                **{k: r.get(k) for k in ("block", "interpreter", "status", "detail", "order")},
                # Records before there was a rule of its own for the CPU have the median alone.
                "seconds": r.get("seconds", r.get("median")),
                "rounds": len(r.get("samples") or ()),
                "beside": r.get("beside"),
                "ratio": r.get("ratio"),
                "kernels": _kernels(r.get("dispatched")),
                "found_by": r.get("found_by"),
                "fingerprint": r.get("fingerprint"),
                "session": r.get("session"),
            }
        )
    return _framed(rows, COLUMNS, ("seconds", "ratio"))


def _kernels(dispatched: Any) -> str | None:
    """``native_backward, native_forward``; None in a block that was not observed."""
    if not isinstance(dispatched, list):
        return None
    names = (str(name).rpartition("::")[2].removeprefix("_") for name in dispatched)
    return ", ".join(dict.fromkeys(names)) or "none"


def memory_frame(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Peak memory per case and block, in bytes.

    ``transient_bytes`` is what the pass needs beyond what was there before it; ``peak_bytes`` adds
    weights and input, ``floor_bytes`` is what two readings of it can differ by without a reason.
    """
    numbers = ["transient_bytes", "peak_bytes", "floor_bytes"]
    return _frame(records, "memory", ["case", "block", "status"], numbers)


def margin_frame(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Error, budget and margin of each case at its own shape."""
    texts = ["case", "status", "verdict", "what", "against", "detail"]
    return _frame(records, "margin", texts, ["error", "budget", "margin"])


def _checks(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, object]]:
    """What the last margin of each case says."""
    rows = margin_frame(records).to_dict("records")
    return {str(r["case"]): {str(k): v for k, v in r.items()} for r in rows}


def verified_cases(records: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Cases within the error budget at their own shape."""
    return frozenset(case for case, check in _checks(records).items() if not _unverified(check))


def _frame(
    records: Iterable[Mapping[str, Any]], kind: str, texts: list[str], numbers: list[str]
) -> pd.DataFrame:
    """Records of one kind, with these columns."""
    columns = [*texts, *numbers]
    rows = [{name: r.get(name) for name in columns} for r in records if r["kind"] == kind]
    return _framed(rows, columns, numbers)


def _framed(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], numbers: Sequence[str]
) -> pd.DataFrame:
    """Rows as a frame; these columns are of floats."""
    # Of texts Arrow's strings, which pandas would make of them, are slow to pick rows from: that is
    # most of what a report does.
    found = {}
    for name in columns:
        values = [row.get(name) for row in rows]
        text = object if any(isinstance(value, str) for value in values) else None
        found[name] = pd.Series(values, dtype=float if name in numbers else text)
    return pd.DataFrame(found)


Peaks = Mapping[str, tuple[float, float]]  # peak and floor by case, in bytes
PROBLEM = ["batch", "length", "d_in", "dtype", "phase", "device", "settings"]
"""What case and baseline must share. Output width and heads may differ: a mechanism that keeps its
width, or the papers' 2 heads x 300 against 8 x 75, is compared at the size a user would run."""


WITHHELD = "withheld"
"""Verdict of a row whose numbers can't be right; its detail says why."""
NO_ORACLE, NOT_VERIFIED = "no oracle", "not verified"
"""What is known of values that no margin stands for: `Row.unverified` begins with one of them."""
TELLING = 4
"""A peak below so many times its floor says nothing of a ratio: a quarter of it is noise."""


@dataclass(frozen=True)
class Row:
    """One case against the baseline of its problem."""

    case: str  # case, baseline: case ids
    baseline: str | None
    columns: Mapping[str, object]  # the case's columns of the tidy frame (name, length, phase ...)
    status: str  # status of the case; other than ok without numbers
    seconds: float  # median over blocks
    time: Interval | None  # time ratio to the baseline
    floor: float  # noise floor of this problem, from its A/A control; infinite while unknown
    verdict: Verdict | str  # or "baseline", "withheld", ""
    # peak_bytes, memory_ratio: median peak, and its ratio to the baseline's; the latter nan where
    # it can't be told.
    peak_bytes: float
    memory_ratio: float
    error: float  # error, budget, margin: at this shape; nan where not verified
    budget: float
    margin: float
    # Within the error budget at this shape. Without it there is no headline.
    verified: bool
    detail: str
    unverified: str = ""  # empty where verified; else `NO_ORACLE` or `NOT_VERIFIED`, and why
    # Whether error and margin are against its own float64, for want of an oracle.
    by_itself: bool = False
    # Bytes of its peak or the baseline's that are noise; nan where nobody looked.
    memory_floor: float = math.nan
    below_floor: bool = False  # whether one of both peaks is no more than `TELLING` times its floor
    # compute_share, bandwidth_share: operations per second over the session's best matrix product,
    # and least traffic over its best copy (see `harness.measure.ceilings`); nan where not known.
    compute_share: float = math.nan
    bandwidth_share: float = math.nan
    operations_per_second: float = math.nan  # by the formula
    # Its operations over the baseline's, by their formulas; nan where one is not known.
    operations_ratio: float = math.nan
    # At least half of its time is launching operations, so that it says little about them.
    near_floor: bool = False
    # How much the *ratio* moved over the session: its last third over its first. 1 where no
    # movement is shown (Holm over all rows, and beyond the noise floor); nan with too few blocks or
    # no noise floor.
    drift: float = math.nan
    by_block: Mapping[int, float] = field(default_factory=dict)  # the ratio of each block
    # Which of the libraries' and of our own its calls went to, one text for each way that was seen.
    # More than one, of it or of its baseline, and the verdict is withheld: ``fused`` takes another
    # path where a kernel can't be built, and blocks of two paths are no replicates.
    kernels: tuple[str, ...] = ()
    found_by: str = ""  # the check that withheld or refused it; empty where none did
    # Empty where a formula says its operations, else who counted them, or that nobody could.
    operations_by: str = ""


def ratios_by_block(case: pd.DataFrame, other: pd.DataFrame) -> dict[int, float]:
    """Ratio of a case to another in every block: from samples taken in turn, where there are any.

    If both were timed in turn with the same third case, from their ratios to that one. Otherwise
    from the times of the two in an interpreter that measured both, one per block.
    """
    if not (len(case) and len(other)):
        return {}
    found = _beside(case, other, "interpreter", "seconds") | _beside(case, other, "beside", "ratio")
    own: dict[int, float] = {}
    beside = other["case"].iloc[0]
    for block, at, ratio in _rows(case, "block", "beside", "ratio"):
        if at == beside and not math.isnan(ratio):
            own.setdefault(block, ratio)
    return {int(block): float(ratio) for block, ratio in sorted((found | own).items())}


def _beside(case: pd.DataFrame, other: pd.DataFrame, key: str, value: str) -> dict[int, float]:
    """By block the first value of a case over that of the other with the same key, in one session.

    A block that two sessions have parts of is no block: hours may lie between them.
    """

    def known(frame: pd.DataFrame) -> dict[tuple[Any, ...], float]:
        first: dict[tuple[Any, ...], float] = {}
        for *where, size in _rows(frame, "block", "session", key, value):
            if not (pd.isna(where[-1]) or math.isnan(size)):
                first.setdefault(tuple(where), size)
        return first

    others = known(other)
    return {at[0]: size / others[at] for at, size in known(case).items() if at in others}


def _rows(frame: pd.DataFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    """These columns row by row: a frame of few rows is sooner read than filtered."""
    return zip(*(frame[name].tolist() for name in names), strict=True)


def block_ratios(case: pd.DataFrame, other: pd.DataFrame) -> list[float]:
    """`ratios_by_block` without the blocks."""
    return list(ratios_by_block(case, other).values())


def summarise(records: Collection[Mapping[str, Any]], baseline: str, heads: int = 8) -> list[Row]:
    """Compare every case with the baseline of its problem.

    Parameters
    ----------
    records : collection of mapping
        Records of a journal, of any kind, of one fingerprint.
    baseline : str
        ``mechanism.implementation``.
    heads : int
        The baseline's heads.

    Returns
    -------
    list of Row
        In the order of `time_frame`; controls are not rows, they are the floor.
    """
    memory = memory_frame(records)
    read = memory[memory["status"] == "ok"].groupby("case")
    held = read.agg({"peak_bytes": "median", "floor_bytes": "max"})
    peaks = {str(case): (float(p), float(f)) for case, p, f in held.itertuples()}
    checks = _checks(records)
    rows: list[Row] = []
    for _, group in time_frame(records).groupby(PROBLEM, sort=False):
        of_baseline = (group["name"] == baseline) & group["heads"].isin([0, heads])
        base_id = next(iter(group["case"][of_baseline & ~group["control"]]), None)
        good = group[group["status"] == "ok"]
        base = good[good["case"] == base_id]
        control = good[(good["name"] == baseline) & good["control"]]
        floor = math.inf
        if ratios := block_ratios(control, base):
            floor = noise_floor(ratio_interval(ratios))
        for case_id, case in group[~group["control"]].groupby("case", sort=False):
            rows.append(_row(str(case_id), case, base_id, base, floor, peaks, checks))
    return _with_drift(rows)


def _with_drift(rows: list[Row]) -> list[Row]:
    """Add how much each ratio moved: what moves all cases alike cancels in it, this does not."""
    trends = [None if math.isinf(r.floor) else session_trend(r.by_block) for r in rows]
    moved = shown(trends, [r.floor for r in rows])
    return [
        row if trend is None else replace(row, drift=trend.change if is_shown else 1.0)
        for row, trend, is_shown in zip(rows, trends, moved, strict=True)
    ]


def _row(
    case_id: str, case: pd.DataFrame, base_id: str | None, base: pd.DataFrame, floor: float,
    peaks: Peaks, checks: Mapping[str, Mapping[str, object]],
) -> Row:  # fmt: skip
    good = case[case["status"] == "ok"]
    check = checks.get(case_id, {})
    bad = case[case["status"] != "ok"]
    status = "ok" if bad.empty else str(bad["status"].iloc[0])
    detail = "" if bad.empty else str(bad["detail"].iloc[0] or "")
    if status == "ok" and check.get("status") == "wrong":
        status, detail = "wrong", str(check.get("detail") or "")
    ratio = None
    ratios: dict[int, float] = {}
    says: Verdict | str = ""
    if status == "ok" and case_id == base_id:
        says = "baseline"
    elif status == "ok" and (ratios := ratios_by_block(good, base)):
        ratio = ratio_interval(list(ratios.values()))
        says = verdict(ratio, floor)
    seen = kernels_of(good)
    if status == "ok" and (mixed := next((m for m in (seen, kernels_of(base)) if len(m) > 1), ())):
        says = WITHHELD
        detail = (
            f"blocks ran by different kernels ({'; '.join(mixed)}); measure them again in a "
            "journal of their own"
        )

    def number(name: str) -> float:
        value = check.get(name)
        return float(value) if isinstance(value, float) else math.nan

    return Row(
        case=case_id,
        baseline=base_id,
        columns={str(k): v for k, v in case.iloc[0].items()},
        status=status,
        seconds=float(good["seconds"].median()) if len(good) else math.nan,
        time=ratio,
        floor=floor,
        verdict=says,
        **_memory(case_id, base_id, peaks),
        error=number("error"),
        budget=number("budget"),
        margin=number("margin"),
        verified=not (unverified := _unverified(check)),
        unverified=unverified,
        by_itself=isinstance(check.get("against"), str),
        detail=detail,
        by_block=ratios,
        kernels=seen,
        found_by="" if bad.empty else str(bad["found_by"].iloc[0] or ""),
    )


def says_nothing(peak: float, floor: float) -> bool:
    """Whether no ratio is formed of a peak, for what two readings of it differ by."""
    return peak <= TELLING * floor


def _memory(case: str, base: str | None, peaks: Peaks) -> dict[str, Any]:
    """Peak, ratio and floor of a case, as fields of its row, from peaks and floors by case."""
    if case not in peaks:
        return {"peak_bytes": math.nan, "memory_ratio": math.nan}
    (mine, floor), (other, floor_there) = peaks[case], peaks.get(base or "", (math.nan, math.nan))
    below = says_nothing(mine, floor) or says_nothing(other, floor_there)
    return {
        "peak_bytes": mine,
        "memory_ratio": math.nan if below or not other else mine / other,
        "memory_floor": float(pd.Series([floor, floor_there]).max()),
        "below_floor": below,
    }


def _unverified(check: Mapping[str, object]) -> str:
    """Why a margin's record vouches for nothing; empty if it does."""
    if check.get("status", "ok") != "ok":
        return f"{NOT_VERIFIED}: {check['status']}: {check.get('detail') or ''}"
    if check.get("verdict") == NO_ORACLE:
        return f"{NO_ORACLE}: {check.get('what') or 'its own float64 was not asked'}"
    known = isinstance(margin := check.get("margin"), float) and not math.isnan(margin)
    return "" if known else f"{NOT_VERIFIED}: no error was measured"


def refused_row(case: Case, verdict: str, detail: str) -> Row:
    """The row of a case that was not measured, for what verifying said of its implementation."""
    none = math.nan
    return Row(
        case.id, None, _case_columns(case.id), verdict, none, None, math.inf, "", none, none,
        none, none, none, False, detail, f"{NOT_VERIFIED}: {verdict}",
    )  # fmt: skip


def kernels_of(case: pd.DataFrame) -> tuple[str, ...]:
    """The ways that the blocks of a case were seen to run, in the order of their texts."""
    return tuple(sorted({str(k) for k in case["kernels"].dropna()}))
