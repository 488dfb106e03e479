"""One seeded training run: a pure function of model, task, recipe and seed. Runs in children."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness import high_water
from harness.build import set_tf32
from harness.errors import UsageError
from harness.registry import Registry, resolve
from harness.train import task as tasks
from harness.train.batches import gather, lengths, order
from harness.train.objective import build, evaluate, loss, losses, parameters, stream
from harness.train.recipe import Recipe
from harness.train.reinforce import Policy, fusion_with_policy, mean_shares, shares
from harness.train.task import Data, Task
from reference_impls.mechanism import Unsupported


class Diverged(Exception):
    """Loss or metric is no longer a finite number."""


def load(task: Task, recipe: Recipe, directory: str | None, vectors: str, seed: int) -> Data:
    """The data of one seed.

    Parameters
    ----------
    directory : str or None
        The data directory.
    vectors : str
        A GloVe-format file, a table of the data directory, or ``none``.

    Raises
    ------
    UsageError
        If files are missing or wrong, a split is empty, or degrees are all the same.
    """
    place = None if directory is None else Path(directory)
    data: Data = resolve(task.load)(place, vectors, recipe.word_width, seed, **task.options)
    for name in ("train", "dev", "test"):
        targets = getattr(data, name).targets
        if not len(targets):
            raise UsageError(f"{task.name}: the {name} split has no example; give more data")
        if task.kind == "relatedness" and (targets == targets[0]).all():
            raise UsageError(f"{task.name}: all degrees of {name} are {targets[0]}; no correlation")
    return data


def train_run(
    model: str,
    task: str,
    recipe: Mapping[str, Any],
    seed: int,
    options: Mapping[str, Any] | None = None,
    directory: str | None = None,
    vectors: str = "",
    device: str = "cpu",
    given: Sequence[str] = (),
    progress: str | None = None,
    attention: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Train a model, choose an epoch, test.

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
    directory, vectors : str
        See `load`.
    progress : str, optional
        File that is overwritten with ``epoch of epochs``; not part of the result.
    attention : mapping, optional
        ``sentences`` (texts) and ``file``: where the trained model's scores go.

    Returns
    -------
    dict
        ``epochs`` (number, mean loss, dev metrics, seconds; test metrics too where the recipe
        chooses by them), ``chosen_epoch``, ``test``, ``seconds``, ``peak_bytes``, ``parameters``
        and ``parameters_with_words``, ``examples`` by split, ``coverage``; with ``diverged``: why,
        and without a test metric.
    """
    began = time.perf_counter()
    record = tasks.task(task)
    settings = Recipe(**recipe)
    place = torch.device(device)
    if device == "cpu":
        torch.set_num_threads(1)
    set_tf32(False)
    registry = Registry(given)
    data = load(record, settings, directory, vectors, seed)
    module = build(record, model, dict(options or {}), data, settings, registry, seed).to(place)
    few, all_of_them = parameters(module)
    out: dict[str, Any] = {
        "parameters": few,
        "parameters_with_words": all_of_them,
        "examples": {name: len(getattr(data, name)) for name in ("train", "dev", "test")},
        "coverage": None if data.coverage is None else asdict(data.coverage),
        "load_seconds": time.perf_counter() - began,
    }
    peak = _Peak(place)
    staged = fusion_with_policy(module) is not None
    trainer = (_StagedTrainer if staged else _Trainer)(
        record, module, data, settings, seed, place, progress
    )
    try:
        trainer.train()
        module.load_state_dict(trainer.best_state)
        out |= trainer.test()
        out["chosen_epoch"] = trainer.best_epoch
    except Diverged as error:
        out["diverged"] = str(error)
    out |= {"epochs": trainer.epochs, **peak.read()}
    out["seconds"] = time.perf_counter() - began
    if attention is not None and "test" in out:
        from harness.train.attention import save

        save(module, data, attention["sentences"], Path(attention["file"]), place)
    return out


