"""``attnbench sweep``: declare, check, verify, train whatever is missing, tell what failed.

What is told is what there is to do, how long it takes, and what failed; no metric.
"""

from __future__ import annotations

import shlex
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from harness.cli.output import bare_table, console, duration, say, steps, tell_skipped
from harness.cli.running import do_runs, verified_or_refused
from harness.errors import UsageError
from harness.experiments.buildable import check, checks
from harness.experiments.costs import Durations, run_seconds, wall_seconds
from harness.experiments.executors import Executor
from harness.experiments.executors.local import GPU_WORKERS, local_executor, workers_for
from harness.experiments.queue import SETTLED, finished
from harness.experiments.sweep import Entry, Sweep, sweep_of
from harness.json_file import write_json
from harness.options.train import SweepOptions
from harness.records import journal
from harness.records.sharing import at_work

RETRIES = 3
MOST_NAMED = 4
"""Of the pairs of model and task whose time is not known yet."""


def run_sweep(options: SweepOptions) -> int:
    """Do all of it; returns the exit code."""
    out, folder = console(), options.journal
    began = time.monotonic()
    sweep, around = sweep_of(options)
    known = finished(folder, partial(tell_skipped, out))
    missing = [entry for entry in sweep.entries if entry.run.key not in known]
    if options.dry_run:
        start = time.monotonic() - began
        with make_executor(options, around.fingerprint, len(missing)) as executor:
            workers = executor.workers
            _check(missing, known.values(), executor, out)
        durations = Durations(around.fingerprint, workers, journal.read(folder).records)
        write_json(options.json_file, print_dry_run(out, sweep, known, durations, start))
        return 0
    records = dict(known)
    declared = sweep.record(around.fingerprint)
    if missing:
        with (
            make_executor(options, around.fingerprint, len(missing)) as executor,
            at_work(folder, "sweep", alone=False),
        ):
            _announce(out, sweep, len(missing), around.fingerprint, executor.workers, folder)
            _check(missing, known.values(), executor, out)
            runs = [entry.run for entry in missing]
            verified_or_refused(runs, around, folder, out)
            where = around.fingerprint, folder, executor, out
            done = do_runs(runs, *where, [declared], strict=False, names=sweep.names)
        records |= {record["key"]: record for record in done}
    else:
        _announce(out, sweep, 0, around.fingerprint, None, folder)
    failed = failures(sweep, records, options)
    print_table(out, sweep, records)
    for failure in failed:
        say(out, f"{failure['run']}: {failure['status']}: {failure['detail']}", "red")
        say(out, f"  {failure['command']}")
    total, seconds = len(sweep.entries), time.monotonic() - began
    good = f"{total - len(failed)} of {total} runs are ok, {len(failed)} failed"
    say(out, f"{good}; {duration(seconds)}")
    told = {"sweep": declared["key"], "runs": total, "trained": len(missing), "seconds": seconds}
    write_json(options.json_file, {**told, "failures": failed})
    return 1 if failed else 0


def make_executor(options: SweepOptions, fingerprint: Mapping[str, Any], runs: int) -> Executor:
    """The executor of a sweep for so many runs; to be entered.

    Raises
    ------
    UsageError
        If the device has not got what was asked for.
    """
    cuda = fingerprint["device"] == "cuda"
    if options.executor == "ray":
        from harness.experiments.executors.ray import RayExecutor

        gpus = options.gpus_per_run
        return RayExecutor(
            fingerprint,
            address=options.address or "auto",
            cpus=options.cpus_per_run or 1.0,
            gpus=(1 / GPU_WORKERS if cuda else 0.0) if gpus is None else gpus,
            retries=RETRIES if options.retries is None else options.retries,
        )
    per_gpu = options.per_gpu
    if not cuda and per_gpu is not None:
        raise UsageError("--per-gpu: this sweep is on the CPU; --jobs says how many at a time")
    workers = workers_for(options.jobs or 0, fingerprint, per_gpu)
    return local_executor(fingerprint, max(1, min(workers, runs)), per_gpu)


def _check(missing: Sequence[Entry], known: Any, executor: Executor, out: Console) -> None:
    todo = checks(missing, known)
    with steps(out, "building each model once", len(todo)) as step:
        check(todo, executor, step)


def _announce(
    out: Console,
    sweep: Sweep,
    missing: int,
    fingerprint: Mapping[str, Any],
    workers: int | None,
    folder: Path,
) -> None:
    """One line before anything is done; `workers` None where nothing is."""
    total = len(sweep.entries)
    have = f", {total - missing} of them already there" if missing < total else ""
    said = (
        f"{fingerprint['model']} ({fingerprint['device']}), torch {fingerprint['torch']}: sweep of "
        f"{', '.join(sweep.models)} on {', '.join(sweep.tasks)}; {total} runs{have}"
        f"{'' if workers is None else f', {workers} at a time'}; journal {folder}"
    )
    say(out, said)


