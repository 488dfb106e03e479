"""Whether the models of a sweep can be built: known before hours of work, not after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from harness.experiments.executors import Executor, Job
from harness.experiments.matching import CALL
from harness.experiments.sweep import Entry
from harness.records import schema
from harness.train.recipe import identity

_ARGUMENTS = ("model", "task", "recipe", "options", "directory", "vectors", "given")


def checks(entries: Iterable[Entry], finished: Iterable[Mapping[str, Any]]) -> list[Job]:
    """One job for each model with its recipe on each task, but not where such a run has been.

    Parameters
    ----------
    entries : iterable of Entry
        Runs to be done.
    finished : iterable of mapping
        Records of runs.
    """
    been = {
        (r["model"], r.get("task"), _digest(r.get("recipe") or {}), r.get("code"))
        for r in finished
        if r["status"] == "ok"
    }
    jobs: dict[str, Job] = {}
    for entry in entries:
        run = entry.run
        recipe = run.recipe.as_dict()
        if (str(run.model), run.task, _digest(recipe), run.code) in been:
            continue
        arguments = {name: run.arguments[name] for name in _ARGUMENTS}
        key = schema.digest(["build", arguments, run.code])
        label = f"{run.model} on {run.task}"
        arguments["widths"] = [run.recipe.width]
        jobs[key] = Job(key, label, CALL, arguments, run.code, run.data, reports=False)
    return list(jobs.values())


def _digest(recipe: Mapping[str, Any]) -> str:
    return schema.digest(identity(recipe))


def check(jobs: Sequence[Job], executor: Executor, on_done: Callable[[], None]) -> None:
    """Build each model once.

    Raises
    ------
    UsageError
        If one can't be built: the first of them, and how many more.
    """
    failed: dict[str, str] = {}
    for job, outcome in executor.run(iter(jobs), lambda _: None):
        on_done()
        if outcome.status != "ok":
            failed[job.key] = f"{job.label} can't be built: {outcome.detail}"
    found = [failed[job.key] for job in jobs if job.key in failed]
    if found:
        more = f"; and {len(found) - 1} more can't" if len(found) > 1 else ""
        raise UsageError(f"{found[0]} (--recipe width=... heads=...){more}")
