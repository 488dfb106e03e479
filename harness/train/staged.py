"""The stages in which a model with a policy is trained (ReSAN, section 4)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness.errors import UsageError
from harness.train.batches import order
from harness.train.checkpoint import Checkpoint
from harness.train.objective import losses, stream
from harness.train.optimisers import Named
from harness.train.recipe import Recipe
from harness.train.reinforce import Policy, fusion_with_policy, mean_shares, shares
from harness.train.spent import Spent
from harness.train.task import Data, Task
from harness.train.trainer import Trainer


class StagedTrainer(Trainer):
    """The released program's schedule.

    ``base``: everything is selected, and the policy left alone; an ordinary run of `epochs`, whose
    best epoch is gone on from. ``policy``: `policy_steps` steps of the policy alone, one row of
    `epochs`. ``both``: at most `policy_epochs` epochs in which every batch moves both. The epoch
    that counts is one of the last two stages.

    Their rows have ``stage``, and after the first one ``reward`` and ``selected`` (mean shares of
    what was drawn in training). Dev metrics, and ``test``, are those of the thresholded selection;
    beside it the run has ``test_sampled`` (drawn once, by the seed), ``selected`` and
    ``selected_sampled``.

    Raises
    ------
    UsageError
        If the recipe asks for a compiled model: what is selected decides how it goes on.
    """

    def __init__(
        self, task: Task, module: nn.Module, data: Data, recipe: Recipe, seed: int,
        device: torch.device, spent: Spent, progress: str | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:  # fmt: skip
        if recipe.compile:
            raise UsageError("compile=True: a model with a policy can't be compiled; leave it out")
        self.policy = Policy(
            fusion_with_policy(module), recipe,
            stream(seed, "actions"), stream(seed, "test actions"), device,
        )  # fmt: skip
        super().__init__(task, module, data, recipe, seed, device, spent, progress, checkpoint)
        self._stage = "base"
        self._shares: list[Tensor] = []
        self._rewards: list[Tensor] = []

    def test(self) -> dict[str, Any]:
        """Metrics of the thresholded selection, and beside them those of a sampled one."""
        out: dict[str, Any] = {}
        for how, name in (("threshold", ""), ("sampled", "_sampled")):
            with self.policy.tested(how), self.policy.noted() as decisions:
                out[f"test{name}"] = super().test()["test"]
            out[f"selected{name}"] = mean_shares(shares(decisions))
        self.policy.select("threshold")
        return out

    def state(self) -> dict[str, Any]:
        """That of the base model, and the policy's."""
        return {
            **super().state(),
            "stage": self._stage,
            "policy": self.policy.state(),
            "drawn": [self._shares, self._rewards],
        }

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
        super().go_on(state)
        self._stage = state["stage"]
        self.policy.go_on(state["policy"])
        self._shares, self._rewards = ([t.to(self.device) for t in each] for each in state["drawn"])

    def _trained(self) -> Named:
        own = {id(p) for p in self.policy.parameters}
        return [(name, p) for name, p in self.module.named_parameters() if id(p) not in own]

    def _stages(self) -> None:
        if self._stage == "base":
            self.policy.select("all")
            self._epochs(self.recipe.epochs)
            self.module.load_state_dict(self.best_state)
            # What was best with everything selected is no rival of what selects.
            self.best_epoch, self.best_value = len(self.epochs), -math.inf
            self._stage = "policy"
        if self._stage == "policy":
            if self.recipe.policy_steps:
                self._judged(len(self.epochs) + 1, self._policy_alone)
            self._stage, self._first = "both", len(self.epochs) + 1
        self._epochs(self.recipe.policy_epochs)

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
        with self.policy.noted() as decisions, self._precision():
            output = self._forward(*inputs)
        output = output.float()
        # The policy's gradients first: a step of the base model changes what they were made with.
        each = losses(self.task, self.recipe, output, targets)
        reward, gradients = self.policy.gradients(each, decisions)
        value = each.mean()
        if self._stage == "both":
            self._descend(value)
        self.policy.step(gradients)
        self._rewards.append(reward)
        self._shares += shares(decisions)
        return value

    def _most_epochs(self) -> int:
        return self.recipe.epochs + bool(self.recipe.policy_steps) + self.recipe.policy_epochs
