"""Small runs of training on the made-up data, each trained once in a process."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from harness.records.predictions import Predictions, keep, read
from harness.train.recipe import Recipe
from harness.train.run import train_run
from harness.train.task import Data, load, task

SMALL: dict[str, Any] = {
    "width": 12,
    "heads": 2,
    "hidden": 10,
    "epochs": 3,
    "batch": 60,
    "rate": 5e-3,
    "policy_steps": 5,
    "policy_epochs": 2,
}
STEPS = 4
"""Of an epoch on the 216 examples of TREC."""


def small(name: str, **recipe: Any) -> Recipe:
    """A task's recipe, made small."""
    return replace(task(name).recipe, **{**SMALL, **recipe})


def loaded(
    folder: Path | None,
    name: str,
    vectors: str | None = None,
    seed: int = 0,
    fold: int | None = None,
) -> Data:
    """What a run of a task trains on, by the task's own word vectors unless others are given."""
    one = task(name)
    given = one.vectors if vectors is None else vectors
    return load(one, one.recipe, None if folder is None else str(folder), given, seed, fold)


def train(
    folder: Path,
    model: str = "mtsa",
    name: str = "trec",
    seed: int = 0,
    *,
    fold: int | None = None,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 0.0,
    **recipe: Any,
) -> dict[str, Any]:
    """The record of a run."""
    return train_run(
        model=model,
        task=name,
        recipe=small(name, **recipe).as_dict(),
        seed=seed,
        directory=str(folder),
        vectors=task(name).vectors,
        fold=fold,
        checkpoint=None if checkpoint is None else str(checkpoint),
        checkpoint_seconds=checkpoint_seconds,
    )


trained = cache(train)
"""The same, not trained again; not to be changed."""


def numbers(record: dict[str, Any]) -> dict[str, Any]:
    """Everything of a record but times, memory, and how often it went on."""
    spent = (
        "seconds",
        "load_seconds",
        "test_seconds",
        "peak_bytes",
        "memory_method",
        "resumed",
        "decoding",
        "epochs",
    )
    rows = [
        {k: v for k, v in row.items() if k not in ("seconds", "judging", "passes")}
        for row in record["epochs"]
    ]
    return {"epochs": rows, **{k: v for k, v in record.items() if k not in spent}}


def kept(record: dict[str, Any], folder: Path) -> Predictions:
    """The predictions of a run's record, by way of a file."""
    found = read([folder], {"key": "k", "predictions": keep(folder, "k", record["predictions"])})
    assert found is not None
    return found


def losses(record: dict[str, Any]) -> list[float]:
    """Of its epochs."""
    return [row["loss"] for row in record["epochs"]]
