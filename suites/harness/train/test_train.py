"""One training run: a pure function, tested once, at the epoch chosen on dev."""

from __future__ import annotations

import base64
import gzip
import itertools
import math
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from harness.registry import Registry
from harness.train import trainer
from harness.train.batches import (
    MANY_BATCHES,
    gather,
    in_order,
    lengths,
    order,
    padded,
    padding,
)
from harness.train.data.examples import Examples, in_splits
from harness.train.encoder import STREAMS, stream
from harness.train.objective import Objective, objective_of
from harness.train.run import count_parameters
from harness.train.task import Data, Split, task
from reference_impls.mechanism import Size
from reference_impls.source2token import MECHANISMS as POOLINGS
from suites.support.made_up_data import write_data_directory, write_table
from suites.support.real_data import REAL, real
from suites.support.training import STEPS, kept, loaded, losses, numbers, small, train, trained


@pytest.mark.parametrize(
    ("model", "name", "recipe"),
    [
        ("bi_lstm", "trec", {"optimiser": "adam"}),
        # It has no width of its own: it pools the words, as papers' "no context fusion" row.
        ("source2token", "sick_relatedness", {"width": 30}),
    ],
)
def test_the_same_run_twice_is_the_same(
    folder: Path, model: str, name: str, recipe: dict[str, Any]
) -> None:
    """Of other models it is tried by runs that died."""
    first, again, other = (train(folder, model, name, s, epochs=2, **recipe) for s in (0, 0, 1))
    assert numbers(first) == numbers(again)
    assert numbers(first) != numbers(other)
    assert set(first["test"]) == set(task(name).metrics)


def test_it_learns_and_says_what_it_cost(folder: Path) -> None:
    record = train(folder, epochs=12, dropout=0.1, batch=16)
    assert record["test"]["accuracy"] > 0.8  # a sixth by chance
    assert losses(record)[-1] < 0.5 * losses(record)[0]
    assert record["peak_bytes"] > 0
    assert record["seconds"] > sum(row["seconds"] for row in record["epochs"]) > 0
    assert record["coverage"]["covered"] < record["coverage"]["vocabulary"]
    assert record["examples"] == {"train": 216, "dev": 24, "test": 60}


def test_the_test_set_is_looked_at_once_without_dropout_at_the_best_dev_epoch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[tuple[bool, int]] = []  # of each forward pass: in training, sentences
    real_build = Objective.build

    def noting(*arguments: Any) -> Any:
        module = real_build(*arguments)
        module.register_forward_pre_hook(
            lambda module, inputs: modes.append((module.training, len(inputs[0])))
        )
        return module

    monkeypatch.setattr(Objective, "build", noting)
    record = train(folder, epochs=4, patience=4)
    epoch = [(True, 60)] * (STEPS - 1) + [(True, 36), (False, 24)]
    assert [sorted(modes[i : i + 5]) for i in range(0, 20, 5)] == [sorted(epoch)] * 4
    assert modes[20:] == [(False, 60)]
    dev = [row["dev"]["accuracy"] for row in record["epochs"]]
    assert record["chosen_epoch"] == dev.index(max(dev)) + 1
    assert all("test" not in row for row in record["epochs"])


def test_the_chosen_epochs_weights_are_tested(folder: Path) -> None:
    """Training that ends at the chosen epoch gives the very same test metric."""
    whole = trained(folder, seed=5, epochs=6, patience=6, rate=3e-2)
    assert whole["chosen_epoch"] < 6, "the last epoch is the best: it shows nothing"
    cut = train(folder, seed=5, epochs=whole["chosen_epoch"], patience=6, rate=3e-2)
    assert cut["test"] == whole["test"]


def test_lower_is_better_for_errors() -> None:
    name = "mirrored_summation[length=4,width=3,k=1,train=200,test=100]"
    record = train(Path(), name=name, epochs=5, patience=5, rate=5e-2)
    dev = [row["dev"]["mse"] for row in record["epochs"]]
    assert record["chosen_epoch"] == dev.index(min(dev)) + 1


