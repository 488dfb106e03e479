"""Translation: its data, its loss, its batches, its metrics, and what a run keeps."""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sacrebleu.metrics import BLEU, CHRF

from harness.attention.child import look
from harness.errors import UsageError
from harness.experiments.costs import steps_of
from harness.registry import Registry
from harness.stats.sums import SUMMED
from harness.train.batches import lengths, order_by_tokens, padding
from harness.train.data.parallel import Subwords
from harness.train.kinds.translation import counts, texts
from harness.train.objective import objective_of
from harness.train.task import task
from harness.train.trainer import mean_state, warmth
from reference_impls.models.translation import EncoderLayer
from suites.support.made_up_data import write_table
from suites.support.real_data import REAL, real
from suites.support.training import kept, loaded, small, train

COLUMNS = ("en_tok", "de_tok")
WORDS = {"a": "ein", "man": "mann", "dog": "hund", "sees": "sieht", "the": "der", "red": "rote"}
SHORT = "multi30k[subwords=40]"
MADE_UP = "rewriting[words=5,length=6,train=60,test=12]"


def sentence(drawn: random.Random) -> tuple[str, str]:
    words = drawn.choices(list(WORDS), k=drawn.randint(4, 8))
    return " ".join(words), " ".join(WORDS[word] for word in words)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Multi30k's four tables, made up; not to be changed."""
    folder, drawn = tmp_path_factory.mktemp("parallel"), random.Random(0)
    for name, count in zip(task("multi30k").files, (80, 10, 12, 8), strict=True):
        write_table(folder / f"{name}.gz", COLUMNS, [sentence(drawn) for _ in range(count)])
    return folder


# Data.


def test_the_first_sentences_of_both_test_sets_are_cut(corpus: Path) -> None:
    whole, cut = loaded(corpus, SHORT), loaded(corpus, "multi30k[subwords=40,rows=7]")
    for mine, every in (
        (cut.test, whole.test),
        (cut.test.also["further"], whole.test.also["further"]),
    ):
        assert mine.targets == every.targets[:7]
        assert mine.also["references"] == every.also["references"][:7]
        assert mine.also["write"](mine.targets[0]) == mine.also["references"][0]


def test_sentences_become_pieces_and_come_back(corpus: Path) -> None:
    data = loaded(corpus, SHORT)
    split = data.test
    source, previous = split.inputs
    assert all(tokens[-1] == 1 and 0 not in tokens for tokens in source)
    assert previous == [[0, *tokens[:-1]] for tokens in split.targets]
    assert texts(split.targets, split) == list(split.also["references"])
    assert (
        data.outputs
        == 40
        > max(token for side in (source, split.targets) for s in side for token in s)
    )


def test_pieces_are_learned_from_train_alone(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus, tmp_path, dirs_exist_ok=True)
    name = task("multi30k").files[2]
    write_table(tmp_path / f"{name}.gz", COLUMNS, [("a zebra", "ein zebra")] * 12)
    first, other = loaded(corpus, SHORT), loaded(tmp_path, SHORT)
    assert first.train.inputs == other.train.inputs
    assert 2 in other.test.inputs[0][0], "a letter that train does not have"


def test_more_pieces_are_longer_ones() -> None:
    said = ["der mann sieht den hund"] * 3
    few, many = (Subwords.learn(said, size).encode(said[:1])[0] for size in (22, 60))
    assert len(many) == 6 < len(few)
    with pytest.raises(UsageError, match=r"subwords=5; expected at least \d+"):
        Subwords.learn(said, 5)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (None, "has no row; expected sentences and their translations"),
        (("a man", ""), "train.tsv.gz:3: de_tok is empty; expected a sentence: leave the line out"),
    ],
)
def test_a_bad_table_is_told_in_one_line(
    corpus: Path, tmp_path: Path, row: tuple[str, ...] | None, says: str
) -> None:
    name = task("multi30k").files[0]
    rows = [] if row is None else [("a dog", "ein hund"), row]
    write_table(tmp_path / f"{name}.gz", COLUMNS, rows)
    with pytest.raises(UsageError, match=re.escape(says)) as found:
        loaded(tmp_path, SHORT)
    assert "\n" not in str(found.value)


def test_word_vectors_are_refused(corpus: Path) -> None:
    with pytest.raises(UsageError, match=r"--vectors x: .* leave it out"):
        loaded(corpus, SHORT, "x")


@pytest.mark.parametrize(
    ("rule", "words"), [("copy", "abcde"), ("reverse", "edcba"), ("swap", "badce")]
)
def test_rules_rewrite(rule: str, words: str) -> None:
    chosen = "" if rule == "reverse" else f"rule={rule},"
    split = loaded(Path(), f"rewriting[{chosen}length=5,train=200]", "").train
    both = ((s[:-1], t[:-1]) for s, t in zip(split.inputs[0], split.targets, strict=True))
    source, target = next(pair for pair in both if len(pair[0]) == 5)
    assert target == [source["abcde".index(letter)] for letter in words]


# Batches.


