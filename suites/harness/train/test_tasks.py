"""Every task, its folds and corpora: made-up files, and the real ones."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import subprocess
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness import registry
from harness.errors import UsageError
from harness.experiments.design import Surroundings, make_run
from harness.experiments.model import Model
from harness.options.train import SweepOptions, TrainOptions
from harness.registry import Registry
from harness.train.batches import gather
from harness.train.data.corpora import (
    corpora,
    data_digest,
    is_known,
    supplied,
    tasks_of,
    unlike,
)
from harness.train.data.directory import corpus_files, read_table
from harness.train.data.examples import cross_validated, folds_of, held_out
from harness.train.objective import objective_of
from harness.train.task import Data, load, task, tasks
from harness.train.tasks.mirrored_summation import examples, knowing_the_sum
from harness.train.tasks.sst5 import tokens
from suites.support.command_line import here, verified_before
from suites.support.fake_training import at_once
from suites.support.made_up_data import (
    write_data_directory,
    write_more_corpora,
    write_reviews,
    write_table,
)
from suites.support.real_data import REAL, real
from suites.support.training import loaded, small

FOLDED = ("cr", "mpqa", "subj", "mr")
PINNED = "ba05913e9df08a88"
"""Hash of the order in which the folds of CR are cut."""


def _snli(folder: Path, split: str) -> list[dict[str, str]]:
    return read_table(folder / "snli" / f"{split}.tsv.gz", ("label", "sentence1", "sentence2"))


def _load(name: str, folder: Path, seed: int = 0, fold: int | None = None) -> Data:
    return loaded(folder, name, "none", seed, 0 if task(name).folds and fold is None else fold)


# Every task.


@pytest.mark.parametrize(
    ("name", "sizes", "inputs", "outputs"),
    [
        ("trec", (216, 24, 60), 1, 6),
        ("sst5", (60, 20, 30), 1, 5),
        ("cr", (49, 5, 6), 1, 2),
        ("mpqa", (49, 5, 6), 1, 2),
        ("subj", (49, 5, 6), 1, 2),
        ("mr", (49, 5, 6), 1, 2),
        ("sick_relatedness", (120, 40, 60), 2, 5),
        ("sick_entailment", (120, 40, 60), 2, 3),
        ("snli", (30, 30, 30), 2, 3),
    ],
)
def test_a_task_loads(
    folder: Path, name: str, sizes: tuple[int, ...], inputs: int, outputs: int
) -> None:
    data = _load(name, folder)
    assert tuple(len(getattr(data, split)) for split in ("train", "dev", "test")) == sizes
    assert len(data.train.inputs) == inputs == 1 + task(name).pairs
    assert data.outputs == outputs
    assert data.embedding.dtype == np.float32
    for split in (data.train, data.dev, data.test):
        assert all(len(side) == len(split) for side in split.inputs)
        assert all(ids and min(ids) > 0 for side in split.inputs for ids in side)
        if task(name).kind == "classification":
            assert split.targets.dtype == np.int64
            assert 0 <= split.targets.min() <= split.targets.max() < outputs
        else:
            assert split.targets.dtype == np.float32
    text = "a man is playing"
    assert data.encode(text) == [data.encode(word)[0] for word in text.split()]


@pytest.mark.parametrize("name", ["trec", "cr", "snli", "ud_ewt", "mirrored_summation"])
def test_the_first_rows_of_a_task_are_another_task(folder: Path, name: str) -> None:
    few = task(f"{name}[rows=5]")
    assert (few.name, few.summary[-13:]) == (f"{name}[rows=5]", "; here rows=5")
    assert task(f"{name}[rows=0]").name == name
    whole, cut = _load(name, folder), _load(few.name, folder)
    for split in ("train", "dev", "test"):
        mine, every = getattr(cut, split), getattr(whole, split)
        assert [len(mine), *map(len, mine.inputs)] == [5] * (1 + len(mine.inputs))
        for a, b in zip((*mine.inputs, mine.targets), (*every.inputs, every.targets), strict=True):
            assert all(np.array_equal(x, y) for x, y in zip(a, b[:5], strict=True))
        assert mine.also.keys() == every.also.keys()
        if name == "ud_ewt":
            assert len(mine.also["unseen"]) == 5
            assert mine.also["tags"] == every.also["tags"]
    if name != "mirrored_summation":
        assert cut.test_items.tolist() == whole.test_items.tolist()[:5]
        assert cut.seen.tolist() == whole.seen.tolist()[:5]


def test_targets_are_those_of_the_lines(folder: Path) -> None:
    rows = _snli(folder, "test")
    data = _load("snli", folder)
    names = ("entailment", "neutral", "contradiction")
    assert [names[t] for t in data.test.targets] == [row["label"] for row in rows]
    assert data.test.inputs[1] == [data.encode(row["sentence2"]) for row in rows]
    table = read_table(folder / "sick" / "dev.tsv.gz", ("label", "sentence_a"))
    data = _load("sick_entailment", folder)
    assert [names[t] for t in data.dev.targets] == [row["label"] for row in table]
    assert data.dev.inputs[0] == [data.encode(row["sentence_a"]) for row in table]


def test_tasks_are_complete() -> None:
    known = {file.name for corpus in corpora().values() for file in corpus.files}
    for name, record in tasks().items():
        assert record.name == name
        assert set(record.metrics) <= set(objective_of(record.kind).metrics)
        assert bool(record.files) == bool(record.vectors)
        assert set(record.files) <= known | set(supplied())
        assert all(name in tasks_of(file.partition("/")[0]) for file in record.files)
    paper = tasks()["mirrored_summation_paper"].options
    assert (paper["length"], paper["width"], paper["train"]) == (100, 50, 200_000)


@pytest.mark.parametrize(("length", "k"), [(24, 1), (24, 6), (24, 12), (100, 25)])
def test_so_much_is_left_to_who_knows_the_sum_of_all_tokens(length: int, k: int) -> None:
    split = examples(np.random.default_rng(0), 50_000, length, 4, k)
    total, targets = split.inputs[0].sum(1, dtype=np.float64), split.targets.astype(np.float64)
    r = [np.corrcoef(total[:, d], targets[:, d])[0, 1] for d in range(4)]
    assert 1 - np.mean(np.square(r)) == pytest.approx(knowing_the_sum(length, k), abs=0.01)


def test_a_target_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    write_table(tmp_path / "cr" / "all.tsv.gz", ("label", "text"), [["1", "good"], ["2", "bad"]])
    with pytest.raises(UsageError, match=r"cr/all.tsv.gz:3: label '2'; expected 0, 1"):
        _load("cr", tmp_path)
    columns = ("relatedness", "sentence_a", "sentence_b")
    write_table(tmp_path / "cr" / "all.tsv.gz", ("label", "text"), [["1", "good"], ["0", " "]])
    with pytest.raises(UsageError, match=r"all.tsv.gz:3: text is empty; expected a text: leave"):
        _load("cr", tmp_path)
    for degree in ("6", "much"):
        write_table(tmp_path / "sick" / "train.tsv.gz", columns, [[degree, "a man", "the man"]])
        with pytest.raises(UsageError, match=f"'{degree}'; expected a number from 1 to 5"):
            _load("sick_relatedness", tmp_path)


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
    path = write_data_directory(tmp_path) / name.partition("_")[0] / f"{split}.tsv.gz"
    lines = gzip.decompress(path.read_bytes()).split(b"\n")
    path.write_bytes(gzip.compress(b"\n".join([*lines[: keep + 1], b""])))
    with pytest.raises(UsageError, match=says):
        _load(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        *product(("trec", "mirrored_summation"), registry.builtins()),
        # A pair's sentences are encoded as single ones are: tokens, own width kept, a sentence.
        *product(("sick_relatedness", "sick_entailment"), ("mtsa", "mtsa_stack", "source2token")),
    ],
)
def test_any_mechanism_trains_on_any_kind_of_task(folder: Path, name: str, model: str) -> None:
    """With the task's own recipe, whatever the mechanism asks of widths and heads."""
    record = task(name)
    data = loaded(folder, name if record.files else f"{name}[train=40,test=10]")
    module = objective_of(record.kind).build(record, model, {}, data, record.recipe, Registry(), 0)
    inputs, targets = gather(data.train, np.arange(4), torch.device("cpu"))
    output = module(*inputs)
    shape = data.train.targets.shape[1:] if record.kind == "regression" else (data.outputs,)
    assert output.shape == (4, *shape)
    objective_of(record.kind).losses(record.recipe, output, targets).mean().backward()
    moved = [p for p in module.parameters() if p.grad is not None and p.grad.abs().sum() > 0]
    assert moved
    assert torch.isfinite(output).all()


