"""Stand-ins for training, so that sweeps can be tested in seconds; and the runs that call them."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from harness.cli import running
from harness.errors import UsageError
from harness.experiments.design import Run, run_code
from harness.experiments.executors.local import LocalExecutor
from harness.experiments.model import Model
from harness.experiments.queue import RunSession, SessionProgress
from harness.records import journal
from harness.registry import Registry
from harness.train.task import task

CALL = "suites.support.fake_training:train"
FINGERPRINT = {"device": "cpu", "model": "made up"}
RESULT: Mapping[str, Any] = {
    "test": {"accuracy": 0.5},
    "seconds": 3.0,
    "chosen_epoch": 1,
    "parameters": 10,
    "parameters_with_words": 20,
    "epochs": [{"epoch": 1, "loss": 0.5, "dev": {"accuracy": 0.5}, "seconds": 1.0}],
}
"""What every run that is ok has."""
NODE = "ATTNBENCH_TEST_NODE"
"""Environment variable by which a node of a cluster is known."""


def train(
    model: str,
    task: str,
    recipe: Mapping[str, Any],
    seed: int,
    directory: str,
    vectors: str,
    **others: Any,
) -> dict[str, Any]:
    """Do what `vectors` says, and leave a file in `directory` for the beginning and for the end.

    ``0.5`` sleeps so many seconds; ``crash`` is a segmentation fault, ``mistake`` a user's,
    ``diverge`` a loss that is no number.
    """
    place = f"{model}-{task}-{seed}-{uuid.uuid4().hex}"
    node = os.environ.get(NODE, "")
    (Path(directory) / f"{place}.begun").write_text(f"{os.getpid()} {node}")
    if vectors == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if vectors == "mistake":
        raise UsageError("nothing to train on; give more data")
    if vectors == "diverge":
        return {"diverged": "the loss is nan in epoch 1", "epochs": []}
    time.sleep(float(vectors))
    (Path(directory) / f"{place}.ended").touch()
    own = {"test": {"accuracy": seed / 100}, "epochs": [], "seconds": 0.0}
    return {**RESULT, **own, "pid": os.getpid(), "on": node}


@contextmanager
def at_once() -> Iterator[None]:
    """Within it a command that trains has a result of each run at once."""

    def worker(*_: object) -> LocalExecutor:
        return LocalExecutor([{}], preload=())

    session = partial(RunSession, call="suites.support.fake_training:result")
    with (
        mock.patch.object(running, "RunSession", session),
        mock.patch.object(running, "local_executor", side_effect=worker),
    ):
        yield


def result(model: str, seed: int, **others: Any) -> dict[str, Any]:
    """Made up; it depends on model and seed."""
    value = (0.5 if model.startswith("mtsa") else 0.6) + seed / 100
    test = dict.fromkeys(("accuracy", "mse", "relative_mse"), value)
    epochs = [{"epoch": 1, "loss": value, "dev": test, "seconds": 0.1}]
    return {**RESULT, "test": test, "epochs": epochs}


def begun(folder: Path) -> list[str]:
    """Model, task and seed of each call that began."""
    return sorted(path.name.rpartition("-")[0] for path in folder.glob("*.begun"))


def fake_run(
    folder: Path,
    seed: int,
    vectors: str = "0.05",
    model: str = "mtsa.algorithm1",
    name: str = "trec",
) -> Run:
    """A run whose training is `train`."""
    recipe = task("trec").recipe
    arguments = {
        "model": model,
        "task": name,
        "recipe": recipe.as_dict(),
        "seed": seed,
        "options": {},
        "directory": str(folder),
        "vectors": vectors,
        "device": "cpu",
        "given": [],
    }
    key = f"{model}-{name}-{seed}"
    code = run_code(model.rpartition(".")[0], task(name).load, Registry())
    return Run(Model(model), name, recipe, seed, key, code, arguments)


def do_locally(journal_folder: Path, todo: Sequence[Run], **more: Any) -> list[dict[str, Any]]:
    """The records of a session of its own on this machine; further options as of `locally`."""
    return list(locally(journal_folder, todo, **more))


def locally(
    journal_folder: Path,
    todo: Sequence[Run],
    workers: int = 2,
    on_progress: Callable[[SessionProgress], None] = lambda _: None,
    **more: Any,
) -> Iterator[dict[str, Any]]:
    """The same, each record as soon as it is written; further options are `RunSession`'s."""
    with (
        journal.Writer(journal_folder, {"fingerprint": FINGERPRINT}) as writer,
        LocalExecutor([{}] * workers, preload=()) as executor,
    ):
        session = RunSession(writer, FINGERPRINT, executor, on_progress, call=CALL, **more)
        yield from session.run(todo)


def main() -> None:
    """``JOURNAL FOLDER SECONDS COUNT``: so many fake runs, as a driver that can be killed."""
    journal_folder, folder, seconds, count = sys.argv[1:]
    todo = [fake_run(Path(folder), seed, seconds) for seed in range(int(count))]
    for record in locally(Path(journal_folder), todo):
        print(record["key"], flush=True)


if __name__ == "__main__":
    main()
