"""What data a run is of: a digest that is part of its key, the same on every machine."""

from __future__ import annotations

from pathlib import Path

from harness.train.task import Task


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
