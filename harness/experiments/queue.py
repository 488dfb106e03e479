"""Runs that are missing: each done once by an executor, whoever else is at it, and written down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from harness.errors import UsageError
from harness.experiments.costs import Durations, wall_seconds
from harness.experiments.design import Run, Surroundings, make_run
from harness.experiments.executors import Executor, Job, Standing
from harness.experiments.model import Model
from harness.experiments.replicates import Replicate, replicates
from harness.isolate import USAGE, Outcome
from harness.records import journal, predictions, schema
from harness.records.journal import Follower
from harness.records.sharing import Reservations
from harness.train.recipe import Recipe
from harness.train.task import Task

SETTLED = ("ok", "diverged", "unsupported")
"""Statuses that are results. A crash is tried again by the next command, and so is oom: how much
memory a run may take depends on what is free, and on how many run at a time. One whose time was up
goes on from its checkpoint."""
CALL = "harness.train.run:train_run"
REFUSED = "refused"
"""Status of what is the user's mistake: shown, never written."""
CHECKPOINTS = "checkpoints"
"""Folder, beside the journal's files, of the runs that are under way."""


class Queue:
    """Runs in their order, each handed out when it is asked for and nobody else does it.

    Iterating gives the next run; None when all that are left are under way elsewhere.

    Parameters
    ----------
    todo : sequence of Run
    own : Path or None
        The file of this session, in the folder of the journal; None: there are no others.

    Attributes
    ----------
    waiting : list of Run
    running : dict
        Runs that were handed out and have not ended, by key.
    elsewhere : int
        How many of those that wait are under way in another session, when last looked at.
    """

    def __init__(self, todo: Sequence[Run], own: Path | None) -> None:
        self.waiting, self.running = list(todo), dict[str, Run]()
        self.elsewhere = 0
        self._found: list[dict[str, Any]] = []
        self._reserved = None
        if own is not None:
            self._reserved = Reservations(own.parent)
            self._others = Follower(own.parent, "run", own)
            # What failed long ago is tried again; what fails from now on in another session is not.
            self._done = {r["key"]: r for r in self._others.new() if r["status"] in SETTLED}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._reserved is not None:
            self._reserved.close()

    def __iter__(self) -> Iterator[Run | None]:
        while self.waiting:
            run = self._next()
            if run is not None:
                self.waiting.remove(run)
                self.running[run.key] = run
            yield run

    def ended(self, run: Run) -> None:
        """A run that was handed out has its record."""
        del self.running[run.key]
        if self._reserved is not None:
            self._reserved.give_back(run.key)

    def found_elsewhere(self) -> list[dict[str, Any]]:
        """Records of other sessions that made runs needless, each once."""
        found, self._found = self._found, []
        return found

    def _next(self) -> Run | None:
        if self._reserved is None:
            return self.waiting[0]
        self.elsewhere = 0
        for run in list(self.waiting):
            if not self._reserved.take(run.key):
                self.elsewhere += 1
                continue
            # In this order: whoever had it wrote its record before giving it back.
            self._done |= {r["key"]: r for r in self._others.new()}
            if run.key not in self._done:
                return run
            self._reserved.give_back(run.key)
            self.waiting.remove(run)
            self._found.append(self._done[run.key])
        return None


@dataclass(frozen=True)
class SessionProgress:
    """Where a session stands."""

    done: int  # done, total: runs
    total: int
    parts: float  # runs finished, those under way counted by their epochs
    running: tuple[str, ...]  # what is under way, with its epoch where that is known
    left_seconds: float | None  # once something is known


def finished(
    folder: Path, tell: Callable[[Sequence[str]], None] | None = None
) -> dict[str, dict[str, Any]]:
    """Settled runs of a journal by key.

    Parameters
    ----------
    tell : callable, optional
        Given what had to be skipped; left out where the journal is read once more and told then.
    """
    if not journal.exists(folder):
        return {}
    found = journal.read(folder)
    if tell is not None:
        tell(found.warnings)
    return {r["key"]: r for r in found.records if r["kind"] == "run" and r["status"] in SETTLED}


def trained_elsewhere(
    folder: Path,
    plan: Mapping[str, Any],
    task: Task,
    sides: Sequence[tuple[Model, Recipe]],
    seeds: Sequence[int],
    around: Surroundings,
) -> dict[Replicate, Surroundings]:
    """Replicates of a design file that another machine has trained whole, all models of them.

    The machine must have the same kind of device and the same torch; the runs are of this code and
    of these data, as their keys show. What this machine has trained itself is not among them.

    Parameters
    ----------
    folder : Path
        The journal.
    plan : mapping
        What records tell of the design file: a run that names another file is none of it.
    sides : sequence of (Model, Recipe)
        Every model of the task, so that a replicate is never of two machines.

    Returns
    -------
    dict
        By replicate what was around there.
    """
    if not journal.exists(folder):
        return {}
    found = journal.read(folder)
    done = {
        r["key"]
        for r in found.records
        if r["kind"] == "run" and r["status"] in SETTLED and r.get("plan") == plan["sha256"]
    }
    here = dict(around.fingerprint)
    prints = [here, *(dict(first.get("fingerprint") or {}) for first in found.sessions.values())]
    places = [
        replace(around, fingerprint=one)
        for at, one in enumerate(prints)
        if one not in prints[:at] and all(one.get(n) == here.get(n) for n in ("device", "torch"))
    ]
    out: dict[Replicate, Surroundings] = {}
    for one in replicates(seeds, task.folds):
        for place in places:
            runs = (make_run(m, task, r, one.seed, place, one.fold) for m, r in sides)
            if all(run.key in done for run in runs):
                if place is not places[0]:
                    out[one] = place
                break
    return out