def test_best_over_time_is_chosen_by_the_test_set(folder: Path) -> None:
    record = train(folder, epochs=5, patience=5, choose="best-on-test")
    found = [row["test"]["accuracy"] for row in record["epochs"]]
    assert record["test"]["accuracy"] == max(found)
    assert record["chosen_epoch"] == found.index(max(found)) + 1


@pytest.mark.parametrize(
    ("name", "batch", "says"),
    [
        ("trec", 60, "the loss is (nan|inf) in epoch 1"),
        # The only step is from finite numbers to others.
        ("sick_relatedness", 120, "dev metrics in epoch 1: pearson is nan"),
    ],
)
def test_divergence_is_told(folder: Path, name: str, batch: int, says: str) -> None:
    record = train(folder, name=name, rate=1e18, clip=0.0, epochs=2, batch=batch)
    assert re.fullmatch(says, record["diverged"])
    assert not {"test", "chosen_epoch"} & set(record)
    assert record["seconds"] > 0


def test_order_is_that_of_the_seed_not_of_the_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[tuple[str, int], list[list[list[int]]]] = {}
    for model, seed in (("mtsa", 0), ("multi_head", 0), ("mtsa", 1)):
        gathered = Mock(wraps=gather)
        monkeypatch.setattr(trainer, "gather", gathered)
        train(folder, model, seed=seed, epochs=2)
        batches = (one.args[:2] for one in gathered.call_args_list)
        seen[model, seed] = [[split.inputs[0][i] for i in index] for split, index in batches]
    assert seen["mtsa", 0] == seen["multi_head", 0]
    assert seen["mtsa", 0] != seen["mtsa", 1]
    assert seen["mtsa", 0][:STEPS] != seen["mtsa", 0][STEPS:], "every epoch has the same order"


def test_a_batch_does_not_change_a_prediction(folder: Path) -> None:
    data, device = loaded(folder, "trec"), torch.device("cpu")
    objective = objective_of("classification")
    module = objective.build(task("trec"), "mtsa", {}, data, small("trec"), Registry(), 0)
    module.eval()
    logits = []
    for size in (1, 7, 60):
        out = torch.empty(len(data.test), 6)
        for index in in_order(data.test, size):
            inputs, _ = gather(data.test, index, device)
            out[torch.from_numpy(index)] = module(*inputs).detach()
        logits.append(out)
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-5)
    torch.testing.assert_close(logits[0], logits[2], rtol=0, atol=1e-5)
    predicted = objective.predict(objective.outputs(module, data.test, device))
    assert (predicted == logits[0].argmax(-1).numpy()).all()


def test_a_degree_is_predicted_by_its_expectation(folder: Path) -> None:
    record, data = task("sick_relatedness"), loaded(folder, "sick_relatedness")
    objective = objective_of(record.kind)
    module = objective.build(record, "mtsa", {}, data, small(record.name), Registry(), 0)
    output = objective.outputs(module, data.test, torch.device("cpu"))
    predicted = objective.predict(output)
    inputs, _ = gather(data.test, np.arange(len(data.test)), torch.device("cpu"))
    shares = module(*inputs).detach().double().softmax(-1).numpy()
    expected = sum((degree + 1) * shares[:, degree] for degree in range(5))
    assert predicted == pytest.approx(expected, abs=1e-5)


def test_no_part_shares_its_random_numbers_with_another(folder: Path) -> None:
    every = [stream(seed, part) for seed in range(50) for part in STREAMS]
    assert len(set(every)) == len(every)
    data, recipe = loaded(folder, "trec"), small("trec", width=20, hidden=20)
    modules = [
        objective_of("classification").build(
            task("trec"), "mtsa", {}, data, recipe, Registry(), seed
        )
        for seed in (0, 1)
    ]
    drawn = {
        f"{name} of seed {seed}": weight.detach().flatten()[:80].numpy()
        for seed, module in enumerate(modules)
        for name, weight in module.named_parameters()
        if weight.numel() >= 80 and weight.detach().std() > 0 and "words" not in name
    }
    assert len(drawn) >= 16
    for one, other in itertools.combinations(drawn, 2):
        assert abs(np.corrcoef(drawn[one], drawn[other])[0, 1]) < 0.6, (one, other)


