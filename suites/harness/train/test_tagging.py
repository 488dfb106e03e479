"""Tagging: what is read, refused, trained and kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from harness.errors import UsageError
from harness.experiments.design import Surroundings, make_run
from harness.experiments.model import meaning, parse_model
from harness.registry import Registry
from harness.train.batches import order, padding
from harness.train.data.directory import read_table
from harness.train.data.texts import LONGEST, Spelling
from harness.train.data.vectors import SPECIAL
from harness.train.kinds.tagging import Tagging, counts
from harness.train.run import train_run
from harness.train.task import Split, task
from harness.train.tasks.neighbour_tags import examples
from suites.support.made_up_data import write_table
from suites.support.real_data import REAL, real
from suites.support.training import kept, loaded, small, train

ARMS = ("multi_scale_transformer", "transformer", "bi_lstm", "mtsa", "multi_head")
TAGGED: dict[str, Any] = {"width": 20, "heads": 10, "characters": 6, "batch": 20, "warmup": 0}
"""Beside `SMALL`: what the arms can be built with."""

AROUND = Surroundings(Registry(), {"device": "cpu"}, "d", "none", "made up")


def test_a_tagged_corpus_loads(folder: Path) -> None:
    data = loaded(folder, "wnut17")
    assert [len(s) for s in (data.train, data.dev, data.test)] == [60, 20, 30]
    rows = read_table(folder / "wnut17" / "test.tsv.gz", ("tokens", "tags"))
    names = data.test.also["tags"]
    assert [[names[t - 1] for t in tags] for tags in data.test.targets] == [
        row["tags"].split() for row in rows
    ]
    assert data.test.inputs[0] == [data.encode(row["tokens"]) for row in rows]
    known = {
        word
        for row in read_table(folder / "wnut17" / "train.tsv.gz", ("tokens",))
        for word in row["tokens"].split()
    }
    unseen = [[word not in known for word in row["tokens"].split()] for row in rows]
    assert [one.tolist() for one in data.test.also["unseen"]] == unseen
    assert any(map(any, unseen))


def test_words_are_spelled_by_the_letters_of_training() -> None:
    spelling = Spelling.build(["ab", "ca"])
    assert spelling.size == 5
    assert spelling.encode(["abc", "zb"])[:, :4].tolist() == [[2, 3, 4, 0], [1, 3, 0, 0]]
    long = "b" * 15 + "c" * 30
    assert spelling.encode([long]).tolist() == [[3] * 10 + [4] * 10]
    assert len(spelling.encode([long])[0]) == LONGEST


@pytest.mark.parametrize(
    ("tokens", "tags", "says"),
    [
        ("a b c", "O O", "train.tsv.gz:3: 3 tokens and 2 tags; expected a tag for each token"),
        ("a b", "O B-planet", "tag 'B-planet' of token 2, 'b'; expected one of O, B-corp"),
        ("a b", "O I-person", "'I-person' of token 2, 'b', begins a span; expected BIO, where B-p"),
        ("a b", "B-group I-person", "tag 'I-person' of token 2, 'b', begins a span"),
        ("a  b", "O O O", "train.tsv.gz:3: an empty token; expected tokens with one space"),
        ("", "", "an empty token"),
    ],
)
def test_a_wrong_sentence_is_told_with_its_line(
    tmp_path: Path, tokens: str, tags: str, says: str
) -> None:
    rows = [["fine here", "B-person I-person"], [tokens, tags]]
    write_table(tmp_path / "wnut17" / "train.tsv.gz", ("tokens", "tags"), rows)
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, "wnut17", "none")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_counts_by_hand() -> None:
    also = {"tags": ("O", "B-a", "I-a"), "unseen": [np.array([0, 1, 1], bool), np.zeros(2, bool)]}
    split = Split((), [[2, 3, 1], [1, 2]], also)
    said = [np.array([2, 3, 3], np.uint8), np.array([1, 1], np.uint8)]
    assert counts(said, split).tolist() == [[2, 3, 1, 2, 0, 1, 1], [1, 2, 0, 0, 0, 0, 1]]
    judged = Tagging().judged(task("wnut17"), said, split)
    assert judged == {"span_f1": 0.0, "tag_accuracy": 3 / 5, "tag_accuracy_unseen": 1 / 2}
    seen = replace(split, also={**also, "unseen": [np.zeros(3, bool), np.zeros(2, bool)]})
    assert "tag_accuracy_unseen" not in Tagging().judged(task("wnut17"), said, seen)


def test_the_loss_is_the_mean_over_words() -> None:
    torch.manual_seed(0)
    scores, targets = torch.randn(2, 3, 4), torch.tensor([[1, 4, 2], [3, 0, 0]])
    each = Tagging().losses(task("ud_ewt").recipe, scores, targets)
    words = torch.cat([scores[0], scores[1, :1]])
    expected = cross_entropy(words, torch.tensor([0, 3, 1, 2]))
    torch.testing.assert_close(each.mean(), expected)
    flat = torch.zeros(2, 3, 4, 4)
    joint = Tagging().losses(task("wnut17").recipe, flat, targets).mean()
    assert joint.item() == pytest.approx(np.log(4)), "four tags alike for every word"


@pytest.mark.parametrize(
    ("name", "model"), [("ud_ewt", "bi_lstm"), *(("wnut17", arm) for arm in ARMS)]
)
def test_every_arm_trains_and_its_predictions_are_its_metrics(
    folder: Path, tmp_path: Path, name: str, model: str
) -> None:
    record = train(folder, model, name, epochs=2, **TAGGED)
    assert record["epochs"][1]["loss"] < record["epochs"][0]["loss"]
    found = kept(record, tmp_path)
    data = loaded(folder, name)
    assert found.lengths.tolist() == [len(tags) for tags in data.test.targets]
    assert [one.tolist() for one in found.sequences("truth")] == data.test.targets
    assert counts(found.sequences("said"), data.test).tolist() == found.counts.tolist()
    right = float((found.said == found.truth).mean())
    assert 0 < record["padding"] < 0.5
    assert record["test"]["tag_accuracy"] == pytest.approx(right)


def test_characters_are_part_of_the_model_and_no_words(folder: Path) -> None:
    recipe: dict[str, Any] = {**TAGGED, "epochs": 20, "patience": 20, "batch": 5, "dropout": 0.0}
    without = train(folder, "bi_lstm", "wnut17", **{**recipe, "characters": 0, "epochs": 1})
    having = train(folder, "bi_lstm", "wnut17", **recipe)
    assert having["test"]["span_f1"] > 0.7
    data = loaded(folder, "wnut17")
    filters = data.characters * 30 + 6 * 30 * 3 + 6
    entry = 2 * 4 * 10 * 6  # six features more into the gates of both directions
    assert having["parameters"] - without["parameters"] == filters + entry
    own = [one["parameters_with_words"] - one["parameters"] for one in (having, without)]
    assert own[0] == own[1]


def test_a_model_without_tokens_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="source2token makes a sentence vector and has no tokens"):
        train(folder, "source2token", "ud_ewt", **TAGGED)


def test_a_task_of_tokens_sets_options_of_sentence_models(folder: Path) -> None:
    """So that one that is given is another model, whether or not a sentence has it too."""
    data, recipe = loaded(folder, "ud_ewt"), small("ud_ewt", **TAGGED)
    registry = Registry()

    def built(**options: str) -> Any:
        module: Any = Tagging().build(
            task("ud_ewt"), "multi_scale_transformer", options, data, recipe, registry, 0
        )
        return module.encoder.fusion

    assert (built().depth, built().cls, built(layers="2").depth) == (3, None, 2)
    assert {scale.number for scale in built().scales[-1]} == {1, 3, 5, 7, 9}

    def means(options: str, tokens: bool) -> str:
        model = parse_model(f"multi_scale_transformer{options}", registry)
        return meaning(model, registry, tokens)

    assert means("[layers=2]", False) == means("", False) != means("[layers=3]", False)
    assert means("[layers=3]", True) == means("", True) != means("[layers=2]", True)
    keys = {
        make_run(parse_model(text, registry), task("ud_ewt"), recipe, 0, AROUND).key
        for text in ("multi_scale_transformer", "multi_scale_transformer[layers=2]")
    }
    assert len(keys) == 2


# The drawn task.


def test_neighbours_decide_the_tags() -> None:
    split = examples(np.random.default_rng(0), 50, 9, 5, 2)
    assert {len(ids) for ids in split.inputs[0]} == set(range(5, 10))
    for ids, tags in zip(split.inputs[0], split.targets, strict=True):
        words = dict(enumerate(i - SPECIAL for i in ids))
        expected = [1 + max(words.get(i - 2, 0), words.get(i + 2, 0)) for i in range(len(ids))]
        assert tags == expected


def test_windows_learn_what_attention_without_places_does_not() -> None:
    name = "neighbour_tags[train=800,test=200,length=12]"
    recipe = replace(task(name).recipe, epochs=8, patience=8, batch=20).as_dict()

    def right(model: str, **options: str) -> float:
        record = train_run(model=model, task=name, recipe=recipe, seed=0, options=options)
        return float(record["test"]["tag_accuracy"])

    assert right("multi_scale_transformer") > 0.97
    assert right("multi_head", positions="none") < 0.5


# The real corpora.


@real("ud_ewt/train.tsv.gz", "wnut17/train.tsv.gz")
@pytest.mark.parametrize(
    ("name", "sentences", "words", "unseen", "repeated"),
    [("ud_ewt", 2077, 25_094, 2292, 94), ("wnut17", 1287, 23_394, 5122, 0)],
)
def test_the_real_corpora_are_whole(
    name: str, sentences: int, words: int, unseen: int, repeated: int
) -> None:
    data = loaded(REAL, name, "none")
    assert (len(data.test), sum(map(len, data.test.targets))) == (sentences, words)
    assert sum(int(one.sum()) for one in data.test.also["unseen"]) == unseen
    assert int(data.seen.sum()) == repeated, "105 of UD, were capitals no difference"
    sizes = np.array([[len(tags) for tags in data.train.targets]])
    batches = order(sizes, task(name).recipe.batch, np.random.default_rng([0, 1, 1]))
    assert padding(sizes, batches) < 0.1
