"""``attnbench sweep``: declare, check, verify, train whatever is missing, tell what failed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.cli.executing import check_executor, make_executor
from harness.cli.output import check_json, console, tell_skipped, write_json
from harness.cli.running import do_runs, journal_folder, surroundings, verified_or_refused
from harness.cli.sweep_text import announce, announce_end, failures, print_dry_run, print_table
from harness.cli.verifying import progress_bar
from harness.errors import UsageError
from harness.experiments.buildable import check, checks
from harness.experiments.costs import Durations
from harness.experiments.design import Surroundings
from harness.experiments.executors import Executor
from harness.experiments.session import finished
from harness.experiments.sweep import Entry, Part, Sweep, make_sweep, read_file
from harness.records import journal
from harness.registry import Registry
from harness.train.task import Task
from harness.train.task import task as find_task

CROSSED = ("models", "tasks", "seeds", "folds", "recipe", "choose", "vectors")
"""Options that a file has instead."""
_COMMAS = re.compile(r",(?![^\[]*\])")
"""Those outside of brackets."""


def split_names(text: str, option: str) -> tuple[str, ...]:
    """Names joined by commas; those inside of brackets belong to a name.

    Raises
    ------
    UsageError
        If one is empty.
    """
    names = tuple(name.strip() for name in _COMMAS.split(text))
    if not all(names):
        raise UsageError(f"{option}: given {text!r}; expected names joined by commas")
    return names


def read_parts(values: Mapping[str, Any]) -> tuple[list[Part], list[str]]:
    """What is swept, from a file or from options; and mechanisms that the file brings.

    Raises
    ------
    UsageError
        If it is neither, or both.
    """
    from harness.cli.comparing_options import read_seeds

    given = [name for name in CROSSED if values[name]]
    if values["plan"] is not None:
        if given:
            raise UsageError(
                f"--{given[0]} beside {values['plan']}: write it into the file, or leave out one"
            )
        return read_file(Path(values["plan"]))
    for name in ("models", "tasks"):
        if not values[name]:
            raise UsageError(
                f"no --{name}; expected e.g. sweep --models mtsa,multi_head --tasks "
                "trec,sick_relatedness, or a TOML file"
            )
    recipe = list(values["recipe"])
    if values["choose"] is not None:
        recipe.append(f"choose={values['choose']}")
    return [
        Part(
            models=split_names(values["models"], "--models"),
            tasks=split_names(values["tasks"], "--tasks"),
            seeds=None if values["seeds"] is None else tuple(read_seeds(values["seeds"])),
            folds=values["folds"],
            recipe=tuple(recipe),
            vectors=values["vectors"],
        )
    ], []


def _declare(values: Mapping[str, Any]) -> tuple[Sweep, Surroundings]:
    """The sweep, and what its runs share whatever their task."""
    from suites.bench.setup import device_fingerprint

    parts, given = read_parts(values)
    registry = Registry([*given, *values["given"]])
    fingerprint = device_fingerprint(values["device"])
    sweep = make_sweep(parts, registry, _around(registry, values, fingerprint))
    if values["data"] is not None and not any(entry.task.files for entry in sweep.entries):
        raise UsageError(f"--data: {', '.join(sweep.tasks)} draw their own data; leave it out")
    for part in parts:
        if part.vectors is not None and not any(find_task(name).files for name in part.tasks):
            raise UsageError(
                f"--vectors: {', '.join(part.tasks)} draw their own data; leave it out"
            )
    return sweep, Surroundings(registry, fingerprint)


def _around(
    registry: Registry, values: Mapping[str, Any], fingerprint: Mapping[str, Any]
) -> Callable[[Task, str | None], Surroundings]:
    """A function from task and vectors to surroundings: a corpus is read once, for its digest."""
    known: dict[tuple[str, str | None], Surroundings] = {}

    def around(task: Task, vectors: str | None) -> Surroundings:
        if (task.name, vectors) not in known:
            own = {"data": values["data"], "vectors": vectors} if task.files else {}
            asked = {"data": None, "vectors": None, **own}
            known[task.name, vectors] = surroundings(task, registry, asked, fingerprint)
        return known[task.name, vectors]

    return around


def run_sweep(values: dict[str, Any], json_file: str | None) -> int:
    """Do all of it; returns the exit code."""
    out = console()
    check_json(json_file)
    check_executor(values)
    began = time.monotonic()
    folder = journal_folder(values["journal"])
    sweep, around = _declare(values)
    known = finished(folder, partial(tell_skipped, out))
    missing = [entry for entry in sweep.entries if entry.run.key not in known]
    if values["dry_run"]:
        start = time.monotonic() - began
        with make_executor(values, around.fingerprint, len(missing)) as executor:
            workers = executor.workers
            _check(missing, known.values(), executor, out)
        plan = _dry_run(sweep, known, around, folder, workers, start, out)
        write_json(json_file, plan)
        return 0
    records = dict(known)
    if missing:
        records |= _train(sweep, missing, known, values, around, folder, out)
    else:
        announce(out, sweep, 0, around.fingerprint, None, folder)
    failed = failures(sweep, records, values)
    print_table(out, sweep, records)
    announce_end(out, sweep, failed, time.monotonic() - began)
    write_json(
        json_file,
        {
            "sweep": sweep.record(around.fingerprint)["key"],
            "runs": len(sweep.entries),
            "trained": len(missing),
            "seconds": time.monotonic() - began,
            "failures": failed,
        },
    )
    return 1 if failed else 0


def _dry_run(
    sweep: Sweep, known: Mapping[str, Any], around: Surroundings, folder: Path, workers: int,
    start: float, out: Console,
) -> dict[str, Any]:  # fmt: skip
    records = journal.read(folder).records
    durations = Durations(around.fingerprint, workers, records)
    return print_dry_run(out, sweep, known, durations, start)


def _train(
    sweep: Sweep, missing: Sequence[Entry], known: Mapping[str, Any], values: Mapping[str, Any],
    around: Surroundings, folder: Path, out: Console,
) -> dict[str, dict[str, Any]]:  # fmt: skip
    """Do what is missing; its records by key."""
    with make_executor(values, around.fingerprint, len(missing)) as executor:
        announce(out, sweep, len(missing), around.fingerprint, executor.workers, folder)
        _check(missing, known.values(), executor, out)
        _verify(missing, around, folder, out)
        done = do_runs(
            [entry.run for entry in missing], around.fingerprint, folder, executor, out,
            [sweep.record(around.fingerprint)], strict=False, names=sweep.names,
        )  # fmt: skip
    return {record["key"]: record for record in done}


def _check(missing: Sequence[Entry], known: Any, executor: Executor, out: Console) -> None:
    todo = checks(missing, known)
    with progress_bar(out) as bar:
        task = bar.add_task("building each model once", total=len(todo))
        check(todo, executor, lambda: bar.advance(task))


def _verify(missing: Sequence[Entry], around: Surroundings, folder: Path, out: Console) -> None:
    verified_or_refused((entry.run for entry in missing), around, folder, out)