def test_batches_by_tokens_hold_every_example_once_and_no_more_tokens() -> None:
    sizes = np.random.default_rng(0).integers(4, 40, (2, 3000))
    sizes[1] = np.clip(sizes[0] + np.random.default_rng(1).integers(-3, 4, 3000), 1, None)
    sizes[:, 7] = 300
    found = order_by_tokens(sizes, 500, np.random.default_rng(1))
    assert sorted(np.concatenate(found)) == list(range(3000))
    places = [len(b) * sizes[:, b].max(1).sum() for b in found]
    assert max(p for p, b in zip(places, found, strict=True) if 7 not in b) <= 500
    assert [len(b) for b in found if 7 in b] == [1]
    real_ones = sum(sizes[:, b].sum() for b in found)
    assert 0.1 > padding(sizes, found) == pytest.approx(1 - real_ones / sum(places))
    other = order_by_tokens(sizes, 500, np.random.default_rng(2))
    assert {frozenset(b) for b in found} != {frozenset(b) for b in other}


# Loss, schedule, mean of weights.


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_is_the_smoothed_cross_entropy_of_a_token(smoothing: float) -> None:
    logits = np.random.default_rng(0).normal(size=(2, 3, 5))
    targets = np.array([[3, 2, 1], [4, 1, 0]])
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    each = [
        -(1 - smoothing) * log_p[i, t, targets[i, t]] - smoothing * log_p[i, t].mean()
        for i in range(2)
        for t in range(3)
        if targets[i, t]
    ]
    recipe = replace(task("rewriting").recipe, smoothing=smoothing)
    found = objective_of("translation").losses(
        recipe, torch.from_numpy(logits), torch.from_numpy(targets)
    )
    assert found.shape == (2,)
    assert float(found.mean()) == pytest.approx(np.mean(each))


def test_the_rate_grows_and_falls() -> None:
    # Vaswani et al., eq. 3, with its highest value as the unit.
    found = [warmth(step, 4) for step in (1, 2, 4, 16, 64)]
    assert found == [0.25, 0.5, 1.0, 0.5, 0.25]