def test_padding_stays_zero_and_words_are_fine_tuned(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, torch.Tensor] = {}
    real_build = Objective.build

    def noting(*arguments: Any) -> Any:
        module = real_build(*arguments)
        words: Any = module.get_submodule("embedding.words")
        kept["before"], kept["after"] = words.weight.detach().clone(), words.weight
        return module

    monkeypatch.setattr(Objective, "build", noting)
    train(folder, epochs=2)
    assert (kept["after"][0] == 0).all()
    moved = (kept["after"] != kept["before"]).any(1)
    assert moved[1]  # rare words train the unknown one
    assert moved.float().mean() > 0.3


@pytest.mark.parametrize("model", ["mtsa", "multi_head"])
def test_parameters_are_those_of_the_formulas(folder: Path, model: str) -> None:
    formula, pooling = Registry().mechanism(model).parameters, POOLINGS[0].parameters
    expected = []
    for width in (12, 24):
        head = width * 10 + 10 + 10 * 6
        own = formula(Size(1, 1, 20, width, heads=2))
        expected.append(own + pooling(Size(1, 1, width, width)) + head)
    record = trained(folder, model, epochs=1)
    assert record["parameters"] == expected[0]
    assert (record["parameters_with_words"] - record["parameters"]) % 20 == 0
    recipe, vectors = small("trec").as_dict(), task("trec").vectors
    counted = count_parameters(
        model, "trec", recipe, directory=str(folder), vectors=vectors, widths=[12, 24]
    )
    assert counted == expected


@pytest.mark.parametrize(
    ("name", "fold", "floor"),
    [
        ("trec", None, 0.6),
        pytest.param("sick_relatedness", None, 0.3, marks=pytest.mark.nightly),
        pytest.param("cr", 0, 0.66, marks=pytest.mark.nightly),  # the larger class has 0.638
    ],
)
@real("trec/train.tsv.gz", "sick/train.tsv.gz", "cr/all.tsv.gz")
def test_real_corpora_are_learnt_from(name: str, fold: int | None, floor: float) -> None:
    epochs = 1 if name == "trec" else 2
    recipe: dict[str, Any] = {"width": 24, "hidden": 24, "batch": 32, "dropout": 0.1}
    found = train(REAL, name=name, fold=fold, epochs=epochs, **recipe)
    assert found["test"][task(name).metric] > floor


# Batches.


