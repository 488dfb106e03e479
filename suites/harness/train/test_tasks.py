"""Every task, its folds and corpora: made-up files, and the real ones."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness import registry
from harness.errors import UsageError
from harness.experiments.design import Surroundings, make_run
from harness.experiments.model import Model
from harness.registry import Registry
from harness.train import objective
from harness.train.batches import gather
from harness.train.data.corpora import (
    corpora,
    corpus_named,
    findings,
    found_in,
    supplied,
    tasks_of,
)
from harness.train.data.directory import corpus_files, read_table
from harness.train.data.examples import cross_validated, folds_of, held_out
from harness.train.run import train_run
from harness.train.task import Data, load, task, tasks
from harness.train.tasks.sst5 import tokens
from suites.support.command_line import attnbench
from suites.support.made_up_data import (
    made_up_corpus,
    write_data_directory,
    write_more_corpora,
    write_table,
)
from suites.support.real_data import REAL, real

FOLDED = ("cr", "mpqa", "subj", "mr")
TEXT = [name for name, record in tasks().items() if record.files]
PINNED = "ba05913e9df08a88"
"""Hash of the order in which the folds of CR are cut."""
SMALL: dict[str, Any] = {"width": 12, "heads": 2, "hidden": 10, "epochs": 1, "batch": 40}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up data directory with all corpora."""
    found = write_more_corpora(write_data_directory(tmp_path_factory.mktemp("data")))
    pairs = [[r["label"], r["sentence1"], r["sentence2"]] for r in _snli(found, "dev")]
    write_table(found / "snli" / "train.tsv.gz", ("label", "sentence1", "sentence2"), pairs)
    return found


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def _snli(folder: Path, split: str) -> list[dict[str, str]]:
    return read_table(folder / "snli" / f"{split}.tsv.gz", ("label", "sentence1", "sentence2"))


def _load(name: str, folder: Path, seed: int = 0, fold: int | None = None) -> Data:
    record = task(name)
    fold = 0 if record.folds and fold is None else fold
    return load(record, record.recipe, str(folder), "none", seed, fold)


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
    assert data.embedding is not None
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


def test_every_text_task_has_its_files_known_and_a_test() -> None:
    known = {file.name for corpus in corpora().values() for file in corpus.files}
    for name in TEXT:
        assert set(task(name).files) <= known | set(supplied()), name
        assert tasks_of(task(name).files[0].partition("/")[0])


def test_a_class_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    folder = write_more_corpora(write_data_directory(tmp_path))
    write_table(folder / "cr" / "all.tsv.gz", ("label", "text"), [["1", "good"], ["2", "bad"]])
    with pytest.raises(UsageError, match=r"cr/all.tsv.gz:3: label '2'; expected 0, 1"):
        _load("cr", folder)


@pytest.mark.parametrize("model", list(registry.builtins()))
@pytest.mark.parametrize(
    "name", ["trec", "sick_relatedness", "sick_entailment", "mirrored_summation"]
)
def test_any_mechanism_trains_on_any_kind_of_task(folder: Path, name: str, model: str) -> None:
    """With the task's own recipe, whatever the mechanism asks of widths and heads."""
    record = task(name)
    if record.files:
        data = load(record, record.recipe, str(folder), record.vectors, 0)
    else:
        small = record.with_options({"train": "40", "test": "10"})
        data = load(small, record.recipe, None, "", 0)
    module = objective.build(record, model, {}, data, record.recipe, Registry(), 0)
    inputs, targets = gather(data.train, np.arange(4), torch.device("cpu"))
    output = module(*inputs)
    shape = data.train.targets.shape[1:] if record.kind == "regression" else (data.outputs,)
    assert output.shape == (4, *shape)
    objective.losses(record, record.recipe, output, targets).mean().backward()
    moved = [p for p in module.parameters() if p.grad is not None and p.grad.abs().sum() > 0]
    assert moved
    assert torch.isfinite(output).all()


def test_a_mechanism_that_keeps_its_width_trains_at_the_recipes_width(folder: Path) -> None:
    record = task("trec")
    recipe = replace(record.recipe, **{**SMALL, "width": 24, "heads": 4})
    result = train_run(
        "mtsa_stack", "trec", recipe.as_dict(), 0, directory=str(folder), vectors=record.vectors
    )
    assert result["test"]["accuracy"] >= 0
    data = load(record, recipe, str(folder), record.vectors, 0)
    module = objective.build(record, "mtsa_stack", {}, data, recipe, Registry(), 0)
    entry: Any = module.get_submodule("encoder.entry")
    assert entry.w.shape == (data.width, 24)
    alone = objective.build(record, "source2token", {}, data, recipe, Registry(), 0)
    hidden: Any = alone.get_submodule("hidden")
    assert hidden.w.shape[0] == data.width, "pooling alone has the words' own width"


