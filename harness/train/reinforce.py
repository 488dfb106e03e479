"""Training of context fusion that selects tokens by a policy, with REINFORCE (ReSAN, section 4).

A fusion module has a policy if it offers

``policy_parameters() -> list of Parameter``
    Weights that decide what is selected, and nothing else.
``selection``
    Set to "all", "sampled" or "threshold" before a forward pass.
``generator``
    Where sampled actions come from.
``decisions``
    If a list, every forward pass appends what it did, with ``log_probability``, ``head_share`` and
    ``dependent_share``, each [B].

Its run has three stages: the base model with everything selected, as any model is trained; the
policy alone; both together. The paper's reward (eq. 17) is the log-probability of the target, less
a penalty on the selected share.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness.errors import UsageError
from harness.train.encoder import stream
from harness.train.recipe import Recipe
from harness.train.trainer import Named, Trainer


def fusion_with_policy(module: nn.Module) -> Any | None:
    """The part of a model that has a policy to be trained; None if there is none.

    One that was built to select everything is trained as any other model.
    """
    for part in module.modules():
        offered = getattr(part, "policy_parameters", None)
        if callable(offered) and offered() and getattr(part, "selection", "all") != "all":
            return part
    return None


def selected_share(decisions: Sequence[Any], form: str) -> Tensor:
    """What the reward penalises, [B]: a mean over the sentences of an example.

    Parameters
    ----------
    decisions : sequence
        One per sentence.
    form : {"text", "released"}
        Mean of the shares of selected heads and dependents, or their product.
    """
    shares = [
        d.head_share * d.dependent_share
        if form == "released"
        else (d.head_share + d.dependent_share) / 2
        for d in decisions
    ]
    return torch.stack(shares).mean(0)


def rewards(losses: Tensor, decisions: Sequence[Any], penalty: float, form: str) -> Tensor:
    """Eq. 17, [B]: log p(y|x), which is minus the loss, less the penalised share; a constant."""
    return (-losses - penalty * selected_share(decisions, form)).detach()


def objective(reward: Tensor, decisions: Sequence[Any]) -> Tensor:
    """What the policy minimises; its gradient is that of eq. 20, without a baseline."""
    log_probability = torch.stack([d.log_probability for d in decisions]).sum(0)  # [B]
    return -(reward * log_probability).mean()


class PolicyTraining:
    """The policy of a model in training: its optimiser, its random numbers, and its modes.

    Parameters
    ----------
    fusion : Module
        From `fusion_with_policy`.
    recipe : Recipe
    seed : int
        Of the run: actions drawn in training, and when the trained model is tested, have streams
        of their own.
    device : torch.device
    """

    def __init__(self, fusion: Any, recipe: Recipe, seed: int, device: torch.device) -> None:
        self.fusion, self.recipe = fusion, recipe
        self.parameters: list[nn.Parameter] = fusion.policy_parameters()
        self._test_seed, self._device = stream(seed, "test actions"), device
        self._training = torch.Generator(device).manual_seed(stream(seed, "actions"))
        # Adam's own weight_decay is the gradient of an L2 penalty, as the program has it.
        self._optimiser = torch.optim.Adam(
            self.parameters, lr=recipe.policy_rate, weight_decay=recipe.policy_weight_decay
        )

    def state(self) -> dict[str, Any]:
        """What the rest of the run depends on, beside the weights."""
        return {"optimiser": self._optimiser.state_dict(), "random": self._training.get_state()}

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
        self._optimiser.load_state_dict(state["optimiser"])
        self._training.set_state(state["random"])

    def select(self, how: str) -> None:
        """Select "all", what is "sampled" in training, or what is above the "threshold"."""
        self.fusion.selection, self.fusion.generator = how, self._training

    @contextmanager
    def tested(self, how: str) -> Iterator[None]:
        """Select otherwise for a while; the sample is the same every time."""
        before = self.fusion.selection, self.fusion.generator
        self.fusion.selection = how
        self.fusion.generator = torch.Generator(self._device).manual_seed(self._test_seed)
        try:
            yield
        finally:
            self.fusion.selection, self.fusion.generator = before

    @contextmanager
    def noted(self) -> Iterator[list[Any]]:
        """A list that receives every decision made meanwhile."""
        found: list[Any] = []
        self.fusion.decisions = found
        try:
            yield found
        finally:
            self.fusion.decisions = None

    def gradients(self, losses: Tensor, decisions: Sequence[Any]) -> tuple[Tensor, list[Tensor]]:
        """Reward [B], and the gradients of one batch; nothing else is touched.

        Parameters
        ----------
        losses : Tensor, shape [B]
        decisions : sequence
            Those of the same forward pass.
        """
        recipe = self.recipe
        reward = rewards(losses, decisions, recipe.policy_penalty, recipe.policy_share)
        found = torch.autograd.grad(objective(reward, decisions), self.parameters)
        return reward, list(found)

    def step(self, gradients: Sequence[Tensor]) -> None:
        """One step of the policy's own optimiser."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip)
        self._optimiser.step()
        # Left there, the base model's clipping would count them.
        self._optimiser.zero_grad(set_to_none=True)


def shares(decisions: Sequence[Any]) -> list[Tensor]:
    """Shares of selected heads and of selected dependents, [2, B] for each sentence."""
    return [torch.stack([d.head_share, d.dependent_share]).detach() for d in decisions]


def mean_shares(found: Sequence[Tensor]) -> dict[str, float]:
    """Means over all sentences of what `shares` gave."""
    heads, dependents = torch.cat(list(found), dim=1).double().mean(1).tolist()
    return {"heads": heads, "dependents": dependents}


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
        If the recipe asks for a compiled model: what is selected decides how it goes on; or for a
        mean of epochs' weights: its stages have one best epoch each.
    """

    def __post_init__(self) -> None:
        if self.recipe.compile:
            raise UsageError("compile=True: a model with a policy can't be compiled; leave it out")
        if self.recipe.averaged > 1:
            raise UsageError(
                f"averaged={self.recipe.averaged}: a model with a policy is trained in stages; "
                "leave it out"
            )
        fusion = fusion_with_policy(self.module)
        self.policy = PolicyTraining(fusion, self.recipe, self.seed, self.device)
        super().__post_init__()
        self._stage = "base"
        self._shares: list[Tensor] = []
        self._rewards: list[Tensor] = []

    def test(self) -> dict[str, Any]:
        """Metrics of the thresholded selection, and beside them those of a sampled one."""
        out: dict[str, Any] = {}
        for how, name in (("threshold", ""), ("sampled", "_sampled")):
            with self.policy.tested(how), self.policy.noted() as decisions:
                found = super().test()
            out[f"test{name}"] = found["test"]
            if not name:
                out["predictions"] = found["predictions"]
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
            batches += self._objective.batches(self._sizes, self.recipe, generator)
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
        with self._timed_passes():
            with self.policy.noted() as decisions, self._precision():
                output = self._forward(*inputs)
            output = output.float()
            # The policy's gradients first: a step of the base model changes what they are of.
            each = self._objective.losses(self.recipe, output, targets)
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
