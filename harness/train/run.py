"""One seeded training run: a pure function of model, task, recipe, seed and fold; in children."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from harness.build import set_tf32
from harness.registry import Registry
from harness.train import task as tasks
from harness.train.attention import save, scores
from harness.train.batches import lengths
from harness.train.checkpoint import Checkpoint, Spent
from harness.train.encoder import parameters
from harness.train.objective import objective_of
from harness.train.recipe import Recipe
from harness.train.reinforce import StagedTrainer, fusion_with_policy
from harness.train.task import load
from harness.train.trainer import Trainer

NO_PART_OF_IT = ("directory", "given", "progress")
"""Arguments of a run in which the one that goes on from a checkpoint may differ."""


def train_run(
    *,
    attention: Mapping[str, Any] | None = None,
    checkpoint: str | None = None,
    checkpoint_seconds: float = 60.0,
    **run: Any,
) -> dict[str, Any]:
    """Train a model, choose an epoch, test.

    Parameters
    ----------
    run
        Which one: as of `make_trainer`.
    attention : mapping, optional
        ``sentences`` (texts) and ``file``: where the trained model's scores go.
    checkpoint : str, optional
        File in which the run in the middle is kept. If it is there, the run goes on from it, and
        gives the numbers that it would have given. It is left there: who has written down the
        result takes it away.
    checkpoint_seconds : float
        Least time between two writes of that file.

    Returns
    -------
    dict
        ``epochs`` (number, mean loss, dev metrics, seconds; test metrics too where the recipe
        chooses by them), ``chosen_epoch``, ``test``, ``seconds``, ``peak_bytes``, ``parameters``
        and ``parameters_with_words``, ``examples`` by split, ``padding`` (share of the positions of
        training batches that hold no token), ``coverage``, ``predictions`` (see
        `harness.records.predictions`), ``test_seconds`` (a pass over the test split in batches of
        `harness.train.recipe.EVALUATION_BATCH`) and ``test_tokens`` (of a test example, on
        average); ``resumed``, how often it went on from a checkpoint, if it did; with ``diverged``:
        why, and without a test metric.

    Raises
    ------
    UsageError
        If scores are asked for and the model has none.
    """
    began = time.perf_counter()
    trainer = make_trainer(**run)
    module, data = trainer.module, trainer.data
    few, all_of_them = parameters(module)
    out: dict[str, Any] = {
        "parameters": few,
        "parameters_with_words": all_of_them,
        "examples": {name: len(getattr(data, name)) for name in ("train", "dev", "test")},
        "padding": trainer.padding(),
        "test_tokens": float(lengths(data.test).mean()),
        "coverage": None if data.coverage is None else asdict(data.coverage),
        "load_seconds": time.perf_counter() - began,
    }
    if attention is not None:  # what has nothing to look at is known before hours of training
        scores(module, data, attention["sentences"][:1], trainer.device)
    if checkpoint is not None:
        identity = {k: v for k, v in run.items() if k not in NO_PART_OF_IT}
        trainer.checkpoint = Checkpoint(Path(checkpoint), identity, checkpoint_seconds)
    out |= trainer.result()
    if attention is not None and "test" in out:
        save(module, data, attention["sentences"], Path(attention["file"]), trainer.device)
    return out


def make_trainer(
    model: str,
    task: str,
    recipe: Mapping[str, Any],
    seed: int,
    options: Mapping[str, Any] | None = None,
    directory: str | None = None,
    vectors: str = "",
    device: str = "cpu",
    given: Sequence[str] = (),
    fold: int | None = None,
    progress: str | None = None,
) -> Trainer:
    """Load the data and build the model of a run.

    Parameters
    ----------
    model : str
        ``mechanism`` or ``mechanism.implementation``.
    task : str
        Name of a task.
    recipe : mapping
        Fields of a `Recipe`.
    seed : int
        Decides data order, split and initial weights; the first two alike for all models.
    options : mapping
        For the mechanism's factory, as texts.
    directory, vectors, fold
        See `task.load`.
    progress : str, optional
        File that is overwritten with ``epoch of epochs``; not part of the result.
    """
    began = time.perf_counter()
    record, settings, place = tasks.task(task), Recipe(**recipe), torch.device(device)
    if device == "cpu":
        torch.set_num_threads(1)
    set_tf32(False)
    data = load(record, settings, directory, vectors, seed, fold)
    objective, registry = objective_of(record.kind), Registry(given)
    module = objective.build(record, model, dict(options or {}), data, settings, registry, seed)
    module = module.to(place)
    kind = StagedTrainer if fusion_with_policy(module) is not None else Trainer
    return kind(record, module, data, settings, seed, place, Spent(place, began), progress)


def count_parameters(
    model: str,
    task: str,
    recipe: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
    directory: str | None = None,
    vectors: str = "",
    given: Sequence[str] = (),
    widths: Sequence[int] = (),
) -> list[int]:
    """Parameters without word vectors of a model at several widths of its context fusion."""
    record, registry = tasks.task(task), Registry(given)
    fold = 0 if record.folds else None
    data = load(record, Recipe(**recipe), directory, vectors, seed=0, fold=fold)
    build, counts = objective_of(record.kind).build, []
    for width in widths:
        settings = Recipe(**{**recipe, "width": width})
        module = build(record, model, dict(options or {}), data, settings, registry, seed=0)
        counts.append(parameters(module)[0])
    return counts
