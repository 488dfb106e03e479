"""Training of a policy: its stages, what moves in them, and that it finds what matters."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harness.train import run
from harness.train.objective import Objective, objective_of
from harness.train.recipe import Recipe
from harness.train.reinforce import (
    StagedTrainer,
    fusion_with_policy,
    objective,
    rewards,
    selected_share,
)
from harness.train.run import train_run
from harness.train.task import Data, Split, Task
from suites.support.training import train as on_made_up_data

LENGTH, NOISE, KEYS = 6, 12, 3
RECIPE = Recipe(
    width=12,
    heads=1,
    hidden=10,
    dropout=0.1,
    rate=5e-3,
    weight_decay=1e-4,
    clip=1.0,
    batch=25,
    epochs=3,
    patience=3,
    policy_steps=20,
    policy_epochs=2,
    policy_rate=5e-3,
)


def load(directory: Path | None, vectors: str, word_width: int, seed: int) -> Data:
    """Sentences of noise in which one word, a key at a random place, decides the class."""
    rng = np.random.default_rng(seed)

    def split(size: int) -> Split:
        ids = rng.integers(2 + KEYS, 2 + KEYS + NOISE, (size, LENGTH))
        targets = rng.integers(0, KEYS, size)
        ids[np.arange(size), rng.integers(0, LENGTH, size)] = 2 + targets
        return Split(([list(map(int, row)) for row in ids],), targets)

    words = rng.normal(size=(2 + KEYS + NOISE, 12)).astype(np.float32)
    words[0] = 0
    train, dev, test = split(300), split(60), split(80)
    return Data(train, dev, test, 12, KEYS, words)


TINY = Task(
    name="one_word_decides",
    summary="",
    source="",
    kind="classification",
    metrics=("accuracy",),
    split="",
    load="suites.harness.train.test_reinforce:load",
    recipe=RECIPE,
)


def train(patch: pytest.MonkeyPatch, model: str, **recipe: Any) -> tuple[dict[str, Any], nn.Module]:
    """A run on the tiny task, and the trained model."""
    kept: list[nn.Module] = []
    real = Objective.build

    def keeping(*arguments: Any) -> nn.Module:
        kept.append(real(*arguments))
        return kept[-1]

    with patch.context() as inner:
        inner.setattr(run.tasks, "task", lambda _: TINY)
        inner.setattr(Objective, "build", keeping)
        name, _, chosen = model.partition("[")
        options = dict([chosen.rstrip("]").split("=")]) if chosen else {}
        settings = replace(RECIPE, **recipe).as_dict()
        record = train_run(model=name, task=TINY.name, recipe=settings, seed=0, options=options)
    return record, kept[0]


@pytest.mark.parametrize("model", ["resa", "resan[variant=one_rss]"])
def test_a_run_goes_through_its_stages(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    moved: list[tuple[str, bool, bool]] = []
    real = StagedTrainer._judged

    def watching(self: Any, *arguments: Any) -> None:
        own = {id(p) for p in self.policy.parameters}
        before = [p.detach().clone() for p in self.module.parameters()]
        real(self, *arguments)
        changed = {True: False, False: False}
        for p, old in zip(self.module.parameters(), before, strict=True):
            changed[id(p) in own] |= not torch.equal(p, old)
        moved.append((self._stage, changed[False], changed[True]))

    with monkeypatch.context() as patch:
        patch.setattr(StagedTrainer, "_judged", watching)
        record, module = train(monkeypatch, model)
    assert moved == [
        *[("base", True, False)] * 3,
        ("policy", False, True),
        *[("both", True, True)] * 2,
    ]
    rows = record["epochs"]
    assert [row["stage"] for row in rows] == [stage for stage, _, _ in moved]
    assert [row["epoch"] for row in rows] == list(range(1, 7))
    assert all(("reward" in row) == (row["stage"] != "base") for row in rows)
    assert all(0 < share < 1 for row in rows[3:] for share in row["selected"].values())
    assert record["chosen_epoch"] >= 4, "an epoch with everything selected was chosen"
    assert set(record["test"]) == set(record["test_sampled"]) == {"accuracy"}
    assert record["test"]["accuracy"] == _accuracy(module, "threshold")
    assert 0 < record["selected_sampled"]["heads"] < 1


def _accuracy(module: Any, how: str) -> float:
    fusion = fusion_with_policy(module)
    assert fusion.decisions is None
    assert fusion.selection == how
    split, device = load(None, "", 0, 0).test, torch.device("cpu")
    return objective_of(TINY.kind).evaluate(TINY, module, split, device)["accuracy"]


def test_the_base_stage_is_the_run_of_the_model_without_a_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    staged, _ = train(monkeypatch, "resa")
    alone, module = train(monkeypatch, "resa[selection=all]")
    assert fusion_with_policy(module) is None
    for with_policy, without in zip(staged["epochs"][:3], alone["epochs"], strict=True):
        assert with_policy["loss"] == without["loss"]
        assert with_policy["dev"] == without["dev"]
    assert "stage" not in alone["epochs"][0]
    assert "test_sampled" not in alone


def test_the_policy_goes_on_from_the_best_base_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step at all: the best epoch's weights, seen through the untrained threshold."""
    real = StagedTrainer._policy_alone
    seen = []

    def looking(self: Any, epoch: int) -> Any:
        value = [row["dev"]["accuracy"] for row in self.epochs]
        with self.policy.tested("all"):
            now = self._objective.evaluate(self.task, self.module, self.data.dev, self.device)
        seen.append((now["accuracy"], max(value)))
        return real(self, epoch)

    monkeypatch.setattr(StagedTrainer, "_policy_alone", looking)
    train(monkeypatch, "resa", epochs=6, rate=3e-2, policy_epochs=1)
    assert seen[0][0] == seen[0][1]
    record, _ = train(monkeypatch, "resa", epochs=1, policy_steps=0)
    assert [row["stage"] for row in record["epochs"]] == ["base"] + ["both"] * 2


