"""What a run stands on: data and word vectors, as a command's options say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.experiments.design import Surroundings
from harness.options.groups import Training
from harness.registry import Registry
from harness.train.data import hub
from harness.train.data.corpora import data_digest, unlike
from harness.train.data.directory import data_directory
from harness.train.data.vectors import NO_VECTORS, canonical
from harness.train.task import Task


def surroundings(
    task: Task,
    registry: Registry,
    options: Training,
    fingerprint: Callable[[], Mapping[str, Any]],
) -> Surroundings:
    """Data and vectors of a task on a device.

    Parameters
    ----------
    fingerprint : callable
        Tells of the device. Called last: what is wrong with the data is said at once.

    Raises
    ------
    UsageError
        If the task's data are not there, or the vectors.
    """
    directory, vectors, data = None, "", ""
    if task.files:
        vectors = options.vectors or task.vectors
        if hub.asked(options.data):
            hub.given_by(task.name, task.files)
            if vectors != NO_VECTORS and not Path(vectors).is_file():
                raise UsageError(
                    f"--data hub: the word vectors {vectors!r} are a table of a data directory, "
                    "which the hub has not; give --vectors FILE (GloVe's format) or --vectors none"
                )
            folder = hub.directory(task.name, task.files)
        else:
            folder = data_directory(options.data)
        directory = str(folder.resolve())
        data = data_digest(task, folder, vectors)
        if vectors != NO_VECTORS:
            vectors = canonical(vectors, folder)
    else:
        for option in ("data", "vectors"):
            if getattr(options, option) is not None:
                raise UsageError(f"--{option}: task {task.name} draws its own data; leave it out")
    return Surroundings(registry, fingerprint(), directory, vectors, data)


def tell_unlike(task: Task, folder: Path) -> None:
    """Say which of a task's files are not the listed ones: they may be used, but not unknowingly.

    A line each on standard error, before anything is trained.
    """
    name = task.family or task.name
    for one in unlike(folder, task.files):
        print(
            f"attnbench: {name}: {one.name} in {folder} is not the file of attnbench data "
            "list, so what others measured on that may not be compared with this; attnbench data "
            "check says more",
            file=sys.stderr,
        )
