"""What ``train``, ``compare`` and ``sweep`` share: verifying first, runs with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.markup import escape

from harness.cli.output import SAYS, bar, duration, say
from harness.cli.verify import verified
from harness.errors import NotVerified
from harness.experiments.costs import Durations, run_seconds
from harness.experiments.design import Run, Surroundings, tell_unlike
from harness.experiments.executors import Executor
from harness.experiments.executors.local import local_executor
from harness.experiments.queue import CHECKPOINTS, RunSession, SessionProgress
from harness.measure.device import environment
from harness.records import journal
from harness.train.task import family_of
from harness.train.task import task as find_task
from harness.verify.run import fitting

SHOWN = 3
"""Runs under way that are named in the bar."""


def verified_or_refused(
    runs: Sequence[Run], around: Surroundings, folder: Path, out: Console
) -> None:
    """Check the mechanisms of runs in float32 first: what is not right is not trained.

    Corpora that are not the listed ones are told, too: see `tell_unlike`.

    Raises
    ------
    NotVerified
        If one of them is not.
    """
    read = {(family_of(r.task) or r.task, r.arguments["directory"]): r.task for r in runs}
    for (_, directory), name in read.items():
        if directory is not None:
            tell_unlike(find_task(name), Path(directory))
    asked = dict.fromkeys((r.model.name, r.model.options, r.recipe.heads) for r in runs)
    wanted = [
        (name, "f32", fitting(name, options, heads, around.registry))
        for name, options, heads in asked
    ]
    rows = verified(wanted, around.registry, around.fingerprint, folder, out)
    for row in rows:
        if row["verdict"] not in ("ok", "unsupported"):
            raise NotVerified(
                f"{row['name']} is {row['verdict']}, so it is not trained: {row['detail']}; "
                f"see: attnbench verify {row['name']}{around.registry.flags}"
            )


def train_missing(
    missing: Sequence[Run],
    around: Surroundings,
    folder: Path,
    workers: int,
    out: Console,
    declared: Sequence[Mapping[str, Any]] = (),
    *,
    keep: bool = True,
) -> list[dict[str, Any]]:
    """Do the runs on this machine, with a bar and the time left.

    Parameters
    ----------
    declared : sequence of mapping
        Records written before the first run, where the journal has not got them.
    keep : bool
        Whether the records are written; not where they are there already.

    Returns
    -------
    list of dict
        The records of the runs.
    """
    with local_executor(around.fingerprint, max(1, min(workers, len(missing)))) as executor:
        return do_runs(missing, around.fingerprint, folder, executor, out, declared, keep=keep)


def do_runs(
    missing: Sequence[Run],
    fingerprint: Mapping[str, Any],
    folder: Path,
    executor: Executor,
    out: Console,
    declared: Sequence[Mapping[str, Any]] = (),
    *,
    keep: bool = True,
    strict: bool = True,
    names: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Do the runs where an executor does them; see `train_missing`.

    Parameters
    ----------
    strict : bool
        Whether a run that can't be what was asked for ends all of them, or only itself.
    names : mapping
        By key what a run is called where its case says too little.
    """
    plan = next((r["plan"]["sha256"] for r in declared if r.get("plan")), None)
    known = journal.read(folder).finished()
    declared = [record for record in declared if record["key"] not in known]
    if not missing and not declared:
        return []
    durations = Durations(fingerprint, executor.workers, known.values())
    records = []
    with ExitStack() as stack:
        writer = None
        if keep:
            first = {"environment": environment(), "purpose": "train"}
            first["fingerprint"] = dict(fingerprint)
            writer = stack.enter_context(journal.Writer(folder, first))
            for record in declared:
                writer.append(record)
        if not missing:
            return []
        told = Told(out, names, stack.enter_context(bar(out, "training", None, SAYS)))
        runs = RunSession(
            writer,
            fingerprint,
            executor,
            told.progress,
            durations=durations,
            strict=strict,
            plan=plan,
            # The scores of a run that is repeated for them are not in a checkpoint of it.
            checkpoints=folder / CHECKPOINTS if keep else None,
            names=names,
        )
        for record in runs.run(missing):
            records.append(record)
            told.finished(record)
    return records


class Told:
    """Progress of training: on a terminal a bar, and a line per finished run.

    Parameters
    ----------
    names : mapping
        By key what a run is called where its case says too little.
    move : callable
        Of the bar.
    """

    def __init__(self, out: Console, names: Mapping[str, str], move: Callable[..., None]) -> None:
        self._out, self._names, self._move = out, names, move
        self._standing: SessionProgress | None = None
        self._ended = 0
        move(says="starting")

    def progress(self, standing: SessionProgress) -> None:
        """Move the bar."""
        self._standing = standing
        running = list(standing.running[:SHOWN])
        if (more := len(standing.running) - SHOWN) > 0:
            running.append(f"{more} more")
        says = f"{standing.done} of {standing.total} runs{_left(standing)}; {'; '.join(running)}"
        self._move(completed=standing.parts, total=standing.total, says=escape(says))

    def finished(self, record: Mapping[str, Any]) -> None:
        """One line; no metric, so that nobody stops at a number that pleases."""
        self._ended += 1
        name = self._names.get(record["key"], _called(record))
        line = f"{name}: {record['status']}"
        if (seconds := run_seconds(record)) is not None:
            line += f" in {duration(seconds)}"
        if record["status"] == "ok":
            line += f", {len(record['epochs'])} epochs"
        if self._standing is not None and self._standing.total > 1:
            total = self._standing.total
            left = _left(self._standing) if self._ended < total else ""
            line += f"; {self._ended} of {total}{left}"
        say(self._out, line, "dim")


def _left(standing: SessionProgress) -> str:
    """``, 12.5 min left``; empty as long as nothing is known."""
    known = standing.left_seconds
    return "" if known is None else f", {duration(known)} left"


def _called(record: Mapping[str, Any]) -> str:
    """Of a record that another session wrote no more is sure than what it was."""
    return str(record.get("case") or f"{record['model']} seed {record['seed']}")


def print_failures(out: Console, runs: Sequence[Mapping[str, Any]]) -> None:
    """A line for every run that gave no result, and why."""
    for run in runs:
        if run["status"] != "ok":
            detail = run.get("detail") or "no reason given"
            say(out, f"{_called(run)}: {run['status']}: {detail}", "red")