def test_the_policy_finds_the_word_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    record, module = train(
        monkeypatch,
        "resan_no_fusion",
        epochs=8,
        policy_steps=400,
        policy_epochs=4,
        policy_penalty=0.5,
        policy_rate=1e-2,
        patience=8,
    )
    fusion: Any = fusion_with_policy(module)
    ids = torch.tensor(load(None, "", 0, 0).test.inputs[0])
    embedding: Any = module.get_submodule("embedding")
    chosen = fusion.select(*embedding(ids)).heads
    key = (ids >= 2) & (ids < 2 + KEYS)
    found, noise = (float(chosen[where].double().mean()) for where in (key, ~key))
    assert found > 0.9
    assert noise < 0.4
    assert record["test"]["accuracy"] > 0.85  # a third by chance
    assert record["selected"]["heads"] < 0.5


def test_a_pair_is_one_example(folder: Path) -> None:
    """Both sentences of a pair count in its log-probability and in its share."""
    recipe: dict[str, Any] = {"epochs": 1, "policy_steps": 3, "policy_epochs": 1}
    record = on_made_up_data(folder, "resa", "sick_relatedness", **recipe)
    assert [row["stage"] for row in record["epochs"]] == ["base", "policy", "both"]
    assert set(record["test_sampled"]) == {"pearson", "spearman", "mse"}


# Reward and objective


def decisions() -> list[Any]:
    """What two sentences of two examples selected."""
    log = torch.tensor([-1.0, -2.0], requires_grad=True)
    return [
        SimpleNamespace(
            log_probability=log * k,
            head_share=torch.tensor([0.5, 1.0]) / k,
            dependent_share=torch.tensor([0.2, 0.8]) / k,
        )
        for k in (1, 2)
    ]


def test_the_reward_by_hand() -> None:
    made = decisions()
    text = torch.tensor([(0.35 + 0.175) / 2, (0.9 + 0.45) / 2])
    released = torch.tensor([(0.1 + 0.025) / 2, (0.8 + 0.2) / 2])
    torch.testing.assert_close(selected_share(made, "text"), text)
    torch.testing.assert_close(selected_share(made, "released"), released)
    probability = torch.tensor([0.25, 0.5])
    got = rewards(-probability.log(), made, 0.1, "released")
    torch.testing.assert_close(got, probability.log() - 0.1 * released)
    value = objective(got, made)
    wanted = -(got[0] * -3 + got[1] * -6) / 2
    assert float(value.detach()) == pytest.approx(float(wanted))


def test_degrees_are_trained_as_the_program_has_it_where_the_recipe_says_so() -> None:
    """Half the squared error of the expected degree."""
    losses = objective_of("relatedness").losses
    output, targets = torch.zeros(2, 5), torch.tensor([3.0, 5.0])  # the mean of 1 ... 5 is 3
    released = replace(RECIPE, degree_loss="squared")
    torch.testing.assert_close(losses(released, output, targets), torch.tensor([0.0, 2.0]))
    even = torch.full((2,), math.log(5))
    torch.testing.assert_close(losses(RECIPE, output, targets), even)
