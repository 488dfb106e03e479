"""What the machine could do at most, as measured in a session, and each row's share of it.

Nothing here is a number from a data sheet: the ceilings are the best of the session's own
``peaks`` records, taken by `harness.measure.roofline` in every block under the settings of the
cases. A row above its ceiling is a fault somewhere, and is shown as one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.case import Case, Problem, parse, setting, size_of, unique
from harness.records.ratios import WITHHELD, Row
from reference_impls.mechanism import Mechanism

GAUGE = "roofline"
"""Stands in the place of a mechanism's name in the id of a gauge."""
MOST = 1.05
"""Share of a ceiling above which a row can't be right; the rest is the clock's noise."""
COUNTED, NOT_COUNTED = "torch's counter", "nothing could be counted"
"""`Row.operations_by`, where no formula says them."""
LAUNCH_SHARE = 0.5
"""A row is near the launch floor if at least this share of its time is launching."""


def gauge_of(case: Case) -> Case:
    """What is measured to find the ceilings of a case, written as a case.

    Two cases have one gauge if dtype, device, threads and TF32 are alike: what decides how fast a
    product can be. Compiling and graph replay don't.
    """
    p = case.problem

    def matters(name: str) -> bool:
        one = setting(name)
        tf32 = one.tf32 and p.dtype == "f32"
        return p.device in one.devices and bool(one.threads or tf32)

    settings = tuple(name for name in case.own_settings if matters(name))
    return Case(GAUGE, "peaks", Problem(0, 0, 0, 0, 0, p.dtype, "forward", p.device), settings)


def gauges(cases: Iterable[Case]) -> list[Case]:
    """The gauges of some cases, each once."""
    return unique(gauge_of(case) for case in cases)


@dataclass(frozen=True)
class Ceiling:
    """The session's best under one gauge.

    Attributes
    ----------
    operations : float
        Floating-point operations per second of the fastest matrix product of all blocks; a
        multiply-add is two.
    bytes, cached_bytes : float
        Bytes per second of the fastest copy (read and written count) or read of all blocks, and of
        the fastest copy of any size; infinite where that was not measured.
    cache_bytes : float
        What may stay in the caches from one pass to the next; infinite where it is not known.
    launch_seconds, graph_launch_seconds : float
        Launching the smallest operation, eager and in a replayed CUDA graph: medians over blocks.
    """

    operations: float
    bytes: float
    cached_bytes: float
    cache_bytes: float
    launch_seconds: float
    graph_launch_seconds: float


