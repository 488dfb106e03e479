"""What a reader of a comparison must be told beside its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

UNEQUAL = 1.01
"""Parameter counts further apart than this are unequal."""

Pairs = Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]


def warnings_of(
    design: Mapping[str, Any], pairs: Pairs, records: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """All warnings of a comparison, one line each.

    Parameters
    ----------
    design : mapping
        Its record.
    pairs : sequence of (record or None, record or None)
        Runs by seed, in the order of the design.
    records : sequence of mapping
        The whole journal: earlier designs of the same question, and what was concluded from them.
    """
    return (
        *_missing(design, pairs),
        *_parameters(design, pairs),
        *_recipes(design),
        *_split(design),
        *_looked(design, records),
    )


def _missing(design: Mapping[str, Any], pairs: Pairs) -> list[str]:
    out = []
    failed: Counter[tuple[str, str]] = Counter()
    absent = 0
    for pair in pairs:
        for model, run in zip(design["models"], pair, strict=True):
            if run is None:
                absent += 1
            elif run["status"] != "ok":
                failed[model, run["status"]] += 1
    for (model, status), count in failed.items():
        what = "diverged" if status == "diverged" else f"failed ({status})"
        out.append(
            f"{count} of {len(pairs)} runs of {model} {what}: a comparison of the others "
            "flatters it"
        )
    if absent:
        out.append(f"{absent} of {2 * len(pairs)} runs are missing")
    good = sum(a is not None and b is not None and a["status"] == b["status"] == "ok"
               for a, b in pairs)  # fmt: skip
    if good < len(pairs):
        out.append(f"{len(pairs) - good} of {len(pairs)} pairs are incomplete and left out")
    return out


def _parameters(design: Mapping[str, Any], pairs: Pairs) -> list[str]:
    counts = []
    for side in (0, 1):
        known = [pair[side] for pair in pairs if pair[side] is not None]
        found = [r["parameters"] for r in known if r is not None and "parameters" in r]
        if not found:
            return []
        counts.append(int(found[0]))
    ratio = max(counts) / max(1, min(counts))
    if ratio <= UNEQUAL:
        return []
    hint = (
        "as near as a width divisible by the heads allows"
        if design["match"] == "parameters"
        else "--match parameters narrows the larger model"
    )
    return [
        f"unequal parameters: {design['models'][0]} has {counts[0]:,}, {design['models'][1]} "
        f"{counts[1]:,} ({ratio:.2f}x), word vectors not counted; {hint}"
    ]


def _recipes(design: Mapping[str, Any]) -> list[str]:
    first, second = design["recipes"]
    out = []
    if first["tuning_trials"] != second["tuning_trials"]:
        out.append(
            f"unequal tuning budgets: {first['tuning_trials']} recipes were tried for "
            f"{design['models'][0]}, {second['tuning_trials']} for {design['models'][1]}"
        )
    ignored = {"tuning_trials"} | ({"width"} if design["match"] == "parameters" else set())
    unequal = [
        f"{name} {first[name]} and {second[name]}"
        for name in first
        if name not in ignored and first[name] != second[name]
    ]
    if unequal:
        out.append(f"the recipes differ: {', '.join(unequal)}")
    return out


def _split(design: Mapping[str, Any]) -> list[str]:
    out = []
    if any(recipe["choose"] == "best-on-test" for recipe in design["recipes"]):
        out.append(
            "best over time on the test set: the epoch was chosen by the number that is reported "
            "(the papers' way), which is too good"
        )
    if design["one_test_set"]:
        out.append(
            "all runs are tested on one and the same test set: the interval covers seeds, not the "
            "choice of test examples"
        )
    return out


def _looked(design: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Seeds or margin changed after results of the same question had been seen."""
    seen: dict[str, Mapping[str, Any]] = {}
    for r in sorted(records, key=lambda r: str(r.get("at"))):
        if r["kind"] == "verdict":
            seen.setdefault(r["design"], r)  # the first look counts
    earlier = [
        r
        for r in records
        if r["kind"] == "design"
        and r["question"] == design["question"]
        and r["key"] != design["key"]
        and r["key"] in seen
        and str(seen[r["key"]]["at"]) < str(design.get("at"))
    ]
    out = []
    seeds = sorted({tuple(r["seeds"]) for r in earlier if r["seeds"] != design["seeds"]})
    if seeds:
        counts = ", ".join(str(len(s)) for s in seeds)
        out.append(
            f"seeds changed after looking: results were seen with {counts}, now there are "
            f"{len(design['seeds'])}; the p-value and the interval don't allow for that"
        )
    if any(r["margin"] != design["margin"] for r in earlier):
        out.append("the margin was changed after results had been seen")
    if before := _trained_before(design, records):
        out.append(
            f"{before} runs were trained, and their test metrics shown, before this design was "
            "declared"
        )
    return out


def _trained_before(design: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> int:
    """Runs of a design that are older than every design and every sweep that asked for them.

    A sweep shows no test metric.
    """
    declared = str(design.get("at"))
    mine = {key for pair in design["runs"] for key in pair}
    earlier = [r for r in records if str(r.get("at")) < declared]
    asked = {key for r in earlier if r["kind"] == "design" for pair in r["runs"] for key in pair}
    asked |= {str(key) for r in earlier if r["kind"] == "sweep" for key in r["runs"]}
    return sum(
        r["kind"] == "run" and r["key"] in mine - asked and str(r.get("at")) < declared
        for r in records
    )
