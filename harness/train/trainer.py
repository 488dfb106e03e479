"""Epochs of steps, the best state so far, and where a killed run goes on; the optimisers."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness.train.batches import gather, lengths, padding
from harness.train.checkpoint import Checkpoint, Spent
from harness.train.encoder import stream
from harness.train.objective import objective_of
from harness.train.recipe import Recipe
from harness.train.task import Data, Task

TENSORFLOW_ADADELTA: Mapping[str, Any] = {"rho": 0.95, "eps": 1e-8}
"""The defaults of the library that the papers' programs use; torch's are .9 and 1e-6."""

_BIAS = re.compile(r"(.*_)?h?b\d*|.*bias.*|(.*_)?ln\d*_(scale|offset)")
Named = Iterable[tuple[str, nn.Parameter]]


def is_bias(name: str) -> bool:
    """Whether a parameter of this name is a bias, or belongs to a norm.

    ``hidden.b``, ``s1_b``, ``head_b2``, ``fw_cand_hb``, ``lstm.bias_hh_l0``, ``l0_ln_offset``.
    """
    return _BIAS.fullmatch(name.rpartition(".")[2]) is not None


def make_optimiser(parameters: Named, recipe: Recipe) -> torch.optim.Optimizer:
    """The optimiser of a recipe for named parameters.

    AdamW's decay is decoupled and takes all of them. That of the others is the gradient of an L2
    penalty, ``weight_decay / 2`` times the sum of squares, on all but biases.
    """
    named = list(parameters)
    # Fused: one pass over the weights, where the plain loop is a third of a small model's step.
    betas = (0.9, recipe.beta2)
    if recipe.optimiser == "adamw":
        every, decay = [p for _, p in named], recipe.weight_decay
        return torch.optim.AdamW(every, recipe.rate, betas, weight_decay=decay, fused=True)
    groups = [
        {"params": [p for n, p in named if is_bias(n) == bias], "weight_decay": decay}
        for bias, decay in ((False, recipe.weight_decay), (True, 0.0))
    ]
    groups = [group for group in groups if group["params"]]
    if recipe.optimiser == "adam":
        return torch.optim.Adam(groups, recipe.rate, betas, fused=True)
    return torch.optim.Adadelta(groups, lr=recipe.rate, **TENSORFLOW_ADADELTA)


def warmth(step: int, warmup: int) -> float:
    """Share of the recipe's rate in a step, counted from 1 (Vaswani et al., eq. 3).

    It grows evenly to 1 in `warmup` steps, then falls with the inverse root of the step.
    """
    return min(step / warmup, math.sqrt(warmup / step))


def mean_state(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Mean of some states of one model; of what is no floating number, the last one's."""
    return {
        name: torch.stack([state[name] for state in states]).mean(0)
        if newest.is_floating_point()
        else newest
        for name, newest in states[-1].items()
    }


class Diverged(Exception):
    """Loss or metric is no longer a finite number."""


def finite(metrics: dict[str, float], what: str) -> dict[str, float]:
    """The metrics, if all of them are finite.

    Raises
    ------
    Diverged
    """
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise Diverged(f"{what}: {name} is {value}")
    return metrics


@dataclass
class Place:
    """How far an epoch is."""

    steps: int  # steps, examples: done in it
    examples: int
    # Tensor, float64: sum of the losses of these examples, where the model is: adding to it waits
    # for nothing.
    total: Tensor
    earlier: float  # seconds it took before the run went on in this process
    began: float  # when this process began with it, by `time.perf_counter`.
    passes: float = 0.0  # seconds of forward and backward passes; a GPU's are not waited for

    def seconds(self) -> float:
        """It took so far."""
        return self.earlier + time.perf_counter() - self.began