@pytest.mark.parametrize(("count", "batch"), [(1, 4), (216, 16), (3000, 7)])
def test_every_example_is_seen_once_an_epoch(count: int, batch: int) -> None:
    sizes = np.random.default_rng(0).integers(1, 40, (1, count))
    for epoch in range(3):
        found = order(sizes, batch, np.random.default_rng([1, epoch]))
        assert sorted(np.concatenate(found)) == list(range(count))
        assert max(map(len, found)) <= batch
        assert len(found) <= -(-count // batch) + 2


def test_batches_hold_examples_of_like_length_in_random_order() -> None:
    sizes = np.random.default_rng(0).integers(1, 40, 2000)
    found = order(sizes[None], 20, np.random.default_rng(1))
    places = sum(len(b) * sizes[b].max() for b in found)
    assert 0.1 > padding(sizes[None], found) == pytest.approx(1 - sizes.sum() / places)
    means = [sizes[b].mean() for b in found]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3
    other = order(sizes[None], 20, np.random.default_rng(2))
    assert any(set(a) != set(b) for a, b in zip(found, other, strict=True))


def test_very_many_pairs_are_sorted_by_both_lengths_few_by_the_longer_one() -> None:
    draw = np.random.default_rng(0)
    sizes = np.stack([3 + draw.poisson(11, 50_000), 2 + draw.poisson(6, 50_000)])
    assert len(sizes[0]) >= MANY_BATCHES * 50
    found = order(sizes, 50, np.random.default_rng(1))
    assert sorted(np.concatenate(found)) == list(range(50_000))
    assert padding(sizes, found) < 0.03
    again = order(sizes, 50, np.random.default_rng(2))
    assert not {frozenset(b) for b in found} & {frozenset(b) for b in again}
    few = sizes[:, :49_000]
    assert padding(few, order(few, 50, np.random.default_rng(1))) > 0.1


def test_padding_is_zero_and_behind() -> None:
    assert padded([[5], [1, 2, 3], []]).tolist() == [[5, 0, 0], [1, 2, 3], [0, 0, 0]]
    assert padded([[]]).tolist() == [[0]]
    pairs = Split(([[1], [1, 2]], [[1, 2, 3], [1]]), np.zeros(2, dtype=np.float32))
    assert lengths(pairs).tolist() == [[1, 2], [3, 1]]
    assert [b.tolist() for b in in_order(pairs, 1)] == [[1], [0]], "a pair's longer side counts"


# Metrics.


def metric(name: str, predicted: np.ndarray, targets: np.ndarray) -> float:
    kinds = map(objective_of, ("classification", "relatedness", "regression"))
    found = next(kind.metrics[name] for kind in kinds if name in kind.metrics)
    return found(predicted, Split((), targets))


def test_metrics_by_hand() -> None:
    predicted, targets = np.array([1.0, 2.0, 3.0, 5.0]), np.array([2.0, 2.0, 4.0, 4.0])
    assert metric("mse", predicted, targets) == pytest.approx(0.75)
    assert metric("relative_mse", predicted, targets) == pytest.approx(0.75 / 1.0)
    assert metric("pearson", predicted, targets) == pytest.approx(5 / (8.75 * 4) ** 0.5)
    # Ranks 1 2 3 4 and 1.5 1.5 3.5 3.5.
    assert metric("spearman", predicted, targets) == pytest.approx(4 / (5 * 4) ** 0.5)
    assert metric("accuracy", np.array([1, 2, 3]), np.array([1, 0, 3])) == pytest.approx(2 / 3)


def test_a_constant_prediction_explains_nothing() -> None:
    targets = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    constant = np.broadcast_to(targets.mean(axis=0), targets.shape)
    assert metric("relative_mse", constant, targets) == pytest.approx(1, rel=1e-5)
    for name in ("pearson", "spearman"):
        assert metric(name, np.ones(50), targets[:, 0]) == 0.0


# What a run keeps of its test predictions: enough to judge it again, example by example.


def table(path: Path) -> list[str]:
    """Its lines, without the first."""
    return gzip.decompress(path.read_bytes()).decode().splitlines()[1:]


def test_accuracy_is_that_of_the_kept_predictions(folder: Path, tmp_path: Path) -> None:
    record = trained(folder)
    found = kept(record, tmp_path)
    assert float(np.mean(found.truth == found.said)) == record["test"]["accuracy"]
    assert len(found.items) == record["examples"]["test"] == 60
    assert found.items.tolist() == list(range(60))
    assert (found.confidence >= math.floor(255 / 6)).all(), "the largest of six shares"


def test_correlation_is_that_of_the_kept_predictions(folder: Path, tmp_path: Path) -> None:
    record = trained(folder, "multi_head", "sick_relatedness")
    found = kept(record, tmp_path)
    r = pearsonr(found.said.astype(float), found.truth.astype(float)).statistic
    assert r == pytest.approx(record["test"]["pearson"], abs=2e-3), "of 11 bits a degree"
    assert not found.confidence.size


def test_errors_are_those_of_the_kept_predictions(tmp_path: Path) -> None:
    record = train(tmp_path, "multi_head", "mirrored_summation[length=6,k=2,train=60,test=30]")
    found = kept(record, tmp_path)
    mean = float(found.errors.astype(float).mean())
    assert mean == pytest.approx(record["test"]["mse"], rel=1e-3)
    assert not found.seen.any()


def test_of_every_fold_the_places_of_its_examples(folder: Path, tmp_path: Path) -> None:
    folds = [kept(trained(folder, name="cr", fold=fold), tmp_path) for fold in (0, 1)]
    assert not set(folds[0].items) & set(folds[1].items)
    labels = [line.split("\t")[0] for line in table(folder / "cr" / "all.tsv.gz")]
    for fold in folds:
        assert [labels[item] for item in fold.items] == [str(number) for number in fold.truth]


def examples(*texts: str) -> Examples:
    """Of one side each."""
    return Examples([[text.split() for text in texts]], np.zeros(len(texts)))


SAID = ("a b", "c", "a  b", "A b", "d", "e", "f", "g", "h", "i", "j", "k")


@pytest.mark.parametrize("seed", [0, 1])
def test_seen_is_what_stands_in_the_training_table_its_dev_part_too(seed: int) -> None:
    train_table, test = examples(*SAID), examples(*SAID, "z", "e f", "E")
    found = in_splits([train_table, test], 0, None, seed)
    assert len(found.dev.targets) == 1
    assert found.seen.tolist() == [True] * len(SAID) + [False] * 3
    assert found.items.tolist() == list(range(len(SAID) + 3))


def test_with_a_dev_table_only_the_training_table_counts() -> None:
    found = in_splits([examples("a"), examples("b"), examples("b", "a")], 0, None, 0)
    assert found.seen.tolist() == [False, True]


def test_both_sentences_of_a_pair_have_to_be_there() -> None:
    def pairs(*texts: tuple[str, str]) -> Examples:
        sides = [[text.split() for text in side] for side in zip(*texts, strict=True)]
        return Examples(sides, np.zeros(len(texts)))

    tables = [pairs(("a", "b"), ("c", "d")), pairs(("x", "y")), pairs(("a", "d"), ("c", "d"))]
    assert in_splits(tables, 0, None, 0).seen.tolist() == [False, True]


def test_of_a_fold_seen_is_over_the_other_folds() -> None:
    texts = ["same"] * 2 + [f"only {i}" for i in range(18)]
    folds = [in_splits([examples(*texts)], 10, fold, 0) for fold in range(10)]
    where = np.concatenate([fold.items for fold in folds])
    assert sorted(where) == list(range(20))
    home = {int(item): number for number, fold in enumerate(folds) for item in fold.items}
    seen = {int(i) for fold in folds for i in fold.items[fold.seen]}
    assert seen == ({0, 1} if home[0] != home[1] else set())


def test_confidence_is_the_share_of_the_class_that_was_said() -> None:
    output = torch.log(torch.tensor([[0.8, 0.1, 0.1], [0.0, 0.0, 1.0], [0.25, 0.5, 0.25]]))
    split = Split(([[2]] * 3,), np.array([0, 2, 2]))
    data = Data(split, split, split, width=3, outputs=3, test_items=np.array([5, 1, 2]))
    found = objective_of("classification").predictions(output, np.array([0, 2, 1]), data)
    assert found.confidence.tolist() == [204, 255, 128]
    assert (found.items.tolist(), found.truth.tolist()) == ([5, 1, 2], [0, 2, 2])


def test_a_text_that_is_trained_on_is_marked_in_a_run(tmp_path: Path) -> None:
    folder = write_data_directory(tmp_path / "data")
    files = task("trec").files
    rows = [["NUM", "x", "How old is Rome ?"], ["LOC", "x", "Where is Oslo ?"]] * 6
    write_table(folder / f"{files[0]}.gz", ("coarse", "fine", "text"), rows)
    tested = [["LOC", "x", "Where  is Oslo ?"], ["LOC", "x", "Where is Rome ?"], rows[0]]
    write_table(folder / f"{files[1]}.gz", ("coarse", "fine", "text"), tested)
    found = kept(train(folder, "multi_head", epochs=1, batch=4), tmp_path)
    assert found.seen.tolist() == [True, False, True]
    assert len(base64.b64decode(train(folder, "multi_head", epochs=1)["predictions"])) < 4096


COUNTS = {
    # By tokens as loaded. An eleventh stands there in capitals.
    "trec": (10, 500),
    "sick_relatedness": (49, 4927),
}


@real("trec/train.tsv.gz", "sick/train.tsv.gz")
@pytest.mark.parametrize("name", COUNTS)
def test_so_many_real_test_examples_stand_in_the_training_set(name: str) -> None:
    data = loaded(REAL, name, "none", seed=3)
    assert (int(data.seen.sum()), len(data.seen)) == COUNTS[name]


@real("mpqa/all.tsv.gz")
def test_the_folds_of_mpqa_share_three_tenths_of_their_texts() -> None:
    seen = [loaded(REAL, "mpqa", "none", fold=fold).seen for fold in range(10)]
    both = np.concatenate(seen)
    assert len(both) == 10_603
    assert both.mean() == pytest.approx(0.297, abs=5e-4)