def checkpoint_of(folder: Path, run: Run) -> Path:
    """The file in which a run under way is kept."""
    return folder / f"{run.key}.pt"


@dataclass(eq=False)
class RunSession:
    """Does runs and writes their records."""

    # None: the records are not kept (a run that is repeated for its attention scores).
    writer: journal.Writer | None
    fingerprint: Mapping[str, Any]
    executor: Executor
    on_progress: Callable[[SessionProgress], None]  # called twice a second
    _: KW_ONLY
    durations: Durations | None = None  # what is known of the time that runs take
    strict: bool = True  # whether a run that can't be what was asked for ends all, or only itself
    call: str = CALL  # the function that trains; see `harness.train.run.train_run`
    # Folder in which runs under way are kept, so that one that is killed goes on where it was, and
    # the least time between two writes of a file there.
    checkpoints: Path | None = None
    checkpoint_seconds: float = 60.0
    # By key what a run is called where its label says too little.
    names: Mapping[str, str] = field(default_factory=dict)
    plan: str | None = None  # SHA-256 of the file that declares the runs

    def __post_init__(self) -> None:
        self._known = self.durations or Durations(self.fingerprint, self.executor.workers)

    def run(self, todo: Sequence[Run]) -> Iterator[dict[str, Any]]:
        """Train, yielding each record as it is written.

        A run that another session has under way is left to it; its record is yielded too.

        Raises
        ------
        UsageError
            If `strict`, and a run can't be what was asked for: an option that does not exist, say.
        """
        own = None if self.writer is None else self.writer.path
        try:
            with Queue(todo, own) as queue:
                jobs = (None if run is None else self._job(run) for run in queue)

                def tick(standings: Mapping[str, Standing]) -> None:
                    self.on_progress(self._progress(len(todo), queue, standings))

                for job, outcome in self.executor.run(jobs, tick):
                    run = queue.running[job.key]
                    record = self._record(run, outcome)
                    self._known.add(record)
                    if self.writer is not None and record["status"] != REFUSED:
                        record = self.writer.append(record)
                        self._forget(run, record)
                    queue.ended(run)
                    yield record
                    yield from queue.found_elsewhere()
                yield from queue.found_elsewhere()
        finally:
            if self.checkpoints is not None:
                with contextlib.suppress(OSError):  # of other sessions, or there is none
                    self.checkpoints.rmdir()

    def _job(self, run: Run) -> Job:
        arguments = dict(run.arguments)
        if self.checkpoints is not None:
            # A node of a cluster keeps a checkpoint only if it sees this folder.
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            arguments["checkpoint"] = str(checkpoint_of(self.checkpoints, run))
            arguments["checkpoint_seconds"] = self.checkpoint_seconds
        return Job(run.key, run.label, self.call, arguments, run.code, run.data)

    def _forget(self, run: Run, record: Mapping[str, Any]) -> None:
        """Remove the checkpoint of a run whose result has been written down."""
        if self.checkpoints is not None and record["status"] in SETTLED:
            # Its draft too: the run may have been killed while it wrote one.
            for left in self.checkpoints.glob(f"{checkpoint_of(self.checkpoints, run).name}*"):
                left.unlink(missing_ok=True)

    def _record(self, run: Run, outcome: Outcome) -> dict[str, Any]:
        value = outcome.value if isinstance(outcome.value, dict) else {}
        record = {
            "kind": "run",
            "key": run.key,
            "case": run.case,
            "model": str(run.model),
            "task": run.task,
            "recipe": run.recipe.as_dict(),
            "seed": run.seed,
            "fold": run.fold,
            "vectors": run.arguments["vectors"],
            "data": run.data,
            "code": run.code,
            "fingerprint": schema.digest(dict(self.fingerprint)),
            "workers": self.executor.workers,
            "status": outcome.status,
            "task_seconds": outcome.seconds,
            **value,
        }
        if self.plan is not None:
            record["plan"] = self.plan
        if (said := record.pop("predictions", None)) and self.writer is not None:
            record["predictions"] = predictions.keep(self.writer.path.parent, run.key, said)
        if value.get("diverged"):
            record |= {"status": "diverged", "detail": value["diverged"]}
        if outcome.detail:
            record["detail"] = outcome.detail
        if outcome.error == USAGE:
            if self.strict:
                raise UsageError(f"{run.label}: {outcome.detail}")
            record["status"] = REFUSED
        return record

    def _progress(
        self, total: int, queue: Queue, standings: Mapping[str, Standing]
    ) -> SessionProgress:
        done = total - len(queue.waiting) - len(queue.running)
        parts, shown, left = float(done), [], []
        for key, run in queue.running.items():
            standing = standings.get(key)
            left.append((run, standing.seconds if standing else 0.0))
            if standing is None:
                continue
            if standing.epochs:
                parts += (standing.epoch - 1) / standing.epochs
                epoch = f"epoch {standing.epoch} of at most {standing.epochs}"
            else:
                epoch = "loading"
            shown.append(f"{self.names.get(key, run.label)}: {epoch}")
        if unseen := len(queue.running) - len(shown):
            shown.append(f"{unseen} handed to the cluster")
        if queue.elsewhere:
            shown.append(f"{queue.elsewhere} under way in another session")
        left += [(run, 0.0) for run in queue.waiting]
        return SessionProgress(done, total, parts, tuple(shown), self._left(left))

    def _left(self, runs: Sequence[tuple[Run, float]]) -> float | None:
        """Seconds that these runs, since so many seconds under way, will take."""
        seconds = []
        for run, gone in runs:
            guess = self._known.guess(run)
            if guess is None:
                return None
            seconds.append(max(guess - gone, 0.0))
        return wall_seconds(seconds, self.executor.workers)