class _Trainer:
    """Epochs of AdamW steps, and the best state so far."""

    def __init__(
        self, task: Task, module: nn.Module, data: Data, recipe: Recipe, seed: int,
        device: torch.device, progress: str | None,
    ) -> None:  # fmt: skip
        self.task, self.module, self.data, self.recipe = task, module, data, recipe
        self.seed, self.device, self.progress = seed, device, progress
        self.epochs: list[dict[str, Any]] = []
        self.best_epoch, self.best_value = 0, -math.inf
        self.best_state: dict[str, Any] = {}
        self._optimiser = torch.optim.AdamW(
            module.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay
        )
        self._sizes = lengths(data.train)

    def train(self) -> None:
        """All epochs.

        Raises
        ------
        Diverged
            If loss or metrics are not finite; `epochs` holds those before.
        """
        torch.manual_seed(stream(self.seed, "dropout"))
        self._epochs(self.recipe.epochs)

    def test(self) -> dict[str, Any]:
        """``test`` and its metrics."""
        found = evaluate(self.task, self.module, self.data.test, self.device)
        return {"test": _finite(found, "test metrics")}

    def _epochs(self, most: int) -> None:
        """At most so many epochs more, each judged, until patience is over."""
        for epoch in range(len(self.epochs) + 1, len(self.epochs) + most + 1):
            self._judged(epoch, self._epoch)
            if epoch - self.best_epoch >= self.recipe.patience:
                break

    def _judged(self, epoch: int, trained: Callable[[int], dict[str, Any]]) -> None:
        """A row of `epochs`: what training says of itself, and metrics after it."""
        self._say(epoch)
        began = time.perf_counter()
        row = {"epoch": epoch, **trained(epoch), "dev": self._evaluate("dev", epoch)}
        if self.recipe.choose == "best-on-test":
            row["test"] = self._evaluate("test", epoch)
        row["seconds"] = time.perf_counter() - began
        self.epochs.append(row)
        self._keep_if_best(row)

    def _epoch(self, epoch: int) -> dict[str, Any]:
        """One pass over the training examples; the mean loss."""
        generator = np.random.default_rng([self.seed, 1, epoch])
        return {"loss": self._batches(order(self._sizes, self.recipe.batch, generator), epoch)}

    def _batches(self, batches: Sequence[np.ndarray], epoch: int) -> float:
        """One step for each of these batches; the mean loss."""
        self.module.train()
        total, examples = torch.zeros((), dtype=torch.float64), 0
        for index in batches:
            inputs, targets = gather(self.data.train, index, self.device)
            total += self._step(inputs, targets).detach().cpu().double() * len(index)
            examples += len(index)
        mean = float(total) / examples
        if not math.isfinite(mean):
            raise Diverged(f"the loss is {mean} in epoch {epoch}")
        return mean

    def _step(self, inputs: Sequence[Tensor], targets: Tensor) -> Tensor:
        """One step of the optimiser; the loss."""
        value = loss(self.task, self.module(*inputs), targets)
        self._descend(value)
        return value

    def _descend(self, value: Tensor) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        value.backward()
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.module.parameters(), self.recipe.clip)
        self._optimiser.step()

    def _evaluate(self, split: str, epoch: int) -> dict[str, float]:
        found = evaluate(self.task, self.module, getattr(self.data, split), self.device)
        return _finite(found, f"{split} metrics in epoch {epoch}")

    def _keep_if_best(self, row: Mapping[str, Any]) -> None:
        chosen = row["test" if self.recipe.choose == "best-on-test" else "dev"]
        value = chosen[self.task.metric] * (1 if self.task.higher_is_better else -1)
        if value > self.best_value:
            self.best_epoch, self.best_value = row["epoch"], value
            self.best_state = deepcopy(self.module.state_dict())

    def _say(self, epoch: int) -> None:
        if self.progress is not None:
            Path(self.progress).write_text(f"{epoch} {self._most_epochs()}")

    def _most_epochs(self) -> int:
        return self.recipe.epochs


