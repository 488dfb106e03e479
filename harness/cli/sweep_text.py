"""A sweep on the terminal: what there is to do, how long it takes, and what failed; no metric."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from harness.cli.output import bare_table, duration, say
from harness.experiments.costs import Durations, run_seconds, wall_seconds
from harness.experiments.queue import SETTLED
from harness.experiments.sweep import Entry, Sweep
from harness.options import SweepOptions

MOST_NAMED = 4
"""Of the pairs of model and task whose time is not known yet."""


def announce(
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
    rows, seconds, unknown = [], [], dict[str, int]()
    for entry in sweep.entries:
        run = entry.run
        name = sweep.names[run.key]
        row: dict[str, Any] = {"run": name, "key": run.key, "there": run.key in known}
        if not row["there"]:
            row["seconds"] = durations.of(run)
            if row["seconds"] is None:
                pair = f"{run.model} on {run.task}"
                unknown[pair] = unknown.get(pair, 0) + 1
            else:
                seconds.append(row["seconds"])
        rows.append(row)
        said = "there" if row["there"] else "missing"
        if row.get("seconds") is not None:
            said += f", about {duration(row['seconds'])}"
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

    Parameters
    ----------
    again : bool
        Whether the journal holds a result, which would only be shown.
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


def announce_end(
    out: Console, sweep: Sweep, failed: Sequence[Mapping[str, str]], seconds: float
) -> None:
    """What failed, each with its command, and a last line."""
    for failure in failed:
        say(out, f"{failure['run']}: {failure['status']}: {failure['detail']}", "red")
        say(out, f"  {failure['command']}")
    total = len(sweep.entries)
    say(
        out,
        f"{total - len(failed)} of {total} runs are ok, {len(failed)} failed; {duration(seconds)}",
    )