# Folds.


@pytest.mark.parametrize(("count", "folds"), [(60, 10), (3771, 10), (10_603, 10), (7, 3)])
def test_folds_hold_every_example_once(count: int, folds: int) -> None:
    parts = folds_of(count, folds)
    assert sorted(np.concatenate(parts)) == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert len(parts) == folds


def test_folds_are_a_random_cut_and_stay_the_same_for_ever() -> None:
    parts = folds_of(3771, 10)
    joined = ",".join(str(i) for part in parts for i in part)
    assert hashlib.sha256(joined.encode()).hexdigest()[:16] == PINNED
    positions = np.concatenate([np.full(len(part), k) for k, part in enumerate(parts)])
    examples = np.concatenate(parts)
    assert abs(np.corrcoef(positions, examples)[0, 1]) < 0.05


@pytest.mark.parametrize("name", FOLDED)
def test_a_fold_is_tested_on_what_the_others_train_on(folder: Path, name: str) -> None:
    rows = read_table(folder / name / "all.tsv.gz", ("label", "text"))
    tested: list[int] = []
    for fold in range(10):
        index = cross_validated(len(rows), 10, fold, seed=5)
        assert sorted(np.concatenate(list(index.values()))) == list(range(len(rows)))
        tested += list(index["test"])
        data = _load(name, folder, seed=5, fold=fold)
        assert [data.encode(rows[i]["text"]) for i in index["test"]] == data.test.inputs[0]
        assert [int(rows[i]["label"]) for i in index["dev"]] == data.dev.targets.tolist()
    assert sorted(tested) == list(range(len(rows)))


def test_seeds_share_the_folds_and_draw_their_own_dev() -> None:
    one, two = (cross_validated(3771, 10, 4, seed) for seed in (0, 1))
    assert (one["test"] == two["test"]).all()
    shared = len(set(one["dev"]) & set(two["dev"])) / len(one["dev"])
    assert 0.03 < shared < 0.2  # a tenth by chance
    other = cross_validated(3771, 10, 5, 0)
    places = [np.flatnonzero(np.isin(i["dev"], one["dev"])) for i in (other,)]
    assert len(places[0]) < 0.3 * len(one["dev"]), "the same draw for another fold"


def test_dev_is_a_tenth_of_what_is_trained_on() -> None:
    index = cross_validated(3771, 10, 0, 0)
    assert (len(index["train"]), len(index["dev"]), len(index["test"])) == (3054, 339, 378)
    kept, dev = held_out(5452, 3)
    assert (len(kept), len(dev)) == (4907, 545)


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
        load(record, record.recipe, str(folder), "none", 0, fold)
    with pytest.raises(UsageError, match=says):
        make_run(Model("mtsa.algorithm1"), record, record.recipe, 0, _around(), fold)


def _around() -> Surroundings:
    return Surroundings(Registry(), {"device": "cpu"})


def test_a_fold_is_part_of_what_a_run_is() -> None:
    record = task("cr")
    runs = [
        make_run(Model("mtsa.algorithm1"), record, record.recipe, seed, _around(), fold)
        for seed, fold in ((0, 0), (0, 1), (1, 0))
    ]
    assert len({run.key for run in runs}) == 3
    assert [run.arguments["fold"] for run in runs] == [0, 1, 0]
    assert runs[1].label == "mtsa.algorithm1 seed 0 fold 1"


def test_another_tasks_code_is_not_a_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is added, or its recipe changed, leaves the others' runs as they are."""
    read: list[Path] = []

    def noting(files: Any) -> str:
        read.extend(files)
        return "hash"

    monkeypatch.setattr(registry, "_digest", noting)
    registry.harness_hash.__wrapped__("train")
    assert {"run.py", "trainer.py", "examples.py"} <= {path.name for path in read}
    assert not any(path.parent.name == "tasks" for path in read)
    read.clear()
    registry.module_hash.__wrapped__(task("trec").load)
    assert [path.name for path in read] == ["trec.py"]


