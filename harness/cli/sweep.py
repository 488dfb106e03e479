"""``attnbench sweep``: declare, check, verify, train whatever is missing, tell what failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.cli.executors import make_executor
from harness.cli.output import console, steps, tell_skipped, write_json
from harness.cli.running import do_runs, verified_or_refused
from harness.cli.surroundings import surroundings
from harness.cli.sweep_text import announce, announce_end, failures, print_dry_run, print_table
from harness.errors import UsageError
from harness.experiments.buildable import check, checks
from harness.experiments.costs import Durations
from harness.experiments.design import Surroundings
from harness.experiments.executors import Executor
from harness.experiments.queue import finished
from harness.experiments.sweep import Entry, Part, Sweep, make_sweep, read_file
from harness.measure.device import device_fingerprint
from harness.options import SweepOptions
from harness.records import journal
from harness.registry import Registry
from harness.train.task import Task
from harness.train.task import task as find_task


def read_parts(options: SweepOptions) -> tuple[list[Part], list[str]]:
    """What is swept, from a file or from options; and mechanisms that the file brings."""
    if options.plan is not None:
        return read_file(options.plan)
    part = Part(
        models=options.models,
        tasks=options.tasks,
        seeds=options.seeds,
        folds=options.folds,
        recipe=options.changes,
        vectors=options.vectors,
    )
    return [part], []


def _declare(options: SweepOptions) -> tuple[Sweep, Surroundings]:
    """The sweep, and what its runs share whatever their task."""
    parts, given = read_parts(options)
    registry = Registry([*given, *options.given])
    fingerprint = device_fingerprint(options.device)
    sweep = make_sweep(parts, registry, _around(registry, options, fingerprint))
    if options.data is not None and not any(entry.task.files for entry in sweep.entries):
        raise UsageError(f"--data: {', '.join(sweep.tasks)} draw their own data; leave it out")
    for part in parts:
        if part.vectors is not None and not any(find_task(name).files for name in part.tasks):
            raise UsageError(
                f"--vectors: {', '.join(part.tasks)} draw their own data; leave it out"
            )
    return sweep, Surroundings(registry, fingerprint)


def _around(
    registry: Registry, options: SweepOptions, fingerprint: Mapping[str, Any]
) -> Callable[[Task, str | None], Surroundings]:
    """A function from task and vectors to surroundings: a corpus is read once, for its digest."""
    known: dict[tuple[str, str | None], Surroundings] = {}

    def around(task: Task, vectors: str | None) -> Surroundings:
        if (task.name, vectors) not in known:
            data = options.data if task.files else None
            asked = replace(options, data=data, vectors=vectors if task.files else None)
            known[task.name, vectors] = surroundings(task, registry, asked, fingerprint)
        return known[task.name, vectors]

    return around


def run_sweep(options: SweepOptions) -> int:
    """Do all of it; returns the exit code."""
    out, folder = console(), options.journal
    began = time.monotonic()
    sweep, around = _declare(options)
    known = finished(folder, partial(tell_skipped, out))
    missing = [entry for entry in sweep.entries if entry.run.key not in known]
    if options.dry_run:
        start = time.monotonic() - began
        with make_executor(options, around.fingerprint, len(missing)) as executor:
            workers = executor.workers
            _check(missing, known.values(), executor, out)
        plan = _dry_run(sweep, known, around, folder, workers, start, out)
        write_json(options.json_file, plan)
        return 0
    records = dict(known)
    if missing:
        records |= _train(sweep, missing, known, options, around, folder, out)
    else:
        announce(out, sweep, 0, around.fingerprint, None, folder)
    failed = failures(sweep, records, options)
    print_table(out, sweep, records)
    announce_end(out, sweep, failed, time.monotonic() - began)
    write_json(
        options.json_file,
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
    sweep: Sweep,
    known: Mapping[str, Any],
    around: Surroundings,
    folder: Path,
    workers: int,
    start: float,
    out: Console,
) -> dict[str, Any]:
    records = journal.read(folder).records
    durations = Durations(around.fingerprint, workers, records)
    return print_dry_run(out, sweep, known, durations, start)


def _train(
    sweep: Sweep,
    missing: Sequence[Entry],
    known: Mapping[str, Any],
    options: SweepOptions,
    around: Surroundings,
    folder: Path,
    out: Console,
) -> dict[str, dict[str, Any]]:
    """Do what is missing; its records by key."""
    with make_executor(options, around.fingerprint, len(missing)) as executor:
        announce(out, sweep, len(missing), around.fingerprint, executor.workers, folder)
        _check(missing, known.values(), executor, out)
        _verify(missing, around, folder, out)
        done = do_runs(
            [entry.run for entry in missing],
            around.fingerprint,
            folder,
            executor,
            out,
            [sweep.record(around.fingerprint)],
            strict=False,
            names=sweep.names,
        )
    return {record["key"]: record for record in done}


def _check(missing: Sequence[Entry], known: Any, executor: Executor, out: Console) -> None:
    todo = checks(missing, known)
    with steps(out, "building each model once", len(todo)) as step:
        check(todo, executor, step)


def _verify(missing: Sequence[Entry], around: Surroundings, folder: Path, out: Console) -> None:
    verified_or_refused((entry.run for entry in missing), around, folder, out)