def test_a_mechanism_that_keeps_its_width_trains_at_the_recipes_width(folder: Path) -> None:
    record, recipe = task("trec"), small("trec", width=24, heads=4)
    data = load(record, recipe, str(folder), record.vectors, 0)
    module = objective_of(record.kind).build(record, "mtsa_stack", {}, data, recipe, Registry(), 0)
    entry: Any = module.get_submodule("encoder.entry")
    assert entry.w.shape == (data.width, 24)
    alone = objective_of(record.kind).build(record, "source2token", {}, data, recipe, Registry(), 0)
    hidden: Any = alone.get_submodule("hidden")
    assert hidden.w.shape[0] == data.width, "pooling alone has the words' own width"


@pytest.mark.parametrize(
    "name",
    ["wnut17", "ud_ewt", "snli", "mtl16[domain=books]", "multi30k[subwords=40]", "rewriting"],
)
def test_a_tiny_run_of_a_task_shows_that_it_works(folder: Path, tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    write_reviews(data)
    for file in task("multi30k").files:
        rows = [["the man sees a red dog", "der mann sieht ein rote hund"]] * 120
        write_table(data / f"{file}.gz", ("en_tok", "de_tok"), rows)
    verified_before(tmp_path / "results")
    given = [] if name == "rewriting" else ["--data", str(data)]
    line = f"train multi_head --task {name} --tiny --device cpu --recipe width=16 --recipe heads=2"
    done = here(*line.split(), *given, "--json", "out.json", cwd=tmp_path, code=0)
    record = json.loads((tmp_path / "out.json").read_text())
    few = f"{name.removesuffix(']')}{',' if '[' in name else '['}rows=100]"
    assert (record["task"], len(record["epochs"])) == (task(few).name, 2)
    assert max(record["examples"].values()) <= 100
    assert 0 < record["epochs"][1]["passes"] < record["epochs"][1]["seconds"]
    assert re.search(
        r"of an epoch \d+% are forward and backward passes, \d+% judging it", done.stdout
    )


def test_tiny_holds_beside_a_named_recipe_and_is_no_part_of_a_file() -> None:
    tiny = TrainOptions(name="mtsa", tiny=True, recipe=("paper",))
    assert tiny.changes == ("paper", "epochs=2"), "a named recipe sets every field"
    assert TrainOptions(name="mtsa", tiny=True, recipe=("epochs=3",)).changes == ("epochs=3",)
    assert [tiny.sized(t) for t in ("trec", "trec[rows=5]")] == ["trec[rows=100]", "trec[rows=5]"]
    with pytest.raises(UsageError, match="--tiny beside plan"):
        SweepOptions(plan=Path("plan.toml"), tiny=True)


# Folds.


def test_folds_are_a_random_cut_and_stay_the_same_for_ever() -> None:
    for count, folds in ((60, 10), (10_603, 10), (7, 3), (3771, 10)):
        parts = folds_of(count, folds)
        assert sorted(np.concatenate(parts)) == list(range(count))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert len(parts) == folds
    joined = ",".join(str(i) for part in parts for i in part)
    assert hashlib.sha256(joined.encode()).hexdigest()[:16] == PINNED


@pytest.mark.parametrize("name", FOLDED)
def test_a_fold_is_tested_on_what_the_others_train_on(folder: Path, name: str) -> None:
    rows = read_table(folder / name / "all.tsv.gz", ("label", "text"))
    tested: list[int] = []
    for fold in range(10):
        index = cross_validated(len(rows), 10, fold, seed=5)
        assert sorted(np.concatenate(list(index.values()))) == list(range(len(rows)))
        tested += list(index["test"])
    assert sorted(tested) == list(range(len(rows)))
    data = _load(name, folder, seed=5, fold=9)
    assert [data.encode(rows[i]["text"]) for i in index["test"]] == data.test.inputs[0]
    assert [int(rows[i]["label"]) for i in index["dev"]] == data.dev.targets.tolist()


def test_seeds_share_the_folds_and_draw_their_own_dev(folder: Path) -> None:
    one, two, other = (cross_validated(3771, 10, f, seed) for f, seed in ((4, 0), (4, 1), (5, 0)))
    assert (len(one["train"]), len(one["dev"]), len(one["test"])) == (3055, 339, 377)
    assert (one["test"] == two["test"]).all()
    shared = len(set(one["dev"]) & set(two["dev"])) / len(one["dev"])
    assert 0.03 < shared < 0.2  # a tenth by chance
    same = np.flatnonzero(np.isin(other["dev"], one["dev"]))
    assert len(same) < 0.3 * len(one["dev"]), "the same draw for another fold"
    kept, dev = held_out(5452, 3)
    assert (len(kept), len(dev)) == (4907, 545)
    first, second = (_load("trec", folder, seed).dev.inputs[0] for seed in (0, 1))
    assert sorted(first) != sorted(second)


@pytest.mark.parametrize(
    ("name", "fold", "says"),
    [
        ("cr", None, "given no fold; task cr has 10 folds: expected --fold 0 to 9"),
        ("cr", 10, "given fold 10; task cr has 10 folds"),
        ("cr", -1, "given fold -1"),
        ("trec", 0, "fold 0: task trec has one split"),
    ],
)
def test_a_wrong_fold_is_told(folder: Path, name: str, fold: int | None, says: str) -> None:
    record = task(name)
    with pytest.raises(UsageError, match=says):
        loaded(folder, name, "none", fold=fold)
    with pytest.raises(UsageError, match=says):
        make_run(Model("mtsa.algorithm1"), record, record.recipe, 0, _around(), fold)


def _around() -> Surroundings:
    return Surroundings(Registry(), {"device": "cpu"})


def test_another_tasks_code_is_not_a_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is added, or its recipe changed, leaves the others' runs as they are."""
    read: list[Path] = []

    def noting(files: Any) -> str:
        read.extend(files)
        return "hash"

    monkeypatch.setattr(registry, "_digest", noting)
    registry.harness_hash.__wrapped__("train")
    # The last two: tags become spans, and inputs numbers, outside of the package.
    needed = {"run.py", "trainer.py", "examples.py", "sums.py", "inputs.py"}
    assert needed <= {path.name for path in read}
    assert not any(path.parent.name == "tasks" for path in read)
    read.clear()
    registry.module_hash.__wrapped__(task("trec").load)
    assert [path.name for path in read] == ["trec.py"]


def test_train_takes_a_fold(folder: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    line = f"train none --task cr --vectors none --device cpu --data {folder} --json run.json"
    with at_once():
        here(f"{line} --fold 3", cwd=tmp_path, code=0)
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["seed"], record["fold"]) == (0, 3)
    assert record["case"].endswith(" cr seed 0 fold 3")
    assert "expected --fold 0 to 9" in here(line, cwd=tmp_path, code=2).stderr


# Options of a task.


def test_options_are_part_of_a_tasks_name() -> None:
    plain = task("mirrored_summation")
    ten = task("mirrored_summation[k=10]")
    assert ten.options == {**plain.options, "k": 10}
    assert ten.name == "mirrored_summation[k=10]" == task(ten.name).name
    swapped = ("mirrored_summation[width=8,k=10]", "mirrored_summation[k=10,width=8]")
    assert len({task(name).name for name in swapped}) == 1
    assert task("mirrored_summation[k=6]") == plain == task("mirrored_summation[]")
    runs = {
        make_run(Model("mtsa.algorithm1"), each, each.recipe, 0, _around()).key
        for each in (plain, ten)
    }
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "mirrored_summation[q=3]",
            "has no option 'q'; it has length, width, k, train, test, rows",
        ),
        ("mirrored_summation[k=x]", "k=x; expected a whole number"),
        ("mirrored_summation[k]", "given 'k'; expected name=value"),
        ("cr[corpus=mr]", "task cr has no option 'corpus'; it has rows"),
        ("cr[rows=-1]", "given rows=-1; expected 1 or more, 0 for all"),
        ("cr[rows=few]", "rows=few; expected a whole number"),
        ("cr[rows=2,rows=3]", "given rows twice; expected each option once"),
        ("mirrored_summation[rows=1]", "all targets of train are the same; no relative error"),
        ("mirored[k=3]", "unknown task 'mirored'"),
        ("mirrored_summation[k=25]", "k=25 with length=24"),
        ("mirrored_summation[train=0]", "train=0; expected at"),
        ("neighbour_tags[words=1]", "words=1; expected from 2"),
        ("neighbour_tags[distance=0]", "distance=0; expected at least 1"),
        ("rewriting[rule=turn]", "rule=turn; expected copy, reverse, swap"),
    ],
)
def test_a_wrong_option_of_a_task_is_told(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        loaded(None, text)


def test_mirrored_summation_by_hand() -> None:
    split = examples(np.random.default_rng(3), 5, 7, 2, 3)
    a = split.inputs[0]
    assert 0 <= a.min() < a.max() < 1
    for s in range(5):
        for d in range(2):
            expected = sum(a[s, i - 1, d] * a[s, 7 - i, d] for i in (1, 2, 3))
            assert split.targets[s, d] == pytest.approx(expected, rel=1e-6)


def test_every_seed_has_data_of_its_own() -> None:
    name = "mirrored_summation[length=5,width=2,k=2,train=50,test=30]"
    one, same, other = (loaded(None, name, seed=seed) for seed in (0, 0, 1))
    assert (len(one.train), len(one.dev), len(one.test)) == (45, 5, 30)
    assert (one.test.inputs[0] == same.test.inputs[0]).all()
    assert (one.test.inputs[0] != other.test.inputs[0]).all()
    everything = np.concatenate([s.inputs[0] for s in (one.train, one.dev, one.test)])
    assert len(np.unique(everything.reshape(80, -1), axis=0)) == 80


# SST-5.


def test_escapes_of_the_tree_bank_are_undone() -> None:
    text = r"-LRB- A co-writer\/director ... \*\*\* -RRB- `` so ''"
    assert " ".join(tokens(text)) == "( A co-writer/director ... *** ) `` so ''"


def test_phrases_are_trained_on_once_each_and_sentences_tested(folder: Path) -> None:
    rows = read_table(folder / "sst5" / "train_phrases.tsv.gz", ("text",))
    phrases, sentences = _load("sst5_phrases", folder), _load("sst5", folder)
    assert len(phrases.train) == len(rows) == len({row["text"] for row in rows})
    assert phrases.test.targets.tolist() == sentences.test.targets.tolist()
    assert len(phrases.dev) == len(sentences.dev)


# SNLI, whose training file the user makes.


def test_how_the_training_file_is_made_is_told_in_one_line(tmp_path: Path) -> None:
    folder = write_more_corpora(write_data_directory(tmp_path / "data"))
    record = task("snli")
    with pytest.raises(UsageError, match=r"no file .*snli/train.tsv.gz: .*e-SNLI") as caught:
        corpus_files(folder, record.files, record.supplied)
    message = str(caught.value)
    assert "\n" not in message
    rows = _snli(folder, "dev")
    for name, column in (("labels", "label"), ("s1", "sentence1"), ("s2", "sentence2")):
        text = "".join(row[column] + "\n" for row in rows)
        (tmp_path / f"{name}.train").write_text(text)
    command = message.partition(" and run ")[2]
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    assert _snli(folder, "train") == rows
    assert len(corpus_files(folder, record.files, record.supplied)) == 3
    assert len(_load("snli", folder).train) == 30


# The real corpora.


@real("cr/all.tsv.gz", "sst5/train_phrases.tsv.gz", "sick/train.tsv.gz", "trec/train.tsv.gz")
@pytest.mark.parametrize(
    ("name", "sizes", "classes"),
    [
        ("trec", (4907, 545, 500), None),
        ("cr", (3054, 339, 378), {0: 1366, 1: 2405}),
        ("mpqa", (8588, 954, 1061), {0: 7292, 1: 3311}),
        ("subj", (8100, 900, 1000), {0: 5000, 1: 5000}),
        ("mr", (8635, 960, 1067), {0: 5331, 1: 5331}),
        ("sst5", (8544, 1101, 2210), None),
        pytest.param("sst5_phrases", (159_274, 1101, 2210), None, marks=pytest.mark.nightly),
        ("sick_entailment", (4500, 500, 4927), None),
    ],
)
def test_real_tasks(name: str, sizes: tuple[int, ...], classes: dict[int, int] | None) -> None:
    data = _load(name, REAL)
    assert tuple(len(getattr(data, split)) for split in ("train", "dev", "test")) == sizes
    splits = (data.train, data.dev, data.test)
    found = Counter(int(t) for split in splits for t in split.targets)
    assert set(found) == set(range(data.outputs))
    if classes is not None:
        assert found == classes
    assert is_known(name, data_digest(task(name), REAL, "none"))
    assert unlike(REAL, task(name).files) == []
