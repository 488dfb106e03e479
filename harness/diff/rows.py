"""One row per case of a comparison, and what all rows together say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from harness.stats import Difference, Interval, inside_blocks, judge, noise_floor, ratio_interval

Says = Literal[
    "faster", "slower", "same", "undecided", "new", "gone", "broken", "mended", "not measured"
]
SLOWDOWNS: tuple[Says, ...] = ("slower", "broken")
"""What makes the answer no: a case that worked in the base and fails in the head as well."""


@dataclass(frozen=True)
class DiffRow:
    """One case in base and head."""

    case: str
    # ``faster``, ``slower``, ``same``, ``undecided``; ``new`` or ``gone`` where one side has no
    # such case; ``broken``, ``mended`` where it fails in the head, or the base, alone; ``not
    # measured`` where it fails in both, or too few blocks are there.
    verdict: Says
    # base, head: median over blocks: seconds, or the ratio to the baseline where journals are
    # compared; nan where not measured.
    base: float = math.nan
    head: float = math.nan
    # head / base, at the confidence at which Holm's method judges this case.
    ratio: Interval | None = None
    # confidence, p_value, adjusted: of that interval; of a ratio of 1, and adjusted over the cases
    # by Holm.
    confidence: float = math.nan
    p_value: float = math.nan
    adjusted: float = math.nan
    floor: float = math.inf
    detail: str = ""


@dataclass
class _Times:
    """What was measured of one case: by side and block, and how it failed."""

    seconds: dict[str, dict[int, float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def ratios(self, over: str, under: str) -> list[float]:
        """Ratio of two sides in every block that has both."""
        one, other = self.seconds.get(over, {}), self.seconds.get(under, {})
        return [one[block] / other[block] for block in sorted(one.keys() & other.keys())]


def measured(
    records: Iterable[Mapping[str, Any]],
    cases: Sequence[str],
    new: Sequence[str] = (),
    gone: Sequence[str] = (),
) -> list[DiffRow]:
    """Rows of one session of two revisions, by its records of kind ``diff``.

    Ids are of cases that both revisions, only the head, or only the base has.
    """
    times = {case: _Times() for case in cases}
    for r in records:
        one = times[r["case"]]
        if r["status"] == "ok":
            one.seconds.setdefault(r["side"], {})[r["block"]] = r["median"]
        else:
            one.failures[r["side"]] = f"{r['status']}: {r.get('detail', '')}".rstrip(": ")
    estimates, floors = {}, {}
    for case, one in times.items():
        estimate = None if one.failures else inside_blocks(one.ratios("head", "base"))
        if estimate is not None:
            estimates[case] = estimate
            floors[case] = noise_floor(ratio_interval(one.ratios("control", "base")))
    judged = judge(estimates, floors)
    rows = [_row(case, one, judged.get(case)) for case, one in times.items()]
    return rows + in_one_only(new, gone)


def judged_row(case: str, base: float, head: float, difference: Difference) -> DiffRow:
    """Row of a case that was measured in both."""
    d = difference
    return DiffRow(
        case, d.verdict, base, head, d.ratio, d.confidence, d.p_value, d.adjusted, d.floor
    )


def in_one_only(new: Iterable[str], gone: Iterable[str]) -> list[DiffRow]:
    """Rows of cases that one side has not."""
    return [DiffRow(case, "new") for case in new] + [DiffRow(case, "gone") for case in gone]


def _row(case: str, one: _Times, difference: Difference | None) -> DiffRow:
    base, head = (
        median(one.seconds[side].values()) if one.seconds.get(side) else math.nan
        for side in ("base", "head")
    )
    if difference is not None:
        return judged_row(case, base, head, difference)
    # The base runs under two names; either failing is the base's.
    before = one.failures.get("base") or one.failures.get("control")
    after = one.failures.get("head")
    told = {"base": before, "head": after}
    if before == after:
        told = {"both": after}
    detail = "; ".join(f"{label}: {text}" for label, text in told.items() if text)
    verdict: Says = "not measured"
    if after and not before and not after.startswith("unsupported"):
        verdict = "broken"
    elif before and not after and not before.startswith("unsupported"):
        verdict = "mended"
    elif not detail:
        detail = "fewer than two blocks"
    return DiffRow(case, verdict, base, head, detail=detail)


def compared(rows: Iterable[DiffRow]) -> list[DiffRow]:
    """Rows that have a ratio."""
    return [row for row in rows if row.ratio is not None]


def exit_code(rows: Sequence[DiffRow]) -> int:
    """0 fine; 1 something is slower or broken; 3 nothing comparable was measured."""
    if any(row.verdict in SLOWDOWNS for row in rows):
        return 1
    return 0 if compared(rows) else 3


def closing(rows: Sequence[DiffRow], base: str, head: str) -> str:
    """What the rows say of two sides that are called so, in a sentence or a few."""
    judged = compared(rows)
    parts = []
    if judged:
        floor = max(row.floor for row in judged)
        known = f"noise floor {floor - 1:.1%} at most"
        beyond = "the noise floor is not known" if math.isinf(floor) else known
        family = "Holm over the cases at 5 %" if len(judged) > 1 else "at 5 %"
        slower = sorted(_of(judged, "slower"), key=lambda row: -row.ratio.ratio if row.ratio else 0)
        parts.append(
            f"{len(slower) or 'none'} of {len(judged)} cases {'is' if len(slower) < 2 else 'are'} "
            f"slower in {head} than in {base}, beyond the noise ({beyond}, {family})"
            + (": " if slower else "")
            + "; ".join(f"{row.case} {row.ratio}" for row in slower)
        )
        counts = {v: len(_of(judged, v)) for v in ("faster", "same", "undecided")}
        parts.append(
            f"{counts['faster']} faster, {counts['same']} the same within 5 %, "
            f"{counts['undecided']} undecided"
            + ("; more blocks decide more" if counts["undecided"] else "")
        )
    else:
        parts.append(f"nothing of {head} could be compared with {base}")
    kinds: tuple[tuple[Says, str], ...] = (
        ("broken", f"fail in {head} and worked in {base}"),
        ("mended", f"failed in {base} and work in {head}"),
        ("new", f"only in {head}"),
        ("gone", f"only in {base}"),
    )
    parts += [f"{len(_of(rows, v))} {text}" for v, text in kinds if _of(rows, v)]
    return ". ".join(parts) + "."


def _of(rows: Iterable[DiffRow], verdict: str) -> list[DiffRow]:
    return [row for row in rows if row.verdict == verdict]