def print_dry_run(
    out: Console,
    sweep: Sweep,
    known: Mapping[str, Mapping[str, Any]],
    durations: Durations,
    start: float,
) -> dict[str, Any]:
    """List the runs in their order, and say how long what is missing takes.

    Parameters
    ----------
    known : mapping
        Settled runs by key.
    start : float
        Seconds that a sweep takes before its first run.

    Returns
    -------
    dict
        The same for ``--json``: ``runs``, ``missing``, ``workers``, ``predicted_seconds`` (null
        while a model has no run on one of its tasks) and ``unknown``, the pairs that have none.
    """
    rows, seconds, unknown = [], [], Counter[str]()
    for entry in sweep.entries:
        run, said = entry.run, "there"
        name = sweep.names[run.key]
        row: dict[str, Any] = {"run": name, "key": run.key, "there": run.key in known}
        if not row["there"]:
            said, row["seconds"] = "missing", durations.of(run)
            if row["seconds"] is None:
                unknown[f"{run.model} on {run.task}"] += 1
            else:
                seconds.append(row["seconds"])
                said += f", about {duration(row['seconds'])}"
        rows.append(row)
        say(out, f"{name}: {said}")
    missing = sum(not row["there"] for row in rows)
    predicted = None
    if not unknown:
        predicted = wall_seconds(seconds, durations.workers) + start if missing else 0.0
    left = {
        "runs": rows,
        "missing": missing,
        "workers": durations.workers,
        "predicted_seconds": predicted,
        "unknown": unknown,
    }
    say(out, _prediction(left, seconds))
    return left


def _prediction(left: Mapping[str, Any], seconds: Sequence[float]) -> str:
    runs, workers = f"{left['missing']} of {len(left['runs'])} runs are missing", left["workers"]
    if left["predicted_seconds"] is not None:
        return f"{runs}: about {duration(left['predicted_seconds'])}, {workers} at a time"
    pairs = ", ".join(f"{pair} ({n})" for pair, n in list(left["unknown"].items())[:MOST_NAMED])
    if (more := len(left["unknown"]) - MOST_NAMED) > 0:
        pairs += f", and {more} more"
    about = ""
    if seconds:
        known = duration(wall_seconds(seconds, workers))
        about = f"; the other {len(seconds)} take about {known}, {workers} at a time"
    return f"{runs}; not known yet, for want of a first run: {pairs}{about}"


def print_table(out: Console, sweep: Sweep, records: Mapping[str, Mapping[str, Any]]) -> None:
    """Runs and their mean time, by task and model."""
    table = bare_table("task", "model", numbers=("runs", "ok", "seconds each"))
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in sweep.entries:
        model = f"{entry.run.model}{sweep.recipes[entry.run.key]}"
        group = groups.setdefault((entry.run.task, model), [])
        group.append(records[entry.run.key])
    for (task, model), found in groups.items():
        good = [r for r in found if r["status"] == "ok"]
        times = [seconds for r in good if (seconds := run_seconds(r)) is not None]
        each = f"{statistics.fmean(times):.1f}" if times else ""
        style = None if len(good) == len(found) else "red"
        table.add_row(
            escape(task), escape(model), str(len(found)), str(len(good)), each, style=style
        )
    out.print(table)


def failures(
    sweep: Sweep, records: Mapping[str, Mapping[str, Any]], options: SweepOptions
) -> list[dict[str, str]]:
    """Runs without a result: ``run``, ``status``, ``detail``, and the command that repeats it."""
    found = []
    for entry in sweep.entries:
        record = records[entry.run.key]
        if record["status"] != "ok":
            found.append(
                {
                    "run": sweep.names[entry.run.key],
                    "status": str(record["status"]),
                    "detail": str(record.get("detail") or "no reason given"),
                    "command": command(entry, options, again=record["status"] in SETTLED),
                }
            )
    return found


def command(entry: Entry, options: SweepOptions, *, again: bool) -> str:
    """The ``attnbench train`` that does one run of a sweep, for a shell.

    With `again` where the journal holds a result, which would only be shown.
    """
    run = entry.run
    words = ["attnbench", "train", str(run.model), "--task", run.task, "--seed", str(run.seed)]
    if run.fold is not None:
        words += ["--fold", str(run.fold)]
    for text in entry.recipe:
        words += ["--recipe", text]
    for option, value, default in (
        ("--vectors", entry.vectors, None),
        ("--data", options.data if entry.task.files else None, None),
        ("--device", options.device, "auto"),
        ("--journal", options.journal, Path("results")),
    ):
        if value != default:
            words += [option, str(value)]
    for dotted in run.arguments["given"]:
        words += ["--with", dotted]
    if again:
        words.append("--again")
    return shlex.join(words)