def ceilings(records: Iterable[Mapping[str, Any]]) -> dict[str, Ceiling]:
    """Ceilings by the id of their gauge, from the ``peaks`` records of all blocks."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for r in records:
        if r["kind"] == "peaks" and r["status"] == "ok":
            groups.setdefault(str(r["case"]), []).append(r)
    return {gauge: _ceiling(group) for gauge, group in groups.items()}


def _ceiling(group: Sequence[Mapping[str, Any]]) -> Ceiling:
    caches: list[Any] = [r.get("cache_bytes") for r in group]
    graphs = [r["graph_launch_seconds"] for r in group if r.get("graph_launch_seconds")]
    return Ceiling(
        operations=max(r["gemm_operations_per_second"] for r in group),
        bytes=max(max(r["copy_bytes_per_second"], r["read_bytes_per_second"]) for r in group),
        cached_bytes=max(r.get("cached_bytes_per_second") or math.inf for r in group),
        cache_bytes=math.inf if None in caches else max(caches),
        launch_seconds=statistics.median(r["launch_seconds"] for r in group),
        graph_launch_seconds=statistics.median(graphs) if graphs else math.nan,
    )


@dataclass(frozen=True)
class Work:
    """What one pass of a case has to do; nan where no formula says it.

    Attributes
    ----------
    operations : float
        By the mechanism's formula: matrix products, a multiply-add as two operations (mechanisms
        with work for every pair and feature count that too); training is forward and backward.
    bytes : float
        Least traffic of any implementation: input and weights read once, the output written once;
        in training also the output's gradient read, those of input and weights written. What an
        implementation holds in between may never leave the caches and does not count.
    outside : float
        Of these, input and output: what no record of the mechanism need say.
    """

    operations: float
    bytes: float
    outside: float = math.nan


def work_of(mechanism: Mechanism | None, case: Case) -> Work:
    """The work of a case, by its mechanism's formulas, or its implementation's own.

    With options of the user's own that the formulas do not read both are nan, and with padding,
    of which they know nothing.
    """
    if mechanism is None or case.run_settings().padded:
        return Work(math.nan, math.nan)
    size = size_of(case)
    each = size.item_bytes * (2 if size.training else 1)
    outside = float(each * (size.inputs + math.prod(case.problem.output_shape(mechanism.output))))
    if {name for name, _ in case.options} - {*mechanism.formula_options}:
        return Work(math.nan, math.nan, outside)
    own = [i.operations for i in mechanism.implementations if i.name == case.implementation]
    formula = next(filter(None, own), mechanism.operations)
    operations = float(formula(size)) if formula else math.nan
    weights = float(mechanism.parameters(size)) if mechanism.parameters else math.nan
    return Work(operations, outside + each * weights, outside)


def with_shares(
    rows: Sequence[Row],
    records: Sequence[Mapping[str, Any]],
    mechanisms: Mapping[str, Mechanism],
    skip: Collection[str] = (),
) -> list[Row]:
    """Rows with their operations, their shares of the ceilings, and marks near the launch floor.

    A row above `MOST` of a ceiling keeps its numbers, loses its verdict and says why in `detail`;
    so do the rows that were compared with it. Where no formula says the operations those count
    that torch counted, if it could. A mechanism that is not among those given has no shares.
    Checks of `harness.measure.checks.CHECKS` that are in `skip` are left out.
    """
    known = ceilings(records)

    def told(kind: str, name: str) -> dict[str, float]:
        found = ((str(r["case"]), r.get(name)) for r in records if r["kind"] == kind)
        return {case: float(value) for case, value in found if value is not None}

    launches, counted = told("memory", "launches"), told("time", "operations")
    shared = [_with_share(row, known, launches, mechanisms, counted, skip) for row in rows]
    impossible = {row.case for row in shared if row.verdict == WITHHELD}
    for place, row in enumerate(shared):
        if row.verdict not in ("", WITHHELD) and row.baseline in impossible:
            detail = f"compared with {row.baseline}, whose time can't be right"
            shared[place] = replace(row, verdict=WITHHELD, detail=detail)
    return shared


def _with_share(
    row: Row,
    known: Mapping[str, Ceiling],
    launches: Mapping[str, float],
    mechanisms: Mapping[str, Mechanism],
    counted: Mapping[str, float],
    skip: Collection[str],
) -> Row:
    case = parse(row.case)
    ceiling = known.get(gauge_of(case).id)
    work = work_of(mechanisms.get(case.mechanism), case)
    if math.isnan(work.operations) and case.id in counted:
        number = counted[case.id]
        row = replace(row, operations_by=COUNTED if number else NOT_COUNTED)
        work = replace(work, operations=number or math.nan)
    base = None if row.baseline is None else parse(row.baseline)
    if base is not None:
        least = work_of(mechanisms.get(base.mechanism), base).operations
        row = replace(row, operations_ratio=work.operations / least if least else math.nan)
    if row.status != "ok" or ceiling is None or math.isnan(row.seconds):
        return row
    row = replace(
        row,
        operations_per_second=work.operations / row.seconds,
        compute_share=work.operations / row.seconds / ceiling.operations,
        bandwidth_share=work.bytes / row.seconds / ceiling.bytes,
        near_floor=_launching(case, ceiling, launches) >= LAUNCH_SHARE * row.seconds,
    )
    for check, reason in _impossible(row, work, ceiling):
        if check not in skip:
            return replace(row, verdict=WITHHELD, detail=reason, found_by=check)
    return row


def _launching(case: Case, ceiling: Ceiling, launches: Mapping[str, float]) -> float:
    """Seconds that launching alone takes; of a pass that was not counted, one launch."""
    settings = case.run_settings()
    eager = replace(case, settings=tuple(s for s in case.settings if not setting(s).graphed))
    seconds = ceiling.graph_launch_seconds if settings.graphed else ceiling.launch_seconds
    return (launches.get(eager.id) or 1) * seconds


def _impossible(row: Row, work: Work, ceiling: Ceiling) -> Iterator[tuple[str, str]]:
    """Why a row can't be right, and by which check; nothing if it can."""
    faults = "a wrong formula, a wrong clock, or work that was not done"
    if row.compute_share > MOST:
        yield (
            "operations",
            f"{work.operations / row.seconds:.3g} operations per second are "
            f"{100 * row.compute_share:.0f} % of the session's best matrix product: {faults}",
        )
    # What stays in the caches between two passes need not move.
    share = (work.bytes - ceiling.cache_bytes) / row.seconds / ceiling.bytes
    if share > MOST:
        yield (
            "bound",
            f"at least {work.bytes / row.seconds:.3g} bytes per second are {100 * share:.0f} % "
            f"of the session's best copy, caches taken off: {faults}",
        )
    # It must move to the core and back all the same.
    least = work.outside / ceiling.cached_bytes
    if row.seconds * MOST < least:
        yield (
            "bound",
            f"reading the input and writing the output alone takes {least:.3g} s at the session's "
            f"best copy in any cache, {ceiling.cached_bytes:.3g} bytes per second; it took "
            f"{row.seconds:.3g} s",
        )


def impossible(rows: Iterable[Row]) -> list[str]:
    """One line for every row whose verdict is withheld, and why."""
    return [
        f"{row.case}: verdict withheld: {row.detail}" for row in rows if row.verdict == WITHHELD
    ]
