"""Run mutants, several at a time, each in a child forked from a process that has torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import UsageError
from harness.isolate import Call, Limits, Outcome, run_all
from harness.records import journal, schema
from suites.programs.mutation.draw import Mutant, Unit, short, state
from suites.programs.mutation.inside import INTERPRETED, test_files
from suites.programs.mutation.relevance import TEST, Ran, relevant

KIND = "mutant"
FOLDER = Path("results") / "mutants"


class Store:
    """Results in one journal, which is begun when something is written."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._found = journal.read(folder).finished()
        self._writer: journal.Writer | None = None

    def find(self, id: str) -> dict[str, Any] | None:
        """What an earlier run found of a mutant, or of a part of the checks."""
        return self._found.get(_key(id))

    def add(self, id: str, told: Mapping[str, Any]) -> dict[str, Any]:
        """Write one record, and return it."""
        self._writer = self._writer or journal.Writer(self._folder, {"purpose": "mutants"})
        row = self._writer.append({"kind": KIND, "key": _key(id), "id": id, **told})
        self._found[row["key"]] = row
        return row

    def add_mutant(self, mutant: Mutant, outcome: Mapping[str, Any]) -> dict[str, Any]:
        """Write what became of a mutant."""
        gone, come = mutant.change
        site = mutant.site
        place = {"file": short(site.path), "row": site.row, "operator": site.operator}
        return self.add(mutant.id, {**place, "line": gone, "becomes": come, **outcome})


def _key(id: str) -> str:
    return schema.digest([KIND, id, state()])


T = TypeVar("T")
INSIDE = "suites.programs.mutation.inside"
PRELOAD = ("torch", "numpy", "pytest", "hypothesis", INSIDE)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
BASELINE_SECONDS = 900.0
SLOWER = 3.0
"""A mutant may take so many times what its checks take on the code as it is, and `limit_s`."""
HEAD_ROOM = 4 << 30
"""Bytes that a mutant may allocate."""


def outcomes(tasks: Sequence[tuple[T, Call]], workers: int) -> Iterator[tuple[T, Outcome]]:
    """Run tasks; what each is for, and its outcome, as it is finished."""
    return run_all(tasks, workers, preload=PRELOAD, env=ONE_THREAD)


def baseline(
    units: Sequence[Unit],
    workers: int,
    store: Store,
    on_done: Callable[[], None] = lambda: None,
    files: Sequence[str] | None = None,
) -> tuple[list[Ran], list[str]]:
    """Time and trace all checks on the code as it is.

    The verifier's checks are those of some units, the tests those of some files (None: of all of
    the verify suite); ``on_done`` is called after each part, one that is found in the store too.
    Returns what ran, and a line for each check that fails without any mutation: it can't be used.

    Raises
    ------
    UsageError
        If a part can't be run.
    """
    files = test_files() if files is None else files
    limits = Limits(BASELINE_SECONDS)
    # Files first: they take longest.
    calls = {file: Call(f"{INSIDE}:baseline_tests", {"file": file}, limits) for file in files}
    for unit in units:
        calls[unit.name] = Call(f"{INSIDE}:baseline_steps", {"unit": unit.name}, limits)
    found = {part: store.find(f"unchanged {part}") for part in calls}
    parts: list[Mapping[str, Any]] = []
    for known in filter(None, found.values()):
        parts.append(known)
        on_done()
    todo = [(part, call) for part, call in calls.items() if found[part] is None]
    for part, outcome in outcomes(todo, workers):
        on_done()
        if outcome.status != "ok":
            raise UsageError(f"the checks of {part} don't run: {outcome.status}, {outcome.detail}")
        parts.append(store.add(f"unchanged {part}", outcome.value))
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
    """Run mutants by what `baseline` says, so many at a time, and write a line for each.

    A mutant may take ``limit_s`` seconds beyond `SLOWER` times what its checks take.

    Raises
    ------
    UsageError
        If a mutant could not be run.
    """
    left: dict[str, list[list[Ran]]] = {}
    for mutant in mutants:
        checks = relevant(ran, short(mutant.site.path), mutant.before, mutant.site.row)
        left[mutant.id] = [some for some in _by_process(checks) if some]
        if not checks:
            nothing = {"verdict": "survived", "by": "", "detail": "no check runs it", "seconds": 0}
            on_row(store.add_mutant(mutant, nothing))
    while todo := [mutant for mutant in mutants if left[mutant.id]]:
        tasks = [(m, _task(m.site.path, m.source, left[m.id].pop(0), limit_s)) for m in todo]
        for mutant, outcome in outcomes(tasks, workers):
            row = _row(mutant, outcome)
            if row["verdict"] != "survived" or not left[mutant.id]:
                left[mutant.id] = []
                on_row(store.add_mutant(mutant, row))


def control(units: Sequence[Unit], ran: Sequence[Ran], workers: int, limit_s: float) -> None:
    """Run the code as it is the way mutants are run: it must survive all checks.

    Raises
    ------
    UsageError
        If it does not: a check that fails by itself would kill every mutant.
    """
    files = {short(path) for unit in units for path in unit.files}
    path = units[0].files[0]
    source = path.read_text(encoding="utf-8")
    concerned = [r for r in ran if not files.isdisjoint(r.lines)]
    tasks = [
        (0, _task(path, source, part, limit_s))
        for some in _by_process(concerned)
        for part in _parts(some, workers)
    ]
    for _, outcome in outcomes(tasks, workers):
        value = outcome.value or {"verdict": outcome.status, "by": "", "detail": outcome.detail}
        if value["verdict"] != "survived":
            raise UsageError(
                f"the code as it is does not survive: {value['verdict']} by {value['by']}: "
                f"{value['detail']}; mend this check first"
            )


def _by_process(checks: Sequence[Ran]) -> tuple[list[Ran], list[Ran]]:
    """Checks that run as they are, and those that need Triton's interpreter."""
    parts: tuple[list[Ran], list[Ran]] = [], []
    for one in checks:
        parts[one.check[:2] == (TEST, INTERPRETED)].append(one)
    return parts


def _task(path: Path, source: str, checks: Sequence[Ran], limit_s: float) -> Call:
    """Run checks on a file's other text."""
    limits = Limits(limit_s + SLOWER * sum(c.seconds for c in checks), HEAD_ROOM)
    given = {"path": short(path), "source": source, "checks": [c.check for c in checks]}
    return Call(f"{INSIDE}:mutant", given, limits)


def _parts(ran: Sequence[Ran], workers: int) -> list[list[Ran]]:
    """Checks in parts of about equal time, a few for each worker, kinds and files together."""
    ordered = sorted(ran, key=lambda r: (r.check[0] == TEST, r.check[1]))
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