@dataclass(eq=False)
class Trainer:
    """Trains a model by a recipe."""

    # task, module, data, recipe, seed, device: as of `run.train_run`; the module is on the device.
    task: Task
    module: nn.Module
    data: Data
    recipe: Recipe
    seed: int
    device: torch.device
    spent: Spent
    progress: str | None = None  # file that is overwritten with ``epoch of epochs``
    # Where the state is saved now and then, always after a step.
    checkpoint: Checkpoint | None = None
    # A row for each, see `run.train_run`.
    epochs: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0  # best_epoch, best_value, best_state: of the epoch that is best so far
    best_value: float = -math.inf
    best_state: dict[str, Any] = field(default_factory=dict)
    resumed: int = 0  # how often the run was killed and went on

    def __post_init__(self) -> None:
        self._objective = objective_of(self.task.kind)
        self._optimiser = make_optimiser(self._trained(), self.recipe)
        self._sizes = lengths(self.data.train)
        self._first = 1  # epoch of the stage
        self._steps = 0  # of the optimiser
        self._recent: list[dict[str, Tensor]] = []  # weights of the last epochs, if averaged
        self._place: Place | None = None
        self._forward: Callable[..., Tensor] = self.module
        if self.recipe.compile:
            self._forward = torch.compile(self.module, dynamic=True)

    def train(self) -> None:
        """All epochs, from where a checkpoint says, or from the first one.

        Raises
        ------
        Diverged
            If loss or metrics are not finite; `epochs` holds those before.
        """
        state = None if self.checkpoint is None else self.checkpoint.load()
        if state is None:
            torch.manual_seed(stream(self.seed, "dropout"))
        else:
            self.go_on(state)
        self._stages()

    def result(self) -> dict[str, Any]:
        """Train, go back to the best epoch and test: what a run's record says of it."""
        try:
            self.train()
            self.module.load_state_dict(self.best_state)
            found = {**self.test(), "chosen_epoch": self.best_epoch}
        except Diverged as error:
            found = {"diverged": str(error)}
        found |= {"epochs": self.epochs, **self.spent.read()}
        return {**found, "resumed": self.resumed} if self.resumed else found

    def test(self) -> dict[str, Any]:
        """``test`` metrics, ``predictions``, ``test_seconds``, and what the kind tells."""
        objective, split = self._objective, self.data.test
        began = time.perf_counter()
        output = objective.outputs(self.module, split, self.device)
        seconds = time.perf_counter() - began
        said = objective.predict(output)
        found = finite(objective.judged(self.task, said, split), "test metrics")
        kept = objective.predictions(output, said, self.data)
        told = {"test_seconds": seconds, **objective.told(said, seconds)}
        return {"test": found, "predictions": kept.text(), **told}

    def state(self) -> dict[str, Any]:
        """Everything on which the rest of the run depends, after a step."""
        place = self._place
        assert place is not None
        state = {
            "model": self.module.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "random": torch.get_rng_state(),
            "epochs": self.epochs,
            "best": [self.best_epoch, self.best_value, self.best_state],
            "first": self._first,
            "steps": self._steps,
            "recent": self._recent,
            "place": [place.steps, place.examples, place.total, place.seconds(), place.passes],
            "spent": self.spent.read(),
            "resumed": self.resumed,
        }
        if self.device.type == "cuda":
            state["cuda_random"] = torch.cuda.get_rng_state(self.device)
        return state

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
        self.module.load_state_dict(state["model"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.epochs = list(state["epochs"])
        self.best_epoch, self.best_value, self.best_state = state["best"]
        self._first, self._steps = state["first"], state["steps"]
        self._recent = [{n: t.to(self.device) for n, t in of.items()} for of in state["recent"]]
        steps, examples, total, seconds, passes = state["place"]
        now = time.perf_counter()
        self._place = Place(steps, examples, total.to(self.device), seconds, now, passes)
        self.spent.go_on(state["spent"])
        self.resumed = state["resumed"] + 1
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda_random"], self.device)

    def _trained(self) -> Named:
        """What the optimiser moves."""
        return self.module.named_parameters()

    def _stages(self) -> None:
        """All there is to train."""
        self._epochs(self.recipe.epochs)

    def _epochs(self, most: int) -> None:
        """At most so many epochs from the stage's first one, until patience is over."""
        last = self._first + most - 1
        while len(self.epochs) < last and len(self.epochs) - self.best_epoch < self.recipe.patience:
            self._judged(len(self.epochs) + 1, self._epoch)

    def _judged(self, epoch: int, trained: Callable[[int], dict[str, Any]]) -> None:
        """A row of `epochs`: what training says of itself, and metrics after it."""
        if self.progress is not None:
            Path(self.progress).write_text(f"{epoch} {self._most_epochs()}")
        if self._place is None:
            nothing = torch.zeros((), dtype=torch.float64, device=self.device)
            self._place = Place(0, 0, nothing, 0.0, time.perf_counter())
        row = {"epoch": epoch, **trained(epoch)}
        with self._averaged():
            began = time.perf_counter()
            row["dev"] = self._evaluate("dev", epoch)
            if self.recipe.choose == "best-on-test":
                row["test"] = self._evaluate("test", epoch)
            row |= {"judging": time.perf_counter() - began, "seconds": self._place.seconds()}
            if self.device.type == "cpu":
                row["passes"] = self._place.passes
            self._place = None
            self.epochs.append(row)
            chosen = row["test" if self.recipe.choose == "best-on-test" else "dev"]
            value = chosen[self.task.metric] * (1 if self.task.higher_is_better else -1)
            if value > self.best_value:
                self.best_epoch, self.best_value = epoch, value
                self.best_state = deepcopy(self.module.state_dict())

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Meanwhile the module has the mean of its weights after the last epochs."""
        if self.recipe.averaged == 1:
            yield
            return
        own = deepcopy(self.module.state_dict())
        self._recent = [*self._recent, own][-self.recipe.averaged :]
        self.module.load_state_dict(mean_state(self._recent))
        yield
        self.module.load_state_dict(own)

    def _epoch(self, epoch: int) -> dict[str, Any]:
        """One pass over the training examples: the mean loss, and how many steps it was."""
        batches = self._order(epoch)
        return {"loss": self._batches(batches, epoch), "steps": len(batches)}

    def _order(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch."""
        generator = np.random.default_rng([self.seed, 1, epoch])
        return self._objective.batches(self._sizes, self.recipe, generator)

    def padding(self) -> float:
        """Share of the positions of the first epoch's batches that hold no token."""
        return padding(self._sizes, self._order(1))

    def _batches(self, batches: Sequence[np.ndarray], epoch: int) -> float:
        """One step for each of these batches that is not done; the mean loss of all of them."""
        place = self._place
        assert place is not None
        self.module.train()
        for index in batches[place.steps :]:
            inputs, targets = gather(self.data.train, index, self.device)
            place.total += self._step(inputs, targets).detach().double() * len(index)
            place.examples += len(index)
            place.steps += 1
            if self.checkpoint is not None and self.checkpoint.due():
                self.checkpoint.save(self.state())
        mean = float(place.total) / place.examples
        if not math.isfinite(mean):
            raise Diverged(f"the loss is {mean} in epoch {epoch}")
        return mean

    def _step(self, inputs: Sequence[Tensor], targets: Tensor) -> Tensor:
        """One step of the optimiser; the loss."""
        with self._timed_passes():
            with self._precision():
                output = self._forward(*inputs)
            value = self._objective.losses(self.recipe, output.float(), targets).mean()
        self._descend(value)
        return value

    @contextmanager
    def _timed_passes(self) -> Iterator[None]:
        assert self._place is not None
        began = time.perf_counter()
        yield
        self._place.passes += time.perf_counter() - began

    def _precision(self) -> AbstractContextManager[Any]:
        """Of the forward pass; the backward pass follows it."""
        half = self.recipe.precision == "bf16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half)

    def _descend(self, value: Tensor) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        with self._timed_passes():
            value.backward()
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.module.parameters(), self.recipe.clip)
        self._steps += 1
        if self.recipe.warmup:
            for group in self._optimiser.param_groups:
                group["lr"] = self.recipe.rate * warmth(self._steps, self.recipe.warmup)
        self._optimiser.step()

    def _evaluate(self, split: str, epoch: int) -> dict[str, float]:
        examples = getattr(self.data, split)
        found = self._objective.evaluate(self.task, self.module, examples, self.device)
        return finite(found, f"{split} metrics in epoch {epoch}")

    def _most_epochs(self) -> int:
        return self.recipe.epochs