def test_train_takes_a_fold(folder: Path, tmp_path: Path) -> None:
    command = (
        "train",
        "none",
        "--task",
        "cr",
        "--data",
        str(folder),
        "--vectors",
        "none",
        "--recipe",
        "width=12",
        "--recipe",
        "hidden=10",
        "--recipe",
        "epochs=1",
        "--device",
        "cpu",
    )
    done = attnbench(*command, "--fold", "3", "--json", "run.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["seed"], record["fold"]) == (0, 3)
    assert record["case"].endswith(" cr seed 0 fold 3")
    assert record["examples"] == {"train": 49, "dev": 5, "test": 6}
    missing = attnbench(*command, cwd=tmp_path)
    assert missing.returncode == 2
    assert "expected --fold 0 to 9" in missing.stderr


# Options of a task.


def test_options_are_part_of_a_tasks_name() -> None:
    plain = task("mirrored_summation")
    ten = task("mirrored_summation[k=10]")
    assert ten.options == {**plain.options, "k": 10}
    assert ten.name == "mirrored_summation[k=10]" == task(ten.name).name
    assert (
        task("mirrored_summation[width=8,k=10]").name
        == task("mirrored_summation[k=10,width=8]").name
    )
    assert task("mirrored_summation[k=6]") == plain == task("mirrored_summation[]")
    runs = {
        make_run(Model("mtsa.algorithm1"), each, each.recipe, 0, _around()).key
        for each in (plain, ten)
    }
    assert len(runs) == 2
    data = load(task("mirrored_summation[k=10,train=20,test=5]"), ten.recipe, None, "", 0)
    a = data.test.inputs[0]
    expected = sum(a[:, i] * a[:, -1 - i] for i in range(10))
    np.testing.assert_allclose(data.test.targets, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mirrored_summation[q=3]", "has no option 'q'; it has length, width, k, train, test"),
        ("mirrored_summation[k=x]", "k=x; expected int"),
        ("mirrored_summation[k]", "given 'k'; expected name=value"),
        ("cr[corpus=mr]", "task cr has no option 'corpus'; it has none"),
        ("mirored[k=3]", "unknown task 'mirored'"),
    ],
)
def test_a_wrong_option_of_a_task_is_told(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        task(text)


@pytest.mark.parametrize(
    ("options", "says"), [("k=25", "k=25 with length=24"), ("train=0", "train=0; expected at")]
)
def test_a_size_that_cannot_be_is_told(options: str, says: str) -> None:
    record = task(f"mirrored_summation[{options}]")
    with pytest.raises(UsageError, match=says):
        load(record, record.recipe, None, "", 0)


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


def test_the_command_line_says_it_too(tmp_path: Path) -> None:
    folder = write_more_corpora(write_data_directory(tmp_path / "data"))
    done = attnbench(
        "train", "none", "--task", "snli", "--data", str(folder), "--device", "cpu", cwd=tmp_path
    )
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "paste labels.train s1.train s2.train" in done.stderr


# Corpora and their checksums.


def test_a_copy_is_right_by_its_content(folder: Path, tmp_path: Path) -> None:
    file = next(f for f in made_up_corpus(folder).files if f.name == "trec/train.tsv")
    assert found_in(folder, file).status == "right"
    packed = (folder / "trec" / "train.tsv.gz").read_bytes()
    place = tmp_path / "trec"
    place.mkdir()
    assert found_in(tmp_path, file).status == "missing"
    assert str(place / "train.tsv.gz") in found_in(tmp_path, file).detail
    content = gzip.decompress(packed)
    (place / "train.tsv").write_bytes(content)
    assert found_in(tmp_path, file).status == "right"
    (place / "train.tsv.gz").write_bytes(gzip.compress(content, compresslevel=1))
    assert found_in(tmp_path, file).status == "right"
    for wrong in (gzip.compress(content + b"x"), packed[:-20], b"no gzip"):
        (place / "train.tsv.gz").write_bytes(wrong)
        finding = found_in(tmp_path, file)
        assert finding.status == "wrong"
        assert str(place / "train.tsv.gz") in finding.detail
        assert "\n" not in finding.detail


def test_a_file_of_the_users_is_named(folder: Path, tmp_path: Path) -> None:
    one = {f.name: f for f in findings(folder, corpus_named("snli"))}
    assert one["snli/train.tsv"].status == "yours"
    none = {f.name: f for f in findings(tmp_path, corpus_named("snli"))}
    assert none["snli/train.tsv"].status == "missing"
    assert "e-SNLI" in none["snli/train.tsv"].detail


def test_data_check_and_list(folder: Path, tmp_path: Path) -> None:
    listed = attnbench("data", "list", "--json", "list.json", cwd=tmp_path, ATTNBENCH_DATA="")
    assert listed.returncode == 0, listed.stderr
    for corpus in corpora().values():
        assert corpus.what in listed.stdout
        assert corpus.licence in listed.stdout
        assert corpus.original in listed.stdout
        for file in corpus.files:
            assert f"DIR/{file.name}.gz: {file.rows:,} rows" in listed.stdout
            assert file.sha256 in listed.stdout
    assert {c["name"] for c in json.loads((tmp_path / "list.json").read_text())} == set(corpora())
    for elsewhere in ("hub", str(tmp_path / "gone")):
        done = attnbench("data", "list", "trec", cwd=tmp_path, ATTNBENCH_DATA=elsewhere)
        assert done.returncode == 0, done.stderr
        assert "DIR/trec/train.tsv.gz: 5,452 rows" in done.stdout
    here = attnbench("data", "list", "trec", "--data", str(folder), cwd=tmp_path)
    assert f"{folder}/trec/train.tsv.gz" in here.stdout
    assert "customer reviews" not in here.stdout
    wrong = attnbench("data", "check", "--data", str(folder), "--json", "c.json", cwd=tmp_path)
    assert wrong.returncode == 1
    assert re.search(r"wrong +trec/train.tsv: .*SHA-256 of its content is", wrong.stdout)
    assert re.search(r"missing +wnut17/dev.tsv", wrong.stdout)
    found = {f["name"]: f["status"] for f in json.loads((tmp_path / "c.json").read_text())}
    assert found["snli/train.tsv"] == "yours"
    (tmp_path / "empty").mkdir()
    empty = ("data", "check", "--data", "empty")
    nothing = attnbench(*empty, cwd=tmp_path)
    assert nothing.returncode == 2
    assert "none of 30 files is there; expected cr/all.tsv.gz" in nothing.stderr
    assert attnbench(*empty[:2], "cr", *empty[2:], cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("data", "check"), "set --data DIR or ATTNBENCH_DATA"),
        (("data", "check", "--data", "nowhere"), "'nowhere', which is no folder"),
        (("data", "check", "trec", "--data", "hub"), "from there is checked when it is loaded"),
        (("data", "list", "--data", "nowhere"), "'nowhere', which is no folder"),
        (("data", "check", "trek", "--data", "."), "unknown corpus 'trek'; there are cr, mpqa"),
        (("data", "list", "trek"), "unknown corpus 'trek'"),
    ],
)
def test_a_mistake_with_data_is_told_in_one_line(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    done = attnbench(*arguments, cwd=tmp_path, ATTNBENCH_DATA="")
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


# The real corpora.


@real("README.md")
def test_corpora_are_those_of_the_real_read_me() -> None:
    text = (REAL / "README.md").read_text()
    row = re.compile(
        r"^\| (\w+/[\w.]+)\.gz \| ([\d,]+) \| ([\d,]+) \| ([^|]+) \| (\w{64}) \|$", re.M
    )
    told = {
        m[1]: (int(m[2].replace(",", "")), int(m[3].replace(",", "")), m[4].split(), m[5])
        for m in row.finditer(text)
    }
    known = {
        file.name: (file.rows, file.bytes, list(file.columns), file.sha256)
        for corpus in corpora().values()
        for file in corpus.files
    }
    assert known == told


@real("README.md")
@pytest.mark.parametrize("name", list(corpora()))
def test_the_real_files_are_right(name: str) -> None:
    for finding in findings(REAL, corpora()[name]):
        assert finding.status == "right" or finding.name in supplied(), finding
    for file in corpora()[name].files:
        packed = (REAL / f"{file.name}.gz").read_bytes()
        content = gzip.decompress(packed)
        assert hashlib.sha256(packed).hexdigest() == file.sha256
        assert (content.count(b"\n") - 1, len(packed)) == (file.rows, file.bytes)
        assert tuple(content.split(b"\n", 1)[0].decode().split("\t")) == file.columns


@real("cr/all.tsv.gz", "sst5/train_phrases.tsv.gz", "sick/train.tsv.gz")
@pytest.mark.parametrize(
    ("name", "sizes", "classes"),
    [
        ("cr", (3054, 339, 378), {0: 1366, 1: 2405}),
        ("mpqa", (8588, 954, 1061), {0: 7292, 1: 3311}),
        ("subj", (8100, 900, 1000), {0: 5000, 1: 5000}),
        ("mr", (8635, 960, 1067), {0: 5331, 1: 5331}),
        ("sst5", (8544, 1101, 2210), None),
        ("sst5_phrases", (159_274, 1101, 2210), None),
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


@real("sst5/train.tsv.gz", "glove/top10k_100d_int8.tsv.gz")
def test_real_coverage_of_sst5_is_that_of_the_read_me() -> None:
    record = task("sst5")
    data = load(record, record.recipe, str(REAL), record.vectors, 0)
    assert data.coverage is not None
    found = data.coverage
    assert (found.vocabulary, found.running_words) == (19_536, 227_245)
    assert found.covered / found.vocabulary == pytest.approx(0.311, abs=5e-4)
    assert found.covered_running / found.running_words == pytest.approx(0.852, abs=5e-4)


@real("cr/all.tsv.gz")
def test_a_real_corpus_without_a_split_is_learnt_from() -> None:
    record = task("cr")
    recipe = replace(record.recipe, width=24, heads=2, hidden=24, epochs=2)
    found = train_run(
        "mtsa", "cr", recipe.as_dict(), 0, directory=str(REAL), vectors=record.vectors, fold=0
    )
    assert found["test"]["accuracy"] > 0.66  # the larger class has 0.638
