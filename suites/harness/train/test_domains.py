"""MTL-16: sixteen tasks under one name, what they read, and what they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from harness.errors import UsageError
from harness.experiments.declare import (
    declare,
    places_of,
    read_margins,
    read_models,
    read_tasks,
)
from harness.options.readers import Amount
from harness.options.train import CompareOptions
from harness.registry import Registry
from harness.train.batches import lengths
from harness.train.data.corpora import data_digest, is_known
from harness.train.data.directory import read_table
from harness.train.task import Data, family_of, gathered, task, tasks, tasks_named
from suites.support.command_line import here
from suites.support.made_up_data import write_data_directory, write_reviews, write_table
from suites.support.real_data import REAL, real
from suites.support.training import loaded, train

COLUMNS = ("domain", "label", "text")
DOMAINS = tasks()["mtl16"].choices["domain"]


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviews(write_data_directory(tmp_path_factory.mktemp("data")))


def of(options: str, folder: Path) -> Data:
    return loaded(folder, f"mtl16[{options}]", "none")


def rows_of(folder: Path, table: str, domain: str) -> list[dict[str, str]]:
    rows = read_table(folder / "mtl16" / f"{table}.tsv.gz", COLUMNS)
    return [row for row in rows if row["domain"] == domain]


# One name for all of them.


def test_the_name_alone_is_all_sixteen() -> None:
    every = tasks_named("mtl16")
    assert [one.name for one in every] == [f"mtl16[domain={name}]" for name in DOMAINS]
    assert len(every) == 16
    short = [one.name for one in tasks_named("mtl16[longest=50]")]
    assert short[2] == "mtl16[domain=books,longest=50]" == task(short[2]).name
    assert gathered(["trec", *(one.name for one in every), *short[1:]]) == (
        "trec",
        "mtl16",
        *short[1:],
    )
    assert gathered(short) == ("mtl16[longest=50]",)
    assert {family_of(name) for name in short} == {"mtl16[longest=50]"}
    odd = ("trec", "mtl16", "mtl16[domain=cars]", "mtl16[longest=x,domain=books]", "no task")
    assert [family_of(name) for name in odd] == [""] * 5
    assert gathered(odd) == odd


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("train none --task mtl16", r"mtl16 is 16 tasks; expected one, e.g. mtl16\[domain=app"),
        ("train none --task mtl16[domain=Books]", "given domain=Books; expected one of apparel,"),
        ("compare --task mtl16 --task mtl16[domain=MR]", "expected each once"),
    ],
)
def test_a_wrong_domain_is_told(line: str, says: str, tmp_path: Path, reviews: Path) -> None:
    done = here(*line.split(), "--data", str(reviews), "--device", "cpu", cwd=tmp_path, code=2)
    assert re.search(says, done.stderr)
    assert done.stderr.strip().count("\n") == 0


# What a domain's task reads.


def test_the_last_two_hundred_of_a_domain_are_dev(reviews: Path) -> None:
    rows, data = rows_of(reviews, "train", "books"), of("domain=books,longest=1000", reviews)
    tested = rows_of(reviews, "test", "books")
    assert (len(data.train), len(data.dev), len(data.test)) == (6, 200, 8)
    for split, part in ((data.train, rows[:-200]), (data.dev, rows[-200:]), (data.test, tested)):
        assert split.inputs[0] == [data.encode(row["text"]) for row in part]
        assert split.targets.tolist() == [int(row["label"]) for row in part]
    whole = read_table(reviews / "mtl16" / "test.tsv.gz", COLUMNS)
    assert [whole[i] for i in data.test_items] == tested
    other = loaded(reviews, "mtl16[domain=books]", "none", seed=1)
    assert other.dev.targets.tolist() == data.dev.targets.tolist(), "alike for every seed"


def test_a_review_is_cut(reviews: Path) -> None:
    whole, cut, short = (
        of(f"domain=video{more}", reviews) for more in (",longest=1000", "", ",longest=3")
    )
    assert (lengths(whole.train).max(), lengths(cut.train).max()) == (259, 256)
    assert lengths(short.test).max() == 3
    for a, b in zip(cut.dev.inputs[0], short.dev.inputs[0], strict=True):
        assert len(b) == min(3, len(a))
    assert len(short.encode("a b c d e")) == 3, "sentences given later are cut alike"


def test_seen_is_what_stands_in_the_train_of_any_domain(reviews: Path) -> None:
    for domain in ("apparel", "video"):
        data = of(f"domain={domain}", reviews)
        # The third is no text of train, though its first 256 tokens are.
        assert data.seen.tolist() == [True, True, *[False] * 6]
        assert data.test.inputs[0][2] in data.train.inputs[0]


# What can't be read.


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([["books", "2", "good"]], r"train.tsv.gz:2: label '2'; expected 0, 1"),
        (
            [["books", "1", "good"], ["cars", "1", "good"]],
            r"train.tsv.gz:3: domain 'cars'; expected apparel, baby",
        ),
        ([], "0 rows of books; the last 200 are dev, and train needs more"),
        ([["books", "1", "good"]] * 200, "200 rows of books; the last 200 are dev"),
    ],
)
def test_wrong_rows_are_told_with_their_line(
    tmp_path: Path, rows: list[list[str]], says: str
) -> None:
    write_reviews(tmp_path)
    write_table(tmp_path / "mtl16" / "train.tsv.gz", COLUMNS, rows)
    with pytest.raises(UsageError, match=says) as caught:
        of("domain=books", tmp_path)
    assert "\n" not in str(caught.value)


def test_wrong_tables_are_told(tmp_path: Path) -> None:
    write_reviews(tmp_path)
    with pytest.raises(UsageError, match="longest=0; expected at least 1"):
        of("domain=books,longest=0", tmp_path)
    test = tmp_path / "mtl16" / "test.tsv.gz"
    write_table(test, COLUMNS, [[name, "1", "good"] for name in DOMAINS if name != "books"])
    with pytest.raises(UsageError, match="the test split has no example"):
        of("domain=books", tmp_path)


# Declared and trained.

SMALL = "--recipe width=8 --recipe hidden=8 --recipe heads=2 --recipe epochs=1 --device cpu"


def test_a_comparison_declares_all_sixteen_as_one_family(reviews: Path) -> None:
    told = ("trec", "mtl16[longest=6]")
    options = CompareOptions(task=told, all="none", data=str(reviews), device="cpu")
    assert len(read_models(options, Registry())) > 5
    options = CompareOptions(task=told, names=("mtsa", "none"), data=str(reviews), device="cpu")
    every, registry = read_tasks(options.tasks), Registry()
    models = read_models(options, registry)
    margins = read_margins([("", Amount(0.01, "1%"))], every)
    family = declare(options, models, every, margins, places_of(every, registry, options))
    assert family.tasks == ("trec", *(f"mtl16[domain={name},longest=6]" for name in DOMAINS))
    assert len({run.key for run in family.runs()}) == 17 * 2 * 5
    assert {design.record["margin"] for design in family.designs} == {0.01}


def test_one_of_them_trains(reviews: Path) -> None:
    record = train(reviews, "none", "mtl16[domain=music]", epochs=1)
    assert record["examples"] == {"train": 6, "dev": 200, "test": 8}
    assert record["test_tokens"] == pytest.approx(39.0, abs=1)
    assert 0 < record["test_seconds"] < record["seconds"]


@pytest.mark.nightly
def test_all_sixteen_are_compared_and_judged_together(tmp_path: Path, reviews: Path) -> None:
    line = f"compare none source2token --task mtl16[longest=6] --seeds 1 {SMALL} --data {reviews}"
    done = here(line, "--json", "out.json", cwd=tmp_path, code=0)
    said = " ".join((done.stdout + done.stderr).split())
    assert said.count("is not the file of attnbench data list") == 2, "once, not for every domain"
    assert said.count("this is not the mtl16[longest=6] of attnbench data list") == 1
    assert "on mtl16[longest=6] (16 tasks, each sentiment of reviews" in said
    over = json.loads((tmp_path / "out.json").read_text())["overall"]
    assert len(over["tasks"]) == 16


# The real corpus.


@real("mtl16/train.tsv.gz", "mtl16/test.tsv.gz")
def test_the_real_reviews() -> None:
    found = {name: of(f"domain={name}", REAL) for name in DOMAINS}
    seen = {name: int(np.array(data.seen, bool).sum()) for name, data in found.items()}
    # As the corpus's description counts them.
    assert (sum(seen.values()), seen["magazines"], seen["imdb"], seen["MR"]) == (559, 169, 0, 0)
    sizes = {name: tuple(len(s) for s in (d.train, d.dev, d.test)) for name, d in found.items()}
    assert {sizes.pop("baby"), sizes.pop("magazines")} == {(1300, 200, 400), (1370, 200, 400)}
    assert sizes["software"] == (1315, 200, 400)
    assert sum(one == (1400, 200, 400) for one in sizes.values()) == 10
    tokens = {
        name: np.concatenate([lengths(s)[0] for s in (d.train, d.dev, d.test)])
        for name, d in found.items()
    }
    means = {name: one.mean() for name, one in tokens.items()}
    # The paper prints 109 over the domains, 201 of IMDB, the longest, and 22 of MR, the shortest.
    assert np.mean(list(means.values())) == pytest.approx(108.5, abs=0.05)
    assert (means["imdb"], means["MR"]) == pytest.approx((192.2, 21.2), abs=0.05)
    assert (max(means.values()), min(means.values())) == (means["imdb"], means["MR"])
    every = np.concatenate(list(tokens.values()))
    assert (every == 256).mean() == pytest.approx(0.117, abs=0.001)
    assert is_known("mtl16[domain=MR]", data_digest(task("mtl16[domain=MR]"), REAL, "none"))
