"""The data of one run, checked."""

from __future__ import annotations

from pathlib import Path

from harness.errors import UsageError
from harness.registry import resolve
from harness.train.recipe import Recipe
from harness.train.task import Data, Task, check_fold


def load(
    task: Task,
    recipe: Recipe,
    directory: str | None,
    vectors: str,
    seed: int,
    fold: int | None = None,
) -> Data:
    """The data of one seed, or of one seed and fold.

    Parameters
    ----------
    directory : str or None
        The data directory.
    vectors : str
        A GloVe-format file, a table of the data directory, or ``none``.
    fold : int, optional
        Which one is tested on; for a task that has folds, and only for such a task.

    Raises
    ------
    UsageError
        If files are missing or wrong, a split is empty, degrees are all the same, or there is no
        such fold.
    """
    check_fold(task, fold)
    place = None if directory is None else Path(directory)
    options = dict(task.options)
    if task.folds:
        options["fold"] = fold
    data: Data = resolve(task.load)(place, vectors, recipe.word_width, seed, **options)
    for name in ("train", "dev", "test"):
        targets = getattr(data, name).targets
        if not len(targets):
            raise UsageError(f"{task.name}: the {name} split has no example; give more data")
        if task.kind == "relatedness" and (targets == targets[0]).all():
            raise UsageError(f"{task.name}: all degrees of {name} are {targets[0]}; no correlation")
    return data