def test_the_rate_of_a_step_is_that_of_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    real_step = torch.optim.Adam.step

    def noting(self: Any, *arguments: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return real_step(self, *arguments)

    monkeypatch.setattr(torch.optim.Adam, "step", noting)
    record = train(Path(), "none", MADE_UP, epochs=2, batch=200, warmup=3)
    steps = [row["steps"] for row in record["epochs"]]
    assert rates == pytest.approx([5e-3 * warmth(i, 3) for i in range(1, 1 + sum(steps))])
    assert steps_of({**record, "recipe": {"batch": 200}}) == (sum(steps), 120)


def test_weights_of_the_last_epochs_are_averaged() -> None:
    def weights(averaged: int, epochs: int) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {}
        kind = objective_of("translation")
        with pytest.MonkeyPatch.context() as patch:
            real_outputs = type(kind).outputs

            def noting(self: Any, module: Any, *arguments: Any) -> Any:
                found.update({n: p.clone() for n, p in module.state_dict().items()})
                return real_outputs(self, module, *arguments)

            patch.setattr(type(kind), "outputs", noting)
            # The last epoch is the one that counts: every dev metric is better than the one before.
            better = iter(range(100))
            patch.setattr(type(kind), "evaluate", lambda *_: {"bleu": float(next(better))})
            train(Path(), "none", MADE_UP, epochs=epochs, averaged=averaged)
        return found

    alone = [weights(1, epochs) for epochs in (2, 3)]
    mean = weights(2, 3)
    for name, value in mean.items():
        expected = (alone[0][name] + alone[1][name]) / 2
        torch.testing.assert_close(value, expected)
        assert name.startswith("encoder.0.fusion") or not torch.equal(value, alone[1][name])


def test_what_is_no_number_is_not_averaged() -> None:
    states = [{"w": torch.tensor([v]), "n": torch.tensor(int(v))} for v in (1.0, 2.0)]
    assert mean_state(states) == {"w": torch.tensor([1.5]), "n": torch.tensor(2)}


# Metrics.

SAID = (
    "ein mann sieht einen weißen hund .",
    "",
    "hund hund hund hund hund",
    "zwei frauen , die im park laufen",
    "a b",
    "ein mann sieht",
)
TRUE = (
    "ein mann sieht einen roten hund .",
    "ein hund",
    "der hund sieht den hund hund",
    "zwei frauen laufen im park , die frauen",
    "der hund läuft",
    "ab",
)


def test_sums_of_counts_give_sacrebleus_scores() -> None:
    found = np.array([counts(*both) for both in zip(SAID, TRUE, strict=True)])
    for order in (list(range(6)), [0, 3], [2, 2, 0, 5], [1, 4]):
        said, true = [SAID[i] for i in order], [TRUE[i] for i in order]
        expected = {
            "bleu": BLEU(tokenize="none", smooth_method="none").corpus_score(said, [true]).score,
            "chrf": CHRF().corpus_score(said, [true]).score,
        }
        for name, value in expected.items():
            assert SUMMED[name].value(found[order]) == pytest.approx(value, abs=1e-9), name
    assert expected["bleu"] == 0, "no four words in a row"
    assert SUMMED["bleu"].value(found) > 10


# Runs.


def test_a_run_keeps_what_it_said_and_both_test_sets_are_judged(
    corpus: Path, tmp_path: Path
) -> None:
    name = "multi30k[subwords=60]"
    how: dict[str, Any] = {"width": 24, "hidden": 24, "averaged": 2, "batch": 100, "warmup": 20}
    how |= {"layers": 1, "epochs": 16, "patience": 16, "rate": 1e-2, "dropout": 0.0}
    record = train(corpus, "mtsa_nmt", name, **how)
    found = kept(record, tmp_path)
    said = [bytes(one).decode() for one in found.sequences("said")]
    references = [list(loaded(corpus, name).test.also["references"])]
    score = BLEU(tokenize="none", smooth_method="none").corpus_score(said, references).score
    assert record["test"]["bleu"] == pytest.approx(score)
    assert SUMMED["bleu"].value(found.counts) == pytest.approx(score)
    assert SUMMED["chrf"].value(found.counts) == pytest.approx(record["test"]["chrf"])
    assert score > 1, "it learned nothing, which shows nothing"
    assert set(record["test"]) == {"bleu", "chrf", "bleu_2017", "chrf_2017"}
    assert set(record["epochs"][0]["dev"]) == {"bleu", "chrf"}
    assert record["decoding"]["sentences"] == 20
    assert record["decoding"]["beams"] == 4
    assert "tok:none" in record["signatures"]["bleu"]
    assert 0 < record["padding"] < 0.5


@pytest.mark.parametrize("model", ["mtsa_nmt", "multi_head", "msmsa"])
def test_every_layer_of_an_encoder_is_looked_at(corpus: Path, model: str) -> None:
    name = "multi30k[subwords=60]"
    recipe = small(name, layers=2, epochs=1, width=24, hidden=24, heads=2, batch=100)
    run: dict[str, Any] = {"model": model, "task": name, "recipe": recipe.as_dict(), "seed": 0}
    run |= {"directory": str(corpus), "vectors": "none", "tagged": 300}
    record = look(sentences=["a dog sees the man"], **run)
    (sentence,) = record["sentences"]
    assert "".join(sentence["tokens"]) == "▁a▁dog▁sees▁the▁man<end>"
    assert record["tagged"] == 0, "pieces of words have no part of speech"
    first, second = (np.array(layer["token2token"]) for layer in sentence["layers"])
    assert first.shape == second.shape == (2, *2 * [len(sentence["tokens"])])
    assert np.abs(first - second).max() > 1e-3
    assert record["checks"]["row_error"] < 1e-5
    assert record["checks"]["forbidden"] == 0


def test_a_mechanism_without_tokens_or_with_a_policy_is_told() -> None:
    for model, says in (("source2token", "makes one vector"), ("resa", "has a policy")):
        with pytest.raises(
            UsageError, match=f"{model} {says}.*needs a mechanism that gives tokens"
        ):
            train(Path(), model, MADE_UP)


def test_only_the_self_attention_of_the_encoder_differs() -> None:
    kind, record = objective_of("translation"), task(MADE_UP)
    data = loaded(Path(), MADE_UP, "")
    models = [
        kind.build(record, model, {}, data, small(MADE_UP, layers=2), Registry(), seed=3)
        for model in ("mtsa_nmt", "multi_head")
    ]
    first, second = (dict(model.named_parameters()) for model in models)
    alike = {name for name in second if "fusion" not in name}
    assert alike == {name for name in first if "fusion" not in name}
    assert all(torch.equal(first[name], second[name]) for name in alike)
    weights = [second[f"encoder.{i}.fusion.q_w"] for i in (0, 1)]
    assert not torch.equal(*weights), "every layer is drawn by itself"
    first_layer = next(part for part in models[1].modules() if isinstance(part, EncoderLayer))
    x, mask = torch.zeros(1, 4, 12), torch.ones(1, 4, dtype=torch.bool)
    assert not first_layer.fusion(x, mask).any(), "positions were added once more"


@real("multi30k/train.tsv.gz")
def test_multi30k_is_read_whole_and_hardly_padded() -> None:
    data = loaded(REAL, "multi30k")
    sizes = [len(s) for s in (data.train, data.dev, data.test, data.test.also["further"])]
    assert sizes == [29_000, 1014, 1000, 1000]
    assert int(data.seen.sum()) == SEEN
    found = lengths(data.train)
    generator = np.random.default_rng(0)
    assert padding(found, order_by_tokens(found, task("multi30k").recipe.batch, generator)) < 0.1
    assert texts(data.test.targets, data.test)[:50] == list(data.test.also["references"])[:50]
    assert data.outputs == 4000
    # A sentence of one's own is put into the corpus' form.
    assert data.encode("A man fixing a little girl's bicycle.") == data.test.inputs[0][472]


SEEN = 0
"""Test sentences whose English stands in train."""
