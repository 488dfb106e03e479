"""Run mutants, several at a time, each in a child forked from a process that has torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from harness.isolate import Call, Limits, Outcome, run_all
from suites.programs.mutation.draw import Mutant
from suites.programs.mutation.relevance import Ran, relevant
from suites.programs.mutation.store import Store
from suites.programs.mutation.tests import test_files
from suites.programs.mutation.units import Unit, short

PRELOAD = ("torch", "numpy", "pytest", "hypothesis", "suites.programs.mutation.inside")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
BASELINE_SECONDS = 900.0
SLOWER = 3.0
"""A mutant may take so many times what its checks take on the code as it is, and `limit_s`."""
HEAD_ROOM = 4 << 30
"""Bytes that a mutant may allocate."""


def outcomes(tasks: Sequence[Call], workers: int) -> Iterator[tuple[int, Outcome]]:
    """Run tasks; place and outcome of each as it is finished."""
    return run_all(list(enumerate(tasks)), workers, preload=PRELOAD, env=ONE_THREAD)


def baseline(
    units: Sequence[Unit],
    workers: int,
    on_done: Callable[[], None] = lambda: None,
    files: Sequence[str] | None = None,
    store: Store | None = None,
) -> tuple[list[Ran], list[str]]:
    """Time and trace all checks on the code as it is.

    Parameters
    ----------
    units : sequence of Unit
        Whose verifier's checks are wanted.
    workers : int
    on_done : callable
        Called after each of ``len(units) + len(files)`` parts.
    files : sequence of str or None
        Files with tests; None is all of the verify suite.
    store : Store or None
        Where parts that were run before are found again.

    Returns
    -------
    tuple
        What ran, and a line for each check that fails without any mutation: it can't be used.

    Raises
    ------
    UsageError
        If a part can't be run.
    """
    files = test_files() if files is None else files
    # Files first: they take longest.
    calls = [("baseline_tests", {"file": file}) for file in files]
    calls += [("baseline_steps", {"unit": unit.name}) for unit in units]
    parts: list[Mapping[str, Any]] = []
    missing = []
    for name, given in calls:
        [part] = given.values()
        known = store.find(f"unchanged {part}") if store else None
        if known is None:
            missing.append((name, given))
        else:
            parts.append(known)
            on_done()
    limits = Limits(BASELINE_SECONDS)
    tasks = [Call(f"suites.programs.mutation.inside:{call}", g, limits) for call, g in missing]
    for place, outcome in outcomes(tasks, workers):
        on_done()
        [part] = missing[place][1].values()
        if outcome.status != "ok":
            raise UsageError(f"the checks of {part} don't run: {outcome.status}, {outcome.detail}")
        parts.append(outcome.value)
        if store:
            store.add(f"unchanged {part}", "unchanged", outcome.value)
    ran = [
        Ran(
            tuple(row["check"]),
            row["seconds"],
            {file: frozenset(rows) for file, rows in row["lines"].items()},
            bool(row.get("compiles")),
        )
        for part in parts
        for row in part["ran"]
    ]
    return ran, [f"{check}: {detail}" for part in parts for check, detail in part["failed"]]


def run(
    mutants: Sequence[Mutant],
    ran: Sequence[Ran],
    store: Store,
    workers: int,
    limit_s: float,
    on_row: Callable[[Mapping[str, Any]], None],
) -> None:
    """Run mutants and write a line for each.

    Parameters
    ----------
    mutants : sequence of Mutant
    ran : sequence of Ran
        From `baseline`.
    store : Store
    workers : int
        Children at a time.
    limit_s : float
        Seconds that a mutant may take beyond `SLOWER` times what its checks take.
    on_row : callable
        Called with each line.

    Raises
    ------
    UsageError
        If a mutant could not be run.
    """
    tasks: list[Call] = []
    waiting: list[Mutant] = []
    for mutant in mutants:
        file = short(mutant.site.path)
        checks = relevant(ran, file, mutant.before, mutant.site.row)
        if not checks:
            nothing = {"verdict": "survived", "by": "", "detail": "no check runs it", "seconds": 0}
            on_row(store.add_mutant(mutant, nothing))
            continue
        limits = Limits(limit_s + SLOWER * sum(c.seconds for c in checks), HEAD_ROOM)
        given = {"path": file, "source": mutant.source, "checks": [c.check for c in checks]}
        tasks.append(Call("suites.programs.mutation.inside:mutant", given, limits))
        waiting.append(mutant)
    for place, outcome in outcomes(tasks, workers):
        on_row(store.add_mutant(waiting[place], _row(waiting[place], outcome)))


def control(units: Sequence[Unit], ran: Sequence[Ran], workers: int, limit_s: float) -> None:
    """Run the code as it is the way mutants are run: it must survive all checks.

    Raises
    ------
    UsageError
        If it does not: a check that fails by itself would kill every mutant.
    """
    files = {short(path) for unit in units for path in unit.files}
    path = units[0].files[0]
    tasks: list[Call] = []
    for checks in _parts([r for r in ran if not files.isdisjoint(r.lines)], workers):
        limits = Limits(limit_s + SLOWER * sum(c.seconds for c in checks), HEAD_ROOM)
        given = {
            "path": short(path),
            "source": path.read_text(encoding="utf-8"),
            "checks": [c.check for c in checks],
        }
        tasks.append(Call("suites.programs.mutation.inside:mutant", given, limits))
    for _, outcome in outcomes(tasks, workers):
        value = outcome.value or {"verdict": outcome.status, "by": "", "detail": outcome.detail}
        if value["verdict"] != "survived":
            raise UsageError(
                f"the code as it is does not survive: {value['verdict']} by {value['by']}: "
                f"{value['detail']}; mend this check first"
            )


def _parts(ran: Sequence[Ran], workers: int) -> list[list[Ran]]:
    """Checks in parts of about equal time, a few for each worker, kinds and files together."""
    ordered = sorted(ran, key=lambda r: (r.check[0] == "test", r.check[1]))
    each = sum(r.seconds for r in ran) / (4 * workers)
    parts: list[list[Ran]] = []
    taken = math.inf
    for one in ordered:
        if taken >= each:
            parts.append([])
            taken = 0.0
        parts[-1].append(one)
        taken += one.seconds
    return parts


def _row(mutant: Mutant, outcome: Outcome) -> dict[str, Any]:
    """What an outcome says of a mutant: one that ends its process has been noticed too."""
    seconds = round(outcome.seconds, 2)
    if outcome.status == "ok":
        return {**outcome.value, "seconds": seconds}
    if outcome.status == "unsupported" or outcome.error == "NotPlanted":
        raise UsageError(f"{mutant.id} could not be run: {outcome.detail}")
    return {"verdict": outcome.status, "by": "", "detail": outcome.detail, "seconds": seconds}