class _StagedTrainer(_Trainer):
    """The stages of a model with a policy (ReSAN, section 4; the released program's schedule).

    ``base``: everything is selected, and the policy left alone; an ordinary run of `epochs`, whose
    best epoch is gone on from. ``policy``: `policy_steps` steps of the policy alone, one row of
    `epochs`. ``both``: at most `policy_epochs` epochs in which every batch moves both. The epoch
    that counts is one of the last two stages.

    Their rows have ``stage``, and after the first one ``reward`` and ``selected`` (mean shares of
    what was drawn in training). Dev metrics, and ``test``, are those of the thresholded selection;
    beside it the run has ``test_sampled`` (drawn once, by the seed), ``selected`` and
    ``selected_sampled``.
    """

    def __init__(
        self, task: Task, module: nn.Module, data: Data, recipe: Recipe, seed: int,
        device: torch.device, progress: str | None,
    ) -> None:  # fmt: skip
        super().__init__(task, module, data, recipe, seed, device, progress)
        self.policy = Policy(
            fusion_with_policy(module), recipe,
            stream(seed, "actions"), stream(seed, "test actions"), device,
        )  # fmt: skip
        self._optimiser = torch.optim.AdamW(
            self.policy.others(module), lr=recipe.rate, weight_decay=recipe.weight_decay
        )
        self._stage = "base"
        self._shares: list[Tensor] = []
        self._rewards: list[Tensor] = []

    def train(self) -> None:
        """All stages."""
        self.policy.select("all")
        super().train()
        self.module.load_state_dict(self.best_state)
        # What was best with everything selected is no rival of what selects.
        self.best_epoch, self.best_value = len(self.epochs), -math.inf
        if self.recipe.policy_steps:
            self._stage = "policy"
            self._judged(len(self.epochs) + 1, self._policy_alone)
        self._stage = "both"
        self._epochs(self.recipe.policy_epochs)

    def test(self) -> dict[str, Any]:
        """Metrics of the thresholded selection, and beside them those of a sampled one."""
        out: dict[str, Any] = {}
        for how, name in (("threshold", ""), ("sampled", "_sampled")):
            with self.policy.tested(how), self.policy.noted() as decisions:
                out[f"test{name}"] = super().test()["test"]
            out[f"selected{name}"] = mean_shares(shares(decisions))
        self.policy.select("threshold")
        return out

    def _evaluate(self, split: str, epoch: int) -> dict[str, float]:
        with self.policy.tested("all" if self._stage == "base" else "threshold"):
            return super()._evaluate(split, epoch)

    def _epoch(self, epoch: int) -> dict[str, Any]:
        return self._told(super()._epoch(epoch))

    def _policy_alone(self, epoch: int) -> dict[str, Any]:
        batches: list[np.ndarray] = []
        for number in itertools.count():
            if len(batches) >= self.recipe.policy_steps:
                break
            generator = np.random.default_rng([self.seed, 2, number])
            batches += order(self._sizes, self.recipe.batch, generator)
        return self._told({"loss": self._batches(batches[: self.recipe.policy_steps], epoch)})

    def _told(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row of an epoch with what the policy did in it, which is then forgotten."""
        row |= {"stage": self._stage}
        if self._stage != "base":
            row |= {
                "reward": float(torch.cat(self._rewards).mean()),
                "selected": mean_shares(self._shares),
            }
        self._rewards, self._shares = [], []
        return row

    def _step(self, inputs: Sequence[Tensor], targets: Tensor) -> Tensor:
        if self._stage == "base":
            return super()._step(inputs, targets)
        self.policy.select("sampled")
        with self.policy.noted() as decisions:
            output = self.module(*inputs)
        # The policy's gradients first: a step of the base model changes what they were made with.
        reward, gradients = self.policy.gradients(losses(self.task, output, targets), decisions)
        value = loss(self.task, output, targets)
        if self._stage == "both":
            self._descend(value)
        self.policy.step(gradients)
        self._rewards.append(reward)
        self._shares += shares(decisions)
        return value

    def _most_epochs(self) -> int:
        return self.recipe.epochs + bool(self.recipe.policy_steps) + self.recipe.policy_epochs


def _finite(metrics: dict[str, float], what: str) -> dict[str, float]:
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise Diverged(f"{what}: {name} is {value}")
    return metrics


class _Peak:
    """Peak memory from here on, beyond what the loaded data, libraries and weights take."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._why = ""
        self._before = 0
        if self._cuda:
            torch.cuda.reset_peak_memory_stats(device)
            self._before = torch.cuda.memory_allocated(device)
            return
        try:
            self._before = high_water.reset()
        except Unsupported as error:
            self._why = str(error)

    def read(self) -> dict[str, Any]:
        """``peak_bytes`` and ``memory_method``; None and the reason where it can't be measured."""
        if self._why:
            return {"peak_bytes": None, "memory_method": self._why}
        if self._cuda:
            peak, method = torch.cuda.max_memory_allocated(), "cuda caching allocator"
        else:
            peak, method = high_water.read(), "VmHWM after clear_refs"
        return {"peak_bytes": peak - self._before, "memory_method": method}


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
    data = load(record, Recipe(**recipe), directory, vectors, seed=0)
    counts = []
    for width in widths:
        settings = Recipe(**{**recipe, "width": width})
        module = build(record, model, dict(options or {}), data, settings, registry, seed=0)
        counts.append(parameters(module)[0])
    return counts
