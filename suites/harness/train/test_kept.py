"""What a run keeps of its test predictions: enough to judge it again, example by example."""

from __future__ import annotations

import base64
import gzip
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from harness.registry import resolve
from harness.train.data.directory import read_table
from harness.train.data.examples import Examples, in_splits
from harness.train.objective import objective_of
from harness.train.task import Data, Split, load, task
from suites.support.made_up_data import write_data_directory, write_table
from suites.support.real_data import REAL, real
from suites.support.training import kept, numbers, train, trained


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


def test_predictions_do_not_depend_on_when_they_were_made(folder: Path) -> None:
    first, again, other = (train(folder, epochs=2), train(folder, epochs=2), train(folder, seed=1))
    assert numbers(first)["predictions"] == numbers(again)["predictions"]
    assert first["predictions"] != other["predictions"]


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
    # By tokens as loaded. An eleventh stands there in capitals: "What are the twin cities ?", in
    # training "Twin Cities".
    "trec": (10, 500),
    "sick_relatedness": (49, 4927),
}


@real("trec/train.tsv.gz", "sick/train.tsv.gz")
@pytest.mark.parametrize("name", COUNTS)
def test_so_many_real_test_examples_stand_in_the_training_set(name: str) -> None:
    data = load(task(name), task(name).recipe, str(REAL), "none", seed=3)
    assert (int(data.seen.sum()), len(data.seen)) == COUNTS[name]


@real("trec/train.tsv.gz")
def test_one_more_differs_from_a_training_question_in_capitals_alone() -> None:
    reader = resolve(task("trec").load)
    train_table, test = (
        [row["text"].split() for row in read_table(REAL / f"{name}.gz", ("text",))]
        for name in reader.files
    )
    as_they_are = {tuple(tokens) for tokens in train_table}
    lowered = {tuple(t.lower() for t in tokens) for tokens in train_table}
    more = [
        " ".join(tokens)
        for tokens in test
        if tuple(tokens) not in as_they_are and tuple(t.lower() for t in tokens) in lowered
    ]
    assert more == ["What are the twin cities ?"]


@real("mpqa/all.tsv.gz")
def test_the_folds_of_mpqa_share_three_tenths_of_their_texts() -> None:
    record = task("mpqa")
    seen = [load(record, record.recipe, str(REAL), "none", 0, fold).seen for fold in range(10)]
    both = np.concatenate([one for one in seen if one is not None])
    assert len(both) == 10_603
    assert both.mean() == pytest.approx(0.297, abs=5e-4)
