"""Two journals compared: by the ratios to the baseline, because the times were taken apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.diff.rows import DiffRow, in_one_only, judged_row
from harness.records.ratios import Row, summarise
from harness.stats import between_sessions, joint_floor, judge

SAYS = (
    "Two journals: only ratios to the baseline {baseline} are compared, each formed inside its own "
    "blocks. The times were taken on different occasions and are not compared; a change that hits "
    "the baseline alike is not seen."
)


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Fields in which two fingerprints differ, with both values."""
    return [
        f"{name} ({one.get(name)!r} and {other.get(name)!r})"
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name)
    ]


def baseline_changed(
    base: Iterable[Mapping[str, Any]], head: Iterable[Mapping[str, Any]], baseline: str
) -> bool:
    """Whether the baseline (or the clock) of two journals is not of the same code."""
    codes = [
        {r.get("code") for r in records if r["kind"] == "time" and _name(r) == baseline}
        for records in (base, head)
    ]
    return codes[0] != codes[1]


def _name(record: Mapping[str, Any]) -> str:
    return str(record["case"]).partition("-B")[0]


def compare(
    base: Sequence[Mapping[str, Any]],
    head: Sequence[Mapping[str, Any]],
    baseline: str,
    heads: int,
) -> list[DiffRow]:
    """Rows of the cases of two journals, by their records of one fingerprint and of current code.

    Ratios are formed to the baseline, ``mechanism.implementation``, with its heads; it is no row.
    """
    before, after = (
        {r.case: r for r in summarise(records, baseline, heads) if r.verdict != "baseline"}
        for records in (base, head)
    )
    both = {case: (before[case], row) for case, row in after.items() if case in before}
    estimates, floors = {}, {}
    for case, (one, two) in both.items():
        estimate = between_sessions(list(one.by_block.values()), list(two.by_block.values()))
        if estimate is not None:
            estimates[case] = estimate
            floors[case] = joint_floor(one.floor, two.floor)
    judged = judge(estimates, floors)
    rows = []
    for case, (one, two) in both.items():
        if case in judged and one.time is not None and two.time is not None:
            rows.append(judged_row(case, one.time.ratio, two.time.ratio, judged[case]))
        else:
            rows.append(_unjudged(case, one, two))
    new, gone = (
        [c for c in one if c not in other] for one, other in ((after, before), (before, after))
    )
    return rows + in_one_only(new, gone)


def _unjudged(case: str, one: Row, two: Row) -> DiffRow:
    if one.status == "ok" and two.status not in ("ok", "unsupported"):
        return DiffRow(case, "broken", detail=f"head: {two.status}: {two.detail}".rstrip(": "))
    if two.status == "ok" and one.status not in ("ok", "unsupported"):
        return DiffRow(case, "mended", detail=f"base: {one.status}: {one.detail}".rstrip(": "))
    if one.status == two.status == "ok":
        detail = "fewer than two blocks with the baseline in either journal"
    else:
        detail = f"base: {one.status}; head: {two.status}"
    return DiffRow(case, "not measured", detail=detail)
