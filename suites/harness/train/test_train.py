"""One training run: a pure function, tested once, at the epoch chosen on dev."""

from __future__ import annotations

import gzip
import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.errors import UsageError
from harness.registry import Registry
from harness.train import objective, run, trainer
from harness.train.batches import gather, lengths, order, padded
from harness.train.objective import METRICS
from harness.train.run import count_parameters, train_run
from harness.train.task import Split, task, tasks
from harness.train.tasks.mirrored_summation import examples, load
from reference_impls.mechanism import Size
from reference_impls.source2token import MECHANISMS as POOLINGS
from suites.support.made_up_data import write_data_directory

SMALL: dict[str, Any] = {
    "width": 12,
    "heads": 2,
    "hidden": 10,
    "epochs": 3,
    "batch": 16,
    "rate": 5e-3,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data_directory(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def train(
    data: Path, model: str = "mtsa", name: str = "trec", seed: int = 0, **recipe: Any
) -> dict:
    chosen = replace(task(name).recipe, **{**SMALL, **recipe})
    return train_run(
        model, name, chosen.as_dict(), seed, directory=str(data), vectors=task(name).vectors
    )


def metrics_of(record: dict) -> list:
    return [(e["loss"], e["dev"], e.get("test")) for e in record["epochs"]] + [record.get("test")]


@pytest.mark.parametrize("name", ["trec", "sick_relatedness"])
@pytest.mark.parametrize("model", ["mtsa", "multi_head", "bi_lstm", "source2token"])
def test_the_same_run_twice_is_the_same(data: Path, name: str, model: str) -> None:
    # source2token has no width of its own: it pools the words, as papers' "no context fusion" row.
    recipe = {"width": 30 if name == "sick_relatedness" else 20} if model == "source2token" else {}
    first, again = (train(data, model, name, **recipe) for _ in range(2))
    assert metrics_of(first) == metrics_of(again)
    assert metrics_of(train(data, model, name, seed=1, **recipe)) != metrics_of(first)
    assert set(first["test"]) == set(task(name).metrics)


def test_it_learns(data: Path) -> None:
    record = train(data, epochs=12, dropout=0.1)
    assert record["test"]["accuracy"] > 0.8  # a sixth by chance
    assert record["epochs"][-1]["loss"] < 0.5 * record["epochs"][0]["loss"]


def test_the_test_set_is_looked_at_once_at_the_best_dev_epoch(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = trainer.evaluate

    def counting(which: Any, module: Any, split: Split, device: Any) -> dict[str, float]:
        seen.append(len(split))
        return real(which, module, split, device)

    monkeypatch.setattr(trainer, "evaluate", counting)
    record = train(data, epochs=8, patience=8)
    sizes = record["examples"]
    assert len(set(sizes.values())) == 3
    assert seen.count(sizes["test"]) == 1
    assert seen[-1] == sizes["test"]
    assert seen.count(sizes["dev"]) == 8
    dev = [e["dev"]["accuracy"] for e in record["epochs"]]
    assert record["chosen_epoch"] == dev.index(max(dev)) + 1
    assert all("test" not in e for e in record["epochs"])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_chosen_epochs_weights_are_tested(data: Path, seed: int) -> None:
    """Training that ends at the chosen epoch gives the very same test metric."""
    whole = train(data, seed=seed, epochs=6, patience=6, rate=2e-2)
    cut = train(data, seed=seed, epochs=whole["chosen_epoch"], patience=6, rate=2e-2)
    assert cut["test"] == whole["test"]


def test_lower_is_better_for_errors() -> None:
    small = {"length": 4, "width": 3, "k": 1, "train": 200, "test": 100}
    record = _mirrored(small, epochs=5, patience=5, rate=5e-2)
    dev = [e["dev"]["mse"] for e in record["epochs"]]
    assert record["chosen_epoch"] == dev.index(min(dev)) + 1


def _mirrored(options: dict, **recipe: Any) -> dict:
    name = "mirrored_summation"
    chosen = replace(task(name).recipe, **{**SMALL, **recipe})
    with pytest.MonkeyPatch.context() as patch:
        record = replace(task(name), options=options)
        patch.setattr(run.tasks, "task", lambda _: record)
        return train_run("mtsa", name, chosen.as_dict(), 0)


def test_best_over_time_is_chosen_by_the_test_set(data: Path) -> None:
    record = train(data, epochs=6, patience=6, choose="best-on-test")
    found = [e["test"]["accuracy"] for e in record["epochs"]]
    assert record["test"]["accuracy"] == max(found)
    assert record["chosen_epoch"] == found.index(max(found)) + 1


def test_patience_ends_a_run(data: Path) -> None:
    record = train(data, epochs=30, patience=2, rate=1e-9)
    assert len(record["epochs"]) == record["chosen_epoch"] + 2 < 30


@pytest.mark.parametrize("name", ["trec", "sick_relatedness"])
def test_divergence_is_told(data: Path, name: str) -> None:
    record = train(data, name=name, rate=1e30, clip=0.0)
    assert "is nan" in record["diverged"] or "is inf" in record["diverged"]
    assert "test" not in record
    assert "chosen_epoch" not in record
    assert record["seconds"] > 0


def test_order_and_split_are_those_of_the_seed_not_of_the_model(data: Path) -> None:
    seen: dict[tuple[str, int], list] = {}
    real = trainer.gather
    for model, seed in (("mtsa", 0), ("multi_head", 0), ("mtsa", 1)):
        batches: list = []

        def noting(split: Split, index: Any, device: Any, found: list = batches) -> Any:
            found.append([split.inputs[0][i] for i in index])
            return real(split, index, device)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trainer, "gather", noting)
            train(data, model, seed=seed, epochs=2)
        seen[model, seed] = batches
    assert seen["mtsa", 0] == seen["multi_head", 0]
    assert seen["mtsa", 0] != seen["mtsa", 1]
    half = len(seen["mtsa", 0]) // 2
    assert seen["mtsa", 0][:half] != seen["mtsa", 0][half:], "every epoch has the same order"


def test_dropout_is_on_in_training_and_off_in_evaluation(data: Path) -> None:
    modes: list[bool] = []
    real = run.build

    def noting(*arguments: Any) -> Any:
        module = real(*arguments)
        module.register_forward_pre_hook(lambda module, _: modes.append(module.training))
        return module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "build", noting)
        train(data, epochs=3)
    steps, looks = -(-216 // SMALL["batch"]), 1  # dev in one batch
    assert modes == ([True] * steps + [False] * looks) * 3 + [False]


def test_dev_is_held_out_of_train_and_drawn_by_the_seed(data: Path) -> None:
    splits = {}
    for seed in (0, 1):
        d = run.load(task("trec"), task("trec").recipe, str(data), "none", seed)
        sizes = {name: len(getattr(d, name)) for name in ("train", "dev", "test")}
        assert sizes == {"train": 216, "dev": 24, "test": 60}
        splits[seed] = d
    a, b = (sorted(map(tuple, splits[s].dev.inputs[0])) for s in (0, 1))
    assert a != b


def test_sick_has_its_official_splits(data: Path) -> None:
    record = task("sick_relatedness")
    d = run.load(record, record.recipe, str(data), "none", 3)
    assert (len(d.train), len(d.dev), len(d.test)) == (120, 40, 60)
    assert d.width == record.recipe.word_width
    assert all(len(side) == 60 for side in d.test.inputs)


def test_a_batch_does_not_change_a_prediction(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    d = run.load(task("trec"), task("trec").recipe, str(data), task("trec").vectors, 0)
    recipe = replace(task("trec").recipe, **SMALL)
    module = objective.build(task("trec"), "mtsa", {}, d, recipe, Registry(), 0)
    module.eval()
    device = torch.device("cpu")
    logits = []
    for size in (1, 7, 60):
        out = torch.empty(len(d.test), 6)
        for index in objective.in_order(d.test, size):
            inputs, _ = gather(d.test, index, device)
            out[torch.from_numpy(index)] = module(*inputs).detach()
        logits.append(out)
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-5)
    torch.testing.assert_close(logits[0], logits[2], rtol=0, atol=1e-5)
    predicted = objective.predict(task("trec"), module, d.test, device)
    assert (predicted == logits[0].argmax(-1).numpy()).all()


def test_no_part_shares_its_random_numbers_with_another(data: Path) -> None:
    every = [objective.stream(seed, part) for seed in range(50) for part in objective.STREAMS]
    assert len(set(every)) == len(every)
    d = run.load(task("trec"), task("trec").recipe, str(data), task("trec").vectors, 0)
    recipe = replace(task("trec").recipe, **{**SMALL, "width": 20, "hidden": 20})
    modules = [
        objective.build(task("trec"), "mtsa", {}, d, recipe, Registry(), seed) for seed in (0, 1)
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


@pytest.mark.parametrize(
    ("name", "split", "keep", "says"),
    [
        ("trec", "train", 4, "the dev split has no example"),
        ("sick_relatedness", "train", 0, "the train split has no example"),
        ("sick_relatedness", "dev", 1, "all degrees of dev are"),
    ],
)
def test_too_little_data_is_a_users_mistake(
    tmp_path: Path, name: str, split: str, keep: int, says: str
) -> None:
    folder = write_data_directory(tmp_path / "data")
    path = folder / name.partition("_")[0] / f"{split}.tsv.gz"
    lines = gzip.decompress(path.read_bytes()).split(b"\n")
    path.write_bytes(gzip.compress(b"\n".join([*lines[: keep + 1], b""])))
    with pytest.raises(UsageError, match=says):
        run.load(task(name), task(name).recipe, str(folder), "none", 0)


def test_a_degree_is_predicted_by_its_expectation(data: Path) -> None:
    record = task("sick_relatedness")
    d = run.load(record, record.recipe, str(data), record.vectors, 0)
    recipe = replace(record.recipe, **SMALL)
    module = objective.build(record, "mtsa", {}, d, recipe, Registry(), 0)
    predicted = objective.predict(record, module, d.test, torch.device("cpu"))
    inputs, _ = gather(d.test, np.arange(len(d.test)), torch.device("cpu"))
    shares = module(*inputs).detach().double().softmax(-1).numpy()
    expected = sum((degree + 1) * shares[:, degree] for degree in range(5))
    assert predicted == pytest.approx(expected, abs=1e-5)


def test_padding_stays_zero_and_words_are_fine_tuned(data: Path) -> None:
    kept: dict[str, torch.Tensor] = {}
    real = run.build

    def noting(*arguments: Any) -> Any:
        module = real(*arguments)
        words: Any = module.get_submodule("embedding.words")
        kept["before"], kept["after"] = words.weight.detach().clone(), words.weight
        return module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "build", noting)
        train(data)
    assert (kept["after"][0] == 0).all()
    moved = (kept["after"] != kept["before"]).any(1)
    assert moved[1]  # rare words train the unknown one
    assert moved.float().mean() > 0.3


@pytest.mark.parametrize("width", [12, 24])
def test_parameters_are_those_of_the_formulas(data: Path, width: int) -> None:
    registry = Registry()
    for model in ("mtsa", "multi_head"):
        record = train(data, model, epochs=1, width=width)
        formula = registry.mechanism(model).parameters
        assert formula is not None
        assert POOLINGS[0].parameters is not None
        fusion = formula(Size(1, 1, 20, width, heads=2))
        pooling = POOLINGS[0].parameters(Size(1, 1, width, width))
        head = width * 10 + 10 + 10 * 6
        assert record["parameters"] == fusion + pooling + head
        words = record["parameters_with_words"] - record["parameters"]
        assert words % 20 == 0
        counted = count_parameters(
            model,
            "trec",
            replace(task("trec").recipe, **SMALL).as_dict(),
            directory=str(data),
            vectors=task("trec").vectors,
            widths=[width],
        )
        assert counted == [record["parameters"]]


def test_a_record_says_what_it_cost(data: Path) -> None:
    record = train(data)
    assert record["peak_bytes"] > 0
    assert record["seconds"] > sum(e["seconds"] for e in record["epochs"]) > 0
    assert record["coverage"]["covered"] < record["coverage"]["vocabulary"]


# Data


def test_mirrored_summation_by_hand() -> None:
    split = examples(np.random.default_rng(3), 5, 7, 2, 3)
    a = split.inputs[0]
    assert a.min() >= 0
    assert a.max() < 1
    for s in range(5):
        for d in range(2):
            expected = sum(a[s, i - 1, d] * a[s, 7 - i, d] for i in (1, 2, 3))
            assert split.targets[s, d] == pytest.approx(expected, rel=1e-6)


def test_every_seed_has_data_of_its_own() -> None:
    sizes = {"length": 5, "width": 2, "k": 2, "train": 50, "test": 30}
    one, same, other = (load(None, "", 0, seed, **sizes) for seed in (0, 0, 1))
    assert (len(one.train), len(one.dev), len(one.test)) == (45, 5, 30)
    assert (one.test.inputs[0] == same.test.inputs[0]).all()
    assert (one.test.inputs[0] != other.test.inputs[0]).all()
    everything = np.concatenate([s.inputs[0] for s in (one.train, one.dev, one.test)])
    assert len(np.unique(everything.reshape(80, -1), axis=0)) == 80


def test_tasks_are_complete() -> None:
    for name, record in tasks().items():
        assert record.name == name
        assert set(record.metrics) <= set(METRICS)
        assert bool(record.files) == bool(record.vectors)
        assert record.options or record.files
    assert tasks()["mirrored_summation"].options["train"] == 20_000
    paper = tasks()["mirrored_summation_paper"].options
    assert (paper["length"], paper["width"], paper["train"]) == (100, 50, 200_000)


REAL = os.environ.get("ATTNBENCH_DATA", "")


@pytest.mark.skipif(not REAL, reason="ATTNBENCH_DATA names no data directory")
@pytest.mark.parametrize(
    ("name", "sizes", "width", "floor"),
    [("trec", (4907, 545, 500), 100, 0.6), ("sick_relatedness", (4500, 500, 4927), 300, 0.3)],
)
def test_real_corpora_are_learnt_from(
    name: str, sizes: tuple[int, ...], width: int, floor: float
) -> None:
    record = task(name)
    d = run.load(record, record.recipe, REAL, record.vectors, 0)
    assert (len(d.train), len(d.dev), len(d.test)) == sizes
    assert d.width == width
    found = train(Path(REAL), name=name, width=24, hidden=24, epochs=2, dropout=0.1)
    assert found["test"][record.metric] > floor  # the largest class of TREC's test set has 0.28


# Batches


@pytest.mark.parametrize(("count", "batch"), [(1, 4), (7, 4), (500, 8), (321, 1)])
def test_every_example_once_per_epoch(count: int, batch: int) -> None:
    sizes = np.random.default_rng(0).integers(1, 30, count)
    for epoch in range(2):
        found = order(sizes, batch, np.random.default_rng([1, epoch]))
        assert sorted(np.concatenate(found)) == list(range(count))
        assert max(map(len, found)) <= batch
        assert len(found) <= -(-count // batch) + 2


def test_batches_hold_examples_of_like_length_in_random_order() -> None:
    sizes = np.random.default_rng(0).integers(1, 40, 2000)
    found = order(sizes, 20, np.random.default_rng(1))
    padding = sum(len(b) * sizes[b].max() for b in found) / sizes.sum()
    assert padding < 1.1
    means = [sizes[b].mean() for b in found]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3
    other = order(sizes, 20, np.random.default_rng(2))
    assert any(set(a) != set(b) for a, b in zip(found, other, strict=True))


def test_padding_is_zero_and_behind() -> None:
    assert padded([[5], [1, 2, 3], []]).tolist() == [[5, 0, 0], [1, 2, 3], [0, 0, 0]]
    assert padded([[]]).tolist() == [[0]]


def test_the_longer_sentence_of_a_pair_counts() -> None:
    split = Split(([[1], [1, 2]], [[1, 2, 3], [1]]), np.zeros(2, dtype=np.float32))
    assert lengths(split).tolist() == [3, 2]


# Metrics


def test_metrics_by_hand() -> None:
    predicted, targets = np.array([1.0, 2.0, 3.0, 5.0]), np.array([2.0, 2.0, 4.0, 4.0])
    assert METRICS["mse"](predicted, targets) == pytest.approx(0.75)
    assert METRICS["relative_mse"](predicted, targets) == pytest.approx(0.75 / 1.0)
    assert METRICS["pearson"](predicted, targets) == pytest.approx(5 / (8.75 * 4) ** 0.5)
    # Ranks 1 2 3 4 and 1.5 1.5 3.5 3.5.
    assert METRICS["spearman"](predicted, targets) == pytest.approx(4 / (5 * 4) ** 0.5)
    assert METRICS["accuracy"](np.array([1, 2, 3]), np.array([1, 0, 3])) == pytest.approx(2 / 3)


def test_a_constant_prediction_explains_nothing() -> None:
    targets = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    constant = np.broadcast_to(targets.mean(axis=0), targets.shape)
    assert METRICS["relative_mse"](constant, targets) == pytest.approx(1, rel=1e-5)
    for name in ("pearson", "spearman"):
        assert METRICS[name](np.ones(50), targets[:, 0]) == 0.0
