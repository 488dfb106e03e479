"""What data a run is of: a digest that is part of its key, the same on every machine."""

from __future__ import annotations

from pathlib import Path

from harness.train.data.corpora import corpora
from harness.train.task import Task, tasks


def data_digest(task: Task, directory: Path, vectors: str) -> str:
    """Digest of a task's files and of its word vectors.

    Parameters
    ----------
    directory : Path
        The data directory.
    vectors : str
        A file, a table of the data directory, or ``none``.

    Raises
    ------
    UsageError
        If a file is missing.
    """
    from harness.train.data.corpus import NO_VECTORS
    from harness.train.data.directory import corpus_files, digest_of
    from harness.train.data.vectors import vectors_digest

    data = digest_of(corpus_files(directory, task.files, task.supplied))
    return data if vectors == NO_VECTORS else data + vectors_digest(vectors, directory)


def is_known(task: str, data: str) -> bool | None:
    """Whether a run's data are the corpus of ``attnbench data list``, whatever its vectors.

    Parameters
    ----------
    task : str
        Name of a task.
    data : str
        From `data_digest`.

    Returns
    -------
    bool or None
        None where it can't be told: the task has no files, or some that no list knows.
    """
    from harness.train.data.directory import combined

    known = {f.name: f.content for corpus in corpora().values() for f in corpus.files}
    of = tasks().get(task.partition("[")[0])
    if of is None or not of.files or not data or not set(of.files) <= set(known):
        return None
    return data.startswith(combined(bytes.fromhex(known[name]) for name in of.files))
